"""`ready` under 0.7 s with an empty folder, and under 3 s after SIGKILL with 1 GiB of log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.scale.raw_client import Client, Publisher, blocks, flood
from tests.scale.server import Server

PAYLOAD = 1024
PUBLISHERS = 8


@dataclass(frozen=True)
class StartUp:
    """Seconds to `ready`."""

    empty_s: float
    killed_s: float
    log_bytes: int
    again_s: float
    """After one more SIGKILL with nothing written in between."""

    def __str__(self) -> str:
        size = f"{self.log_bytes / 2**20:.0f} MiB of log"
        return f"ready: empty {self.empty_s:.2f} s; killed with {size} {self.killed_s:.2f} s, again {self.again_s:.2f} s"


def measure(directory: Path, log_bytes: int, payload: int = PAYLOAD) -> StartUp:
    """Fill a log, kill while it is being written, start again."""
    with Server(directory) as server:
        empty_s = server.ready_s
        server.stop()
        server.start()
        fill(server, log_bytes, payload)
        server.kill()
        written = sum(file.stat().st_size for file in (directory / "data" / "log").iterdir())
        killed_s = server.start()
        server.kill()
        return StartUp(empty_s, killed_s, written, server.start())


def fill(server: Server, log_bytes: int, payload: int) -> None:
    """Publish about so many bytes of log, QoS 1, and leave the last windows unacknowledged."""
    each = log_bytes // (payload + 80) // PUBLISHERS // 1000 * 1000 + 1000
    publishers = []
    for number in range(PUBLISHERS):
        made = blocks((b"fill/%d/%d" % (number, at % 50), bytes(payload)) for at in range(1000))
        source = (made[at % len(made)] for at in range(each // 250))
        publishers.append(Publisher(Client(server.port, b"fill-%d" % number), source))
    flood(publishers)
