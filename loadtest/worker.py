"""One worker: one process with one loop that reads and writes batches for its share of the clients.

The conductor speaks to it over a pipe, in small tuples: what to do next (`connect`, `go`, `stop`, `return` …); it answers with
its status, a row each second, and at the end with its part of the ledger.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from multiprocessing.connection import Connection
from typing import Any

from loadtest import frames
from loadtest.client import LEAVING, OPEN, UP, Client
from loadtest.orders import Orders
from loadtest.pacing import NEVER, pump_all, sleep_until
from loadtest.roster import Assignment
from loadtest.tally import FOREVER

STATUS_EVERY = 0.05
CHORES_EVERY = 0.005
COALESCE = 30_000
"""ns; a wait is at least so long: what falls due in between goes out in one turn."""


class Worker(Orders):
    """The loop."""

    # ------------------------------------------------------------- the loop
    def run(self) -> None:
        """Until told to quit, or the conductor is gone."""
        try:
            ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK: wake within a nanosecond of the time asked for
        except (OSError, AttributeError):
            pass
        while not self.quit:
            self._turn()
        self.life.close_ghosts()

    def _turn(self) -> None:
        events = self.poll.poll(0, 512)
        now = time.monotonic_ns()
        if not events:
            due = self._next_wake(now)
            if due > now:
                sleep_until(self.poll, now, max(due, now + COALESCE))
                events = self.poll.poll(0, 512)
                now = time.monotonic_ns()
        self.turn += 1
        tally = self.tally
        tally.now = now
        pipe = self.pipe.fileno()
        for fd, what in events:
            if fd == pipe:
                self._commands()
                continue
            client = self.life.by_fd[fd]
            if client is not None:
                self._serve(client, what)
        for schedule in self.schedules:
            if schedule.next_due <= now:
                for client in schedule.advance(now, self.turn):
                    self._check(client, client.pump())
        if self.pumped and tally.running:
            self.busy = pump_all(self.pumped) > 0
        if tally.blocked:
            self._wait_for_room()
        if now >= self.next_chores:
            self._chores(now)
        tally.publish_totals()

    busy = False
    ramp_started = 0

    def _next_wake(self, now: int) -> int:
        if self.pumped and self.tally.running:
            if self.busy:
                return now
            return now + 200_000
        wake = min(self.next_chores, self.next_status)
        for schedule in self.schedules:
            wake = min(wake, schedule.next_due)
        return wake

    def _serve(self, client: Client, what: int) -> None:
        if client.state < UP - 1 or (client.state != UP and client.link is None and what & select.EPOLLOUT and not what & select.EPOLLIN):
            if client.state == LEAVING:
                self._leaving(client)
            elif client.state < UP - 1:
                self.life.progress(client, what)
            else:
                self._writable(client)
            return
        if client.state == LEAVING:
            self._leaving(client)
            return
        if what & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            status = client.readable()
            while status == OPEN and client.link is not None and client.fd >= 0 and client.link.pending():
                status = client.readable()
            self._check(client, status)
        if what & select.EPOLLOUT and client.fd >= 0:
            self._writable(client)

    def _writable(self, client: Client) -> None:
        status = client.writable()
        if status == OPEN and client.fd >= 0 and client.tail is None:
            self.poll.modify(client.fd, 0 if client in self.life.paused else select.EPOLLIN)
        self._check(client, status)

    def _leaving(self, client: Client) -> None:
        """Whatever comes after our DISCONNECT is read away, until the broker closes."""
        if client.tail is not None:
            client.writable()
            self.poll.modify(client.fd, select.EPOLLIN | (select.EPOLLOUT if client.tail else 0))
        try:
            gone = client.link is not None or not os.read(client.fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            gone = True
        if gone:
            self.life._close(client)

    def _wait_for_room(self) -> None:
        for client in self.tally.blocked:
            assert isinstance(client, Client)
            if client.fd >= 0 and client.tail is not None:
                self.poll.modify(client.fd, select.EPOLLOUT if client in self.life.paused else select.EPOLLIN | select.EPOLLOUT)
        self.tally.blocked.clear()

    # ------------------------------------------------------------- chores
    def _chores(self, now: int) -> None:
        """What is not per message: attempts, time-outs, keep alive, churn, seconds, status; every few ms."""
        self.next_chores = min(now + int(CHORES_EVERY * 1e9), max(self.life.step(now), now + 200_000))
        if self.life.progressing or self.life.leaving:
            self.life.expire(now)
        self.tally.board[self.tally.row_at + 4] = max(0, self.life.connected)
        if now >= self.next_keepalive:
            self.next_keepalive = now + 1_000_000_000
            self._keep_alive(now)
        if self.churning:
            self._churn(now)
        for place, (due, clients, every, share) in enumerate(self.flaps):
            if now >= due:
                up = [client for client in clients if client.state == UP]
                for client in self.life.random.sample(up, min(len(up), max(1, int(share * len(clients))))):
                    self.life.drop(client)
                self.flaps[place] = (now + int(every * 1e9), clients, every, share)
        if self.started_at and now >= self.started_at + (self.second + 1) * 1_000_000_000:
            self._tick()
        if now >= self.next_status:
            self.next_status = now + int(STATUS_EVERY * 1e9)
            self.pipe.send(("status", self.status()))

    def _keep_alive(self, now: int) -> None:
        """PINGREQ well before the keep alive ends [MQTT-3.1.2-24]; a client without an answer for as long gives up."""
        if not self.plan.keepalive:
            return
        limit = int(self.plan.keepalive * 7e8)
        for clients in self.by_group:
            for client in clients:
                if client.state != UP or client in self.life.paused:
                    continue
                if now - client.last_sent > limit:
                    if client.pings > 1 and client not in self.fenced:
                        self.life.reasons["no PINGRESP in time"] += 1
                        self.life.lost(client, "no PINGRESP")
                        continue
                    client.pings += 1
                    client.put(frames.PINGREQ)

    def _churn(self, now: int) -> None:
        """Churners whose life is done leave politely and come again."""
        for number, group in enumerate(self.layout.groups):
            if not group.churn:
                continue
            for client in self.by_group[number]:
                publisher, life = client.publisher, client.work
                if client.state != UP or not life.subscribed or publisher is None or publisher.next_number < publisher.limit:
                    continue
                overdue = now - client.last_sent > 1_000_000_000
                if (publisher.in_flight == 0 and self._has_all(client)) or overdue:
                    self.life.leave(client)
            gone = [client for client in self.by_group[number] if client.state < 1 and not client.work.wanted]
            if gone:
                self.life.want(gone)

    def _has_all(self, client: Client) -> bool:
        if client.row is None or client.publisher is None:
            return True
        cell = client.row.cell + client.publisher.number - client.row.first
        return self.tally.seen.count(cell) >= self.tally.acknowledged.count(client.publisher.number)

    def _tick(self) -> None:
        """The row of a second that is over."""
        self.second += 1
        tally = self.tally
        counts = (tally.sent, tally.acked, tally.delivered, tally.in_flight, self.life.connected)
        self.pipe.send(("second", self.second, counts, tally.second.sparse()))
        tally.second.clear()

    def status(self) -> dict[str, Any]:
        """Where this worker stands: what the conductor decides by."""
        tally, life = self.tally, self.life
        publishing = waiting = 0
        for clients in self.by_group:
            for client in clients:
                publisher = client.publisher
                if publisher is None:
                    continue
                if publisher.in_flight or publisher.waiting() or client.tail is not None:
                    waiting += 1
                if publisher.limit < FOREVER and publisher.next_number < publisher.limit and not publisher.open_loop:
                    publishing += 1
        return {
            "heard": self.heard,
            "connecting": len(life.queue) + len(life.retries) + len(life.progressing),
            "connected": life.connected,
            "connects": life.connects,
            "connect_failed": life.connect_failed,
            "disconnects": life.disconnects,
            "leaving": len(life.leaving),
            "subscribed": sum(1 for note in self.rows for client in note.clients if client.work.subscribed),
            "publishing": publishing,
            "waiting": waiting,
            "scheduling": sum(1 for schedule in self.schedules if schedule.next_due != NEVER),
            "fencing": sum(1 for client in self.fenced if client.state == UP and client.pings),
            "sent": tally.sent,
            "acked": tally.acked,
            "rejected": tally.rejected,
            "delivered": tally.delivered,
            "received": tally.delivered + tally.duplicate + tally.redelivered + tally.corrupt + tally.foreign,
            "last_connected": life.last_connected,
            "ramp_started": self.ramp_started,
            "resident_bare": self.resident_bare,
            "reasons": dict(life.reasons),
        }


def work(given: Assignment, pipe: Connection, cpu: int | None) -> None:
    """A worker process from its start to its end."""
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    Worker(given, pipe).run()
