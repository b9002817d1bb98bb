"""Connections that only exist: bytes each, how fast they come, what a clean stop with all of them takes."""

from __future__ import annotations

import resource
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.types import V311, Connect
from tests.scale.server import Server

CONNECTING = 256
"""Connections being made at a time."""
PER_ADDRESS = 10_000
"""A loopback address has some 28,000 ports, and finding a free one takes long when half of them are taken."""
SPARE_FILES = 200


@dataclass(frozen=True)
class IdleConnections:
    """Figures of one run."""

    connections: int
    bytes_each: float
    per_s: float
    stop_s: float

    def __str__(self) -> str:
        each = f"{self.connections:,} idle connections: {self.bytes_each:,.0f} bytes each"
        return f"{each}, made at {self.per_s:,.0f}/s, stopped in {self.stop_s:.2f} s"


def possible(wanted: int) -> int:
    """How many of them the file limit allows to client and server, a process each."""
    needed = wanted + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed:
        return wanted
    if hard < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))  # with the rights for it; the server inherits it
            return wanted
        except (ValueError, OSError):
            pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, needed), hard))
    return min(wanted, hard - SPARE_FILES)


def measure(directory: Path, connections: int = 50_000) -> IdleConnections:
    """Connect them all, look at the server's memory, stop it."""
    connections = possible(connections)
    with Server(directory, "--max-connections", str(connections + 10)) as server:
        base = server.resident_bytes()
        began = time.monotonic()
        opened = connect(server.port, connections)
        took = time.monotonic() - began
        time.sleep(1)
        each = (server.resident_bytes() - base) / connections
        stop_s = server.stop()
        for one in opened:
            one.close()
        return IdleConnections(connections, each, connections / took, stop_s)


def connect(port: int, count: int) -> list[socket.socket]:
    """So many connections, each with its CONNACK; CONNECTING of them on the way at a time."""
    poll = select.epoll()
    waiting: dict[int, socket.socket] = {}
    opened: list[socket.socket] = []
    made = 0
    while len(opened) < count:
        while made < count and len(waiting) < CONNECTING:
            one = socket.socket()
            one.bind((f"127.0.0.{1 + made // PER_ADDRESS}", 0))
            one.connect(("127.0.0.1", port))
            one.sendall(encoder.connect(Connect(V311, b"idle-%d" % made)))
            poll.register(one.fileno(), select.EPOLLIN)
            waiting[one.fileno()] = one
            made += 1
        for fd, _ in poll.poll(10):
            one = waiting.pop(fd)
            poll.unregister(fd)
            assert one.recv(16) == b"\x20\x02\x00\x00"
            opened.append(one)
    poll.close()
    return opened
