"""When messages are due, and how exactly this machine keeps time when it does nothing else.

Open loop: the messages of a group are due at t0, t0 + 1/rate, t0 + 2/rate …, dealt to its publishers in turn. A worker owns
some of the publishers; its schedule walks over them alone.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import cython

from loadtest.histogram import Histogram

if TYPE_CHECKING or not cython.compiled:
    from loadtest.client import Client

NEVER = 1 << 62


class Schedule:
    """The due instants of one worker's publishers of one group."""

    __slots__ = ("clients", "late", "next_due", "place", "round", "until")

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.late = Histogram()
        """How late the loop itself was, whatever the broker did."""
        self.round = 0
        self.place = 0
        self.next_due = NEVER
        """ns; when `advance` has to be called next."""
        self.until = NEVER
        """Nothing is due from this instant on."""

    def start(self, t0: int, until: int, rate: float, members: int, places: list[int]) -> None:
        """`rate` messages a second over all `members` of the group, of which this worker owns those at `places`."""
        self.until = until
        for client, place in zip(self.clients, places, strict=True):
            publisher = client.publisher
            assert publisher is not None
            publisher.open_loop = True
            publisher.due_from = t0 + place * 1e9 / rate
            publisher.due_step = members * 1e9 / rate
        self.next_due = self.clients[0].publisher.due_of(0) if self.clients and self.clients[0].publisher is not None else NEVER

    def advance(self, now: int, turn: int) -> list[Client]:
        """Marks what has become due until `now`; the clients that have something new to send."""
        touched: list[Client] = []
        number = len(self.clients)
        while self.next_due <= now:
            if self.next_due >= self.until:
                self.next_due = 4611686018427387904
                break
            self.late.record(now - self.next_due)
            client = self.clients[self.place]
            publisher = client.publisher
            assert publisher is not None
            publisher.scheduled = self.round + 1
            if client.turn != turn:
                client.turn = turn
                touched.append(client)
            self.place += 1
            if self.place == number:
                self.place = 0
                self.round += 1
            client = self.clients[self.place]
            publisher = client.publisher
            assert publisher is not None
            self.next_due = publisher.due_of(self.round)
        return touched

    def finished(self) -> bool:
        return self.next_due == NEVER


def pump_all(clients: list[Client]) -> int:
    """Every client sends what it may; the number of clients that did."""
    busy = 0
    for client in clients:
        if client.pump_some():
            busy += 1
    return busy


def sleep_until(waiting: select.epoll, now: int, due: int) -> None:
    """Wait for events, at most until `due`; select(2) takes microseconds where epoll takes milliseconds."""
    select.select([waiting], [], [], max(0.0, (due - now) / 1e9))


def bare_pacing(waiting: select.epoll, interval_ns: float, seconds: float) -> Histogram:
    """How late the same loop is when all it does is keep time: what `send_late` is judged against."""
    late = Histogram()
    began = time.monotonic_ns()
    due = began + interval_ns
    end = began + seconds * 1e9
    while due < end:
        waiting.poll(0, 1)
        now = time.monotonic_ns()
        if now < due:
            sleep_until(waiting, now, int(min(due, now + 1_000_000)))
            continue
        while due <= now and due < end:
            late.record(int(now - due))
            due += interval_ns
    return late
