"""The conductor's workers: hired, told, listened to, and dismissed."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

from loadtest import faults
from loadtest.address import Address
from loadtest.fault_control import FaultControl
from loadtest.plan import Plan
from loadtest.probe import NoAnswer, probe
from loadtest.relay import Relay
from loadtest.report import Measured
from loadtest.resolve import address_of, check_machine, lines_of, resolved
from loadtest.roster import Assignment
from loadtest.scenarios import layout_of
from loadtest.server_process import ServerProcess, group_of, usage_of
from loadtest.tally import ROW
from loadtest.timeline import Timeline
from loadtest.worker import work
from loadtest.workforce import KINDS, group_options

STEP = 0.02


class Interrupted(Exception):
    """A worker is gone: the run ends now, and is accounted for all the same."""


class Crew:
    """The processes of a run, and what is known of them; `watch` is called a few times a second with what a view shows."""

    def __init__(self, plan: Plan, watch: Callable[[Any], None] | None = None) -> None:
        self.given = plan
        self.plan = resolved(plan)
        self.address: Address = address_of(self.plan)
        self.run_id = random.SystemRandom().randrange(1 << 24) << 8 | 0x4C
        self.layout = layout_of(self.plan, f"{self.run_id:08x}")
        check_machine(self.plan, self.layout, self.address)
        self.lines = {
            group.publish.payload: lines_of(group.publish.payload)
            for group in self.layout.groups
            if group.publish and group.publish.payload not in KINDS
        }
        self.target = self.address.resolve()
        self.server = ServerProcess(self.plan.server_cmd, self.plan.server_pid, self.address.port, self.plan.server_cpus)
        self.watch = watch
        self.phase = "start"
        self.noted = Measured()
        self.problems: list[str] = []
        self.pipes: list[Connection] = []
        self.processes: list[ForkProcess] = []
        self.status: list[dict[str, Any]] = []
        self.timeline = Timeline(self.plan.workers)
        self.inbox: dict[str, list[Any]] = {}
        self.faults = FaultControl(self, [faults.parse(text) for text in self.plan.fault])
        self.relay: Relay | None = None
        self.interrupted = self.signalled = False
        self.next_sample = 0.0
        self.next_watch = 0.0

    ended = False
    seen_disconnects = 0
    told = 0
    """Commands so far; a status says how many of them its worker has carried out."""

    def answers(self, timeout: float = 1.0) -> bool:
        """True when the broker answers a CONNECT, whatever it says."""
        try:
            self._probe(timeout)
            return True
        except NoAnswer as failure:
            return failure.final

    def _probe(self, timeout: float) -> Any:
        from loadtest.links import tls_context

        plan = self.plan
        context = tls_context(plan.ca, plan.cert, plan.key, plan.insecure) if self.address.tls else None
        options = group_options(plan, self.layout.groups[0])
        options.will, options.session_expiry = None, 0
        client_id = f"l{self.run_id:08x}-probe".encode()
        return probe(self.address, self.address.resolve(), options, client_id, context, timeout)

    def _hire(self) -> None:
        if self.server.pid is not None:
            self.noted.server_rss_before = self.server.usage()[1]
        size = 8 * (self.layout.publishers + ROW * self.plan.workers)
        self.memory = mmap.mmap(-1, size)
        self.board = memoryview(self.memory).cast("Q")
        context = multiprocessing.get_context("fork")
        for number in range(self.plan.workers):
            ours, theirs = context.Pipe()
            given = Assignment(
                self.plan, self.layout, self.run_id, number, self.plan.workers, self.board, self.address, self.target, self.lines
            )
            cpu = self.plan.cpus[number % len(self.plan.cpus)] if self.plan.cpus else None
            process = context.Process(target=_employ, args=(given, theirs, cpu, [*self.pipes, ours]), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
            self.status.append({})
        self._await_status()
        self.noted.harness_rss_before = self.total("resident_bare")

    def tell(self, *command: Any) -> None:
        self.told += 1
        for pipe in self.pipes:
            try:
                pipe.send(command)
            except OSError:
                self._worker_died()

    def _worker_died(self) -> None:
        if "a worker process died" not in self.problems:
            self.problems.append("a worker process died")

    def listen(self, seconds: float = STEP) -> None:
        """Take what the workers say for a while; sample, fire faults, show."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            ready = wait([pipe for pipe in self.pipes if not pipe.closed], timeout=max(0.0, left))
            for pipe in ready:
                assert isinstance(pipe, Connection)
                self._hear(pipe)
            if left <= 0:
                break
        self.faults.step()
        now = time.monotonic()
        if now >= self.next_sample:
            self.next_sample = now + 0.5
            self._sample()
        if self.watch and now >= self.next_watch:
            self.next_watch = now + 0.25
            self.watch(self)

    def _hear(self, pipe: Connection) -> None:
        worker = self.pipes.index(pipe)
        try:
            while pipe.poll(0):
                name, *details = pipe.recv()
                if name == "status":
                    self.status[worker] = details[0]
                elif name == "second":
                    self.timeline.add(*details)
                else:
                    self.inbox.setdefault(name, []).append(details[0] if details else None)
        except (EOFError, OSError):
            pipe.close()
            self.status[worker] = {}
            self._worker_died()
            raise Interrupted from None

    def total(self, name: str) -> int:
        return sum(int(status.get(name, 0)) for status in self.status)

    def _await_status(self) -> None:
        """Until every worker that lives has carried out what it was told, and said so."""
        deadline = time.monotonic() + 30
        while any(not pipe.closed and status.get("heard", -1) < self.told for pipe, status in zip(self.pipes, self.status, strict=True)):
            self.listen(0.005)
            if time.monotonic() > deadline:
                self.problems.append("a worker does not answer")
                raise Interrupted

    def _progress(self) -> tuple[int, ...]:
        """Grows as long as a run comes nearer to its end: a broker that ends every connection only ever repeats itself."""
        most = ("sent", "acked", "rejected", "delivered", "connected", "subscribed")
        disconnects = self.total("disconnects")
        received = self.total("received") if disconnects == self.seen_disconnects else 0
        self.seen_disconnects = disconnects
        return (*(self.total(name) for name in most), received, -self.total("fencing"))

    def _until(self, done: Callable[[], bool], patience: float, what: str | None) -> bool:
        """Listen until done; False after `patience` without progress (the clock stands still while a fault is on)."""
        highest, since = self._progress(), time.monotonic()
        while not done():
            self.listen()
            now = time.monotonic()
            progress = self._progress()
            if any(new > old for new, old in zip(progress, highest, strict=True)) or self.faults.busy():
                since = now
            highest = tuple(map(max, progress, highest))
            if now - since > patience:
                if what:
                    self.problems.append(what)
                return False
        return True

    def _dismiss(self) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(("quit",))
            except OSError:
                pass
        for process in self.processes:
            try:
                process.join(2)
            except KeyboardInterrupt:
                pass  # once more: without waiting then
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.pipes:
            pipe.close()

    def _workers_rss(self) -> int:
        return usage_of([process.pid for process in self.processes if process.pid is not None])[1]

    def _sample(self) -> None:
        resident = None
        if self.server.pid is not None and not self.faults.busy():
            resident = usage_of(group_of(self.server.pid))[1]
            self.noted.server_rss_peak = max(self.noted.server_rss_peak or 0, resident) or None
        workers = self._workers_rss()
        self.noted.harness_rss = max(self.noted.harness_rss, workers)
        if self.noted.t0 and self.ended is False:
            self.timeline.resident((time.monotonic_ns() - self.noted.t0) / 1e9, resident, workers, self.server.disk)


def _employ(given: Assignment, pipe: Connection, cpu: int | None, others: list[Connection]) -> None:
    """The first breath of a worker process."""
    import signal

    from loadtest.server_process import _die_with_parent

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the conductor says when it is over, also where the whole group is told
    _die_with_parent()
    for other in others:
        other.close()
    if given.plan.client == "paho":
        from loadtest.paho_worker import work_with_paho

        work_with_paho(given, pipe)
    else:
        work(given, pipe, cpu)
    os._exit(0)
