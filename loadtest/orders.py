"""What the conductor may tell a worker to do: each `do_NAME` carries out one command."""

from __future__ import annotations

import random
import resource
import select
import time
from collections.abc import Callable

from loadtest import frames
from loadtest.client import IDLE, LEAVING, UP, Client
from loadtest.pacing import NEVER, Schedule, bare_pacing
from loadtest.publisher import Publisher
from loadtest.roster import Roster


class Orders(Roster):
    """A roster that obeys."""

    heard = 0
    """Commands carried out."""

    def _commands(self) -> None:
        while self.pipe.poll(0):
            try:
                name, *details = self.pipe.recv()
            except (EOFError, OSError):
                self.quit = True
                return
            handler: Callable[..., None] = getattr(self, f"do_{name}")
            handler(*details)
            self.heard += 1
            if self.quit:
                return

    def do_connect(self, which: str, rate: float | None) -> None:
        """`subscribers` first, then the `others`; `late` when all is published; one each 1/rate seconds over all workers."""
        wanted: list[Client] = []
        for number, group in enumerate(self.layout.groups):
            kind = "late" if group.late else "subscribers" if group.subscribe else "others"
            if kind == which or (which == "offline" and group.offline):
                wanted += self.by_group[number]
        self.ramp_started = time.monotonic_ns()
        interval = 1e9 * self.given.workers / rate if rate else 0.0
        self.life.want(wanted, interval, interval * self.given.worker / self.given.workers)

    def do_leave(self) -> None:
        """Offline groups go."""
        for number, group in enumerate(self.layout.groups):
            if group.offline:
                for client in self.by_group[number]:
                    self.life.leave(client)

    def do_calibrate(self, rate: float, seconds: float) -> None:
        late = bare_pacing(self.poll, 1e9 * self.given.workers / rate, seconds)
        self.pacing = late.sparse()
        self.pipe.send(("calibrated",))

    def do_go(self, t0: int, measured_from: int, measured_until: int, until: int) -> None:
        """Begin at t0; open loop schedules end at `until`."""
        tally = self.tally
        tally.measured_from, tally.measured_until = measured_from, measured_until
        self.measured = (measured_from, measured_until)
        self.started_at = t0
        for number, group in enumerate(self.layout.groups):
            publish, clients = group.publish, self.by_group[number]
            if group.flap and clients:
                self.flaps.append((t0 + int(group.flap[0] * 1e9), clients, *group.flap))
            if publish is None or not clients:
                continue
            if publish.rate:
                schedule = Schedule(clients)
                stop = until
                if publish.count is not None:
                    stop = min(stop, t0 + int(publish.count * group.clients * 1e9 / publish.rate))
                schedule.start(t0, stop, publish.rate, group.clients, [client.work.place for client in clients])
                self.schedules.append(schedule)
            elif publish.qos == 0 or tally.credit:
                self.pumped += clients
            if group.churn:
                self.churning = True
                for client in clients:
                    if client.publisher is not None:
                        client.publisher.limit = group.churn
        while time.monotonic_ns() < t0:
            time.sleep(max(0.0, (t0 - time.monotonic_ns()) / 1e9 - 0.0001))
        tally.now = time.monotonic_ns()
        tally.running = True
        tally.second.clear()
        for clients in self.by_group:
            for client in clients:
                if client.publisher is not None and not client.publisher.open_loop:
                    self._check(client, client.pump())

    def do_cpu(self, which: str) -> None:
        """The processor time of this worker at the edges of the measured time."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        spent = usage.ru_utime + usage.ru_stime
        if which == "from":
            self.cpu_from = spent
        else:
            self.cpu_until = spent

    def do_stop(self, measured_until: int) -> None:
        """The measured time is over: nothing new begins; what is due still goes out."""
        self.tally.measured_until = min(self.tally.measured_until, measured_until)
        self.tally.running = False
        self.churning = False
        self.flaps.clear()
        for schedule in self.schedules:
            schedule.until = min(schedule.until, measured_until)
            if schedule.next_due >= schedule.until:
                schedule.next_due = NEVER

    def do_fence(self) -> None:
        """QoS 0: a PINGREQ after the last message of each publisher; its answer says that all were taken."""
        for clients in self.by_group:
            for client in clients:
                if client.publisher is not None and client.publisher.qos == 0 and client.state == UP and client not in self.fenced:
                    self.fenced.add(client)
                    client.pings += 1
                    client.put(frames.PINGREQ)

    def do_cut(self, share: float, seed: int) -> None:
        for client in self._chosen(share, seed):
            self.life.drop(client)

    def do_half_open(self, share: float, seed: int) -> None:
        for client in self._chosen(share, seed):
            self.life.drop(client, keep_socket=True)

    def do_slow(self, share: float, seed: int) -> None:
        """A share of the subscribers stops reading until `resume`."""
        for client in self._chosen(share, seed, subscribers=True):
            self.life.paused.add(client)
            self.poll.modify(client.fd, 0)

    def do_resume(self) -> None:
        for client in self.life.paused:
            if client.fd >= 0:
                self.poll.modify(client.fd, select.EPOLLIN | (select.EPOLLOUT if client.tail is not None else 0))
        self.life.paused.clear()
        self.life.close_ghosts()

    def _chosen(self, share: float, seed: int, subscribers: bool = False) -> list[Client]:
        """A seeded share of the clients, the same whatever the number of workers."""
        chosen: list[Client] = []
        for number, group in enumerate(self.layout.groups):
            if subscribers and not group.subscribe:
                continue
            picked = set(random.Random(seed * 7919 + number).sample(range(group.clients), max(1, round(share * group.clients))))
            chosen += [client for client in self.by_group[number] if client.work.place in picked and client.state == UP]
        return chosen

    def do_ledger(self) -> None:
        from loadtest.workforce import ledger_of

        self.pipe.send(("ledger", ledger_of(self)))

    def do_cleanup(self) -> None:
        """Delete what this worker's clients left on the broker: retained messages, then sessions."""
        tally, life = self.tally, self.life
        for clients in self.by_group:
            for client in clients:
                publisher = client.publisher
                if publisher is not None and publisher.retain and client.state == UP and not self.plan.keep:
                    for topic in self._retained_topics(publisher):
                        client.put(frames.publish0(topic, b"", client.version, retain=True))
                if client.state != LEAVING:
                    life.leave(client)
        tally.running = False

    def _retained_topics(self, publisher: Publisher) -> list[bytes]:
        if publisher.topics == 0:
            return [publisher.topic_prefix + publisher.topic_suffix]
        last = publisher.next_number if publisher.topics < 0 else publisher.topics
        return [publisher.topic_prefix + b"%d" % number + publisher.topic_suffix for number in range(last)]

    def do_forget_sessions(self) -> None:
        """A clean start ends each persistent session; then everybody leaves."""
        wanted: list[Client] = []
        for number, group in enumerate(self.layout.groups):
            if group.persistent:
                wanted += [client for client in self.by_group[number] if client.work.opened]
        for client in wanted:
            if client.state != IDLE:
                self.life._close(client)  # still waiting for the broker's close: not any more
        self.life.on_ready = self.life.leave  # type: ignore[method-assign]
        self.life.want(wanted, clean=True)

    def do_quit(self) -> None:
        self.quit = True
