"""A million registered light queues (1,000 clients × 1,000 different QoS 1 filters): under 1.5 GiB resident, started again in
under 20 s after SIGKILL or a clean stop, and publishing at least half as fast as with none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.scale.raw_client import BLOCK, Client, Publisher, blocks, flood
from tests.scale.server import Server

PUBLISHERS = 20
PAYLOAD = bytes(100)
PREPARED_BLOCKS = 40
"""Blocks that one publisher has ready; it sends them in a circle."""


@dataclass
class MillionQueues:
    """Figures of one run. Rates are QoS 1 messages acknowledged a second."""

    queues: int
    persistent: bool
    subscribe_s: float = 0.0
    resident: int = 0
    peak: int = 0
    """The most that was resident at any moment of the run, starts included."""
    killed_s: float = 0.0
    resident_killed: int = 0
    stopped_s: float = 0.0
    stop_took_s: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)
    """By what was published to: `bare` (no filter registered), `others` (topics that no filter matches), `offline` and
    `connected` (topics of the filters, their sessions away or connected)."""

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in self.rates.items())
        return (
            f"{self.queues:,} queues of {'persistent' if self.persistent else 'clean'} sessions: subscribed in {self.subscribe_s:.1f} s, "
            f"resident {self.resident / 2**20:.0f} MiB (after SIGKILL {self.resident_killed / 2**20:.0f}, peak {self.peak / 2**20:.0f}); "
            f"ready after SIGKILL {self.killed_s:.1f} s, after a stop {self.stopped_s:.1f} s (stop {self.stop_took_s:.1f} s); {rates}"
        )


def topic_of(client: int, number: int) -> bytes:
    """The topic that one filter alone matches; one filter in ten has a wildcard for its last level."""
    return b"site/%04d/device/%04d" % (client, number)


def filter_of(client: int, number: int) -> bytes:
    return topic_of(client, number) if number % 10 else b"site/%04d/+/%04d" % (client, number)


def connect_all(server: Server, clients: int, persistent: bool) -> list[Client]:
    return [Client(server.port, b"holder-%d" % number, clean=not persistent, receive_buffer=1 << 20) for number in range(clients)]


def publish_rate(server: Server, topics: Iterator[bytes], seconds: float) -> float:
    """Messages acknowledged a second by all publishers."""
    publishers = []
    for number in range(PUBLISHERS):
        made = blocks((next(topics), PAYLOAD) for _ in range(PREPARED_BLOCKS * BLOCK))
        publishers.append(Publisher(Client(server.port, b"publisher-%d" % number), endless(made)))
    count, took = flood(publishers, seconds)
    for one in publishers:
        one.socket.close()
    return count / took


def endless(made: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from made


def random_topics(clients: int, filters: int) -> Iterator[bytes]:
    rng = random.Random(1)
    while True:
        yield topic_of(rng.randrange(clients), rng.randrange(filters))


def unmatched_topics(count: int) -> Iterator[bytes]:
    rng = random.Random(2)
    while True:
        yield b"other/%d" % rng.randrange(count)


def measure(directory: Path, clients: int = 1000, filters: int = 1000, persistent: bool = True, seconds: float = 5.0) -> MillionQueues:
    """The whole course: rates without filters, subscribe, rates, SIGKILL, clean stop."""
    found = MillionQueues(clients * filters, persistent)
    with Server(directory) as server:
        found.rates["bare"] = publish_rate(server, random_topics(clients, filters), seconds)
        began = time.monotonic()
        holders = connect_all(server, clients, persistent)
        for number, holder in enumerate(holders):
            holder.subscribe([filter_of(number, one) for one in range(filters)])
        found.subscribe_s = time.monotonic() - began
        time.sleep(3)
        found.resident = server.resident_bytes()
        found.rates["others"] = publish_rate(server, unmatched_topics(1000), seconds)
        if persistent:
            for holder in holders:
                holder.disconnect()
            found.rates["offline"] = publish_rate(server, random_topics(clients, filters), seconds)
        found.peak = server.peak_bytes()
        server.kill()
        found.killed_s = server.start()
        if persistent:
            holders = connect_all(server, clients, persistent)
            assert all(holder.session_present for holder in holders)
        time.sleep(3)
        found.resident_killed = server.resident_bytes()
        found.peak = max(found.peak, server.peak_bytes())
        found.stop_took_s = server.stop()
        found.stopped_s = server.start()
        found.peak = max(found.peak, server.peak_bytes())
    return found
