"""What links leave for the end of the turn they share: output to send, descriptors to close, tails to read again.

A *turn* is one pass of the reactor: read what is ready, let the server work on the whole batch, send once per link.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from typing import Any

READ = 0x001  # EPOLLIN
WRITE = 0x004  # EPOLLOUT
BROKEN = 0x018  # EPOLLERR | EPOLLHUP, always reported

LINGER_MS = 1_000
"""How long a closed link may take to send its rest and see the peer's end."""

HIGH_BYTES = 256 * 1024
"""More than this waiting to be sent, and `congested` tells the owner to hold deliveries back."""
LOW_BYTES = 64 * 1024
"""`drained` comes when no more than this is waiting."""
STALL_BYTES = 1024 * 1024
"""More than this waiting, and the link isn't read any more: its requests would only add answers."""


def _nobody() -> None:
    return None


class Turn:
    """The open links by descriptor, and the work that waits for the end of the turn.

    `now_ms` is monotonic and taken once a turn. Descriptors are closed only at the end of a turn, so that a number seen
    in this turn's events cannot mean another connection.
    """

    __slots__ = (
        "again", "bytes_received", "bytes_sent", "dirty", "doomed", "epoll", "fed", "high_bytes", "linger_started", "lingering",
        "links", "low_bytes", "now_ms", "open_links", "running", "stall_bytes", "wake", "woken",
    )  # fmt: skip

    def __init__(self, epoll: select.epoll) -> None:
        self.epoll = epoll
        self.links: list[Any] = [None] * 64
        self.dirty: list[Any] = []
        self.doomed: list[int] = []
        self.fed: list[Any] = []
        self.lingering: deque[tuple[int, Any]] = deque()
        self.running = False
        self.again = False
        self.woken = False
        self.wake: Callable[[], None] = _nobody
        self.linger_started: Callable[[], None] = _nobody
        self.now_ms = 0
        self.high_bytes = HIGH_BYTES
        self.low_bytes = LOW_BYTES
        self.stall_bytes = STALL_BYTES
        self.open_links = 0
        self.bytes_received = 0
        self.bytes_sent = 0

    def add(self, link: Any, fd: int) -> None:
        """Take the link in and wait for its bytes."""
        links = self.links
        if fd >= len(links):
            links.extend([None] * max(fd + 1 - len(links), len(links)))
        links[fd] = link
        self.open_links += 1
        self.epoll.register(fd, READ)

    def watch(self, fd: int, mask: int) -> None:
        """Wait for other events of a link than before."""
        self.epoll.modify(fd, mask)

    def ask(self) -> None:
        """There is work for the end of a turn: have one soon, after this one where one is running."""
        if self.running:
            self.again = True
        elif not self.woken:
            self.woken = True
            self.wake()

    def linger(self, link: Any) -> None:
        """The link is closing: end it after LINGER_MS at the latest."""
        if not self.lingering:
            self.linger_started()
        self.lingering.append((self.now_ms + LINGER_MS, link))
