"""100,000 retained messages: a `#` subscriber gets them all, while the p99 of others stays under 10 ms."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

from tests.scale.probe import Latency, Probe
from tests.scale.raw_client import Client, Drain, Publisher, blocks, flood
from tests.scale.server import Server

PUBLISHERS = 4
NUMBER = struct.Struct(">Q72x")
QUIET_S = 2.0
"""The probe runs so long before subscribers come."""


@dataclass(frozen=True)
class RetainedFlood:
    """Figures of one run."""

    messages: int
    stored_per_s: float
    sent_s: float
    alone: Latency
    """What the probe saw on this machine before."""
    beside: Latency

    def __str__(self) -> str:
        return (
            f"{self.messages:,} retained: stored at {self.stored_per_s:,.0f}/s, all sent to a # subscriber in {self.sent_s:.2f} s; "
            f"others before {self.alone}; meanwhile {self.beside}"
        )


def topic_of(number: int) -> bytes:
    return b"kept/%04d/%04d" % (number // 1000, number % 1000)


def measure(directory: Path, messages: int = 100_000, rounds: int = 1) -> RetainedFlood:
    """Store them, then let a `#` subscriber come (`rounds` of them, one after the other) while a probe runs."""
    with Server(directory) as server:
        share = messages // PUBLISHERS
        publishers = []
        for one in range(PUBLISHERS):
            made = blocks(((topic_of(n), NUMBER.pack(n)) for n in range(one * share, (one + 1) * share)), retain=True)
            publishers.append(Publisher(Client(server.port, b"keeper-%d" % one), iter(made)))
        stored, took = flood(publishers)
        quiet = Probe(server.port)
        time.sleep(QUIET_S)
        alone = quiet.result()
        probe = Probe(server.port)
        sent_s = 0.0
        for _ in range(rounds):
            began = time.monotonic()
            subscriber = Client(server.port, b"all", receive_buffer=1 << 20)
            subscriber.subscribe([b"kept/#"])
            drain = Drain(subscriber, len(topic_of(0)), NUMBER)
            found: set[int] = set()
            while len(found) < messages:
                found.update(number for _, number in drain.batch())
            sent_s = max(sent_s, time.monotonic() - began)
            subscriber.close()
        return RetainedFlood(messages, stored / took, sent_s, alone, probe.result())
