"""A subscriber that reads nothing while 1 GB passes costs under 20 MB and delays nobody."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from tests.scale.probe import Latency, Probe
from tests.scale.raw_client import BLOCK, Client, Publisher, blocks, flood, paced
from tests.scale.server import Server

PAYLOAD = 1024
PUBLISHERS = 4
RATE = 50_000
"""Messages a second of all publishers: well below what the server takes, so that the probe shows delays and no queue."""


@dataclass(frozen=True)
class SilentReader:
    """Figures of two equal runs, without and with the subscriber."""

    passed: int
    cost: int
    """Bytes by which the most memory in use was higher with it."""
    alone: Latency
    beside: Latency
    alone_per_s: float
    beside_per_s: float

    def __str__(self) -> str:
        return (
            f"{self.passed / 1e6:.0f} MB past a subscriber that reads nothing: cost {self.cost / 2**20:.1f} MiB; "
            f"probe without it {self.alone}, with it {self.beside}; publishers {self.alone_per_s:,.0f}/s and {self.beside_per_s:,.0f}/s"
        )


def measure(directory: Path, passed: int = 1_000_000_000) -> SilentReader:
    """The same load twice on a fresh server each: nobody subscribed to it, then one who never reads."""
    alone_peak, alone, alone_per_s = _run(directory / "alone", passed, [])
    silent = [b"load/#"]
    beside_peak, beside, beside_per_s = _run(directory / "beside", passed, silent)
    return SilentReader(passed, beside_peak - alone_peak, alone, beside, alone_per_s, beside_per_s)


def _run(directory: Path, passed: int, filters: list[bytes]) -> tuple[int, Latency, float]:
    with Server(directory) as server:
        silent = Client(server.port, b"silent")
        if filters:
            silent.subscribe(filters)  # and never reads again
        each = passed // PAYLOAD // PUBLISHERS // BLOCK
        _flood(server, each // 10)  # buffers and caches grow to their sizes
        base = server.resident_bytes()
        server.reset_peak()
        probe = Probe(server.port)
        count, took = _flood(server, each)
        latency = probe.result()
        grown = server.peak_bytes() - base
        silent.close()
        return grown, latency, count / took


def _flood(server: Server, blocks_each: int) -> tuple[int, float]:
    publishers = []
    for number in range(PUBLISHERS):
        (block,) = blocks((b"load/%d" % number, bytes(PAYLOAD)) for _ in range(BLOCK))
        source = paced(repeat(block, blocks_each), RATE / PUBLISHERS)
        publishers.append(Publisher(Client(server.port, b"load-%d" % number), source))
    return flood(publishers)
