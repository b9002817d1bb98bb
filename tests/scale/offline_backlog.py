"""A session that was away with 10 million messages waiting resumes in under 1 s (first message after CONNACK) and drains in order."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.scale.probe import Latency, Probe
from tests.scale.raw_client import BLOCK, BLOCKS_OUTSTANDING, Client, Drain, Publisher, flood, publish_frame
from tests.scale.server import Server

PUBLISHERS = 8
STAMP = struct.Struct(">BI")
"""Publisher, number."""


@dataclass(frozen=True)
class OfflineBacklog:
    """Figures of one run."""

    messages: int
    stored_per_s: float
    ready_s: float
    """Start after a SIGKILL with the backlog in the log."""
    first_s: float
    """From CONNECT to the first message."""
    drain_per_s: float
    probe: Latency
    resident: int

    def __str__(self) -> str:
        return (
            f"{self.messages:,} waiting: stored at {self.stored_per_s:,.0f}/s, ready after SIGKILL {self.ready_s:.2f} s, first message "
            f"{self.first_s * 1e3:.0f} ms after CONNECT, drained in order at {self.drain_per_s:,.0f}/s, others meanwhile: {self.probe}; "
            f"resident {self.resident / 2**20:.0f} MiB"
        )


def topic_of(publisher: int) -> bytes:
    return b"back/log/%d" % publisher


def numbered(publisher: int, count: int) -> Iterator[bytes]:
    """Blocks of numbered messages. The blocks of one window are made; the numbers are then put into copies of them."""
    window = []
    for first_id in range(1, BLOCK * BLOCKS_OUTSTANDING, BLOCK):
        frames = [
            publish_frame(topic_of(publisher), STAMP.pack(publisher, 0), 1, packet_id) for packet_id in range(first_id, first_id + BLOCK)
        ]
        window.append(bytearray(b"".join(frames)))
    frame = len(window[0]) // BLOCK
    for first in range(0, count, BLOCK):
        block = window[first // BLOCK % BLOCKS_OUTSTANDING]
        for n in range(BLOCK):
            STAMP.pack_into(block, (n + 1) * frame - STAMP.size, publisher, first + n)
        yield bytes(block)


def measure(directory: Path, messages: int = 10_000_000) -> OfflineBacklog:
    """Store the backlog, kill the server, start it, resume, drain; beside a probe."""
    with Server(directory) as server:
        away = Client(server.port, b"away", clean=False)
        away.subscribe([b"back/#"])
        away.disconnect()
        each = messages // PUBLISHERS
        stored, took = flood([Publisher(Client(server.port, b"filler-%d" % one), numbered(one, each)) for one in range(PUBLISHERS)], 600)
        assert stored == messages, stored
        server.kill()
        ready_s = server.start()
        probe = Probe(server.port)
        began = time.monotonic()
        back = Client(server.port, b"away", clean=False, receive_buffer=1 << 20)
        assert back.session_present
        drain = Drain(back, len(topic_of(0)), STAMP)
        expected = [0] * PUBLISHERS
        first_s = 0.0
        left = messages
        while left:
            batch = drain.batch()
            if batch and not first_s:
                first_s = time.monotonic() - began
            for _, publisher, number in batch:
                assert number == expected[publisher], f"publisher {publisher}: {number} came, {expected[publisher]} was next"
                expected[publisher] = number + 1
            left -= len(batch)
        drained_s = time.monotonic() - began
        return OfflineBacklog(messages, stored / took, ready_s, first_s, messages / drained_s, probe.result(), server.resident_bytes())
