"""Runs a plan: starts the broker and the workers, leads them through the phases, fires the faults, and writes the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from loadtest.crew import Interrupted
from loadtest.phases import Phases
from loadtest.probe import NoAnswer
from loadtest.relay import Relay
from loadtest.report import Report
from loadtest.units import UsageError

CLEANUP_WITHIN = 5.0
"""Seconds without progress after which the clean up is given up."""


class Conductor(Phases):
    """One run of one plan."""

    # ------------------------------------------------------------- the whole run
    def run(self) -> Report:
        """Raises UsageError before any load; after that it always returns a report."""
        from loadtest.verdict import report_of

        self.noted.began = time.monotonic_ns()
        self.started_at = time.time()
        try:
            self._broker()
            if self.faults.relayed:
                self.relay = Relay(self.target)
                self.target = self.relay.start()
            self._hire()
            try:
                self._phases()
            except (Interrupted, KeyboardInterrupt) as why:
                self._interrupt(why)
                self._end_measured()
            ledgers = self._collect()
            report = report_of(self, ledgers)
            self.judged = True
            self._cleanup()
            if self.signalled:
                report.data["exit"] = 130
            return report
        finally:
            self._dismiss()
            kept = self.server.end(keep_folder=self.judged and self.failed)
            if kept:
                self.kept_folder = kept
            if self.relay:
                self.relay.stop()

    finished = judged = False
    failed = False
    kept_folder: str | None = None

    def _broker(self) -> None:
        """The broker is there and lets us in, or nothing starts."""
        from loadtest.frames import reason_text

        if self.server.command is not None:
            self.server.start()
            try:
                self.server.wait_ready(self.answers)
            except UsageError:
                self.failed = True
                raise
        try:
            answer = self._probe(self.plan.connect_timeout)
        except NoAnswer as failure:
            raise UsageError(f"no broker at {self.address}: {failure}") from None
        if answer.reason:
            raise UsageError(f"the broker at {self.address} refuses us: {reason_text(answer.reason, 5 if self.plan.mqtt == '5' else 4)}")
        if answer.maximum_qos < max(self.plan.qos or 0, self.plan.sub_qos or 0):
            raise UsageError(f"the broker at {self.address} offers QoS {answer.maximum_qos} at most")

    # ------------------------------------------------------------- the end
    def _collect(self) -> list[dict[str, Any]]:
        self.phase = "ledger"
        self.finished = not self.interrupted
        try:
            self._await_status()
            self.noted.harness_rss = max(self.noted.harness_rss, self._workers_rss())
            self.tell("ledger")
            deadline = time.monotonic() + 60
            while len(self.inbox.get("ledger", [])) < self._alive() and time.monotonic() < deadline:
                self.listen()
        except (Interrupted, KeyboardInterrupt) as why:
            self._interrupt(why)
        return self.inbox.get("ledger", [])

    def _leave(self, left: Callable[[], int]) -> None:
        """Until nobody is left, or nobody left for a while."""
        lowest, deadline = left(), time.monotonic() + CLEANUP_WITHIN
        while (now := left()) and time.monotonic() < deadline:
            if now < lowest:
                lowest, deadline = now, time.monotonic() + CLEANUP_WITHIN
            self.listen()

    def _interrupt(self, why: BaseException) -> None:
        """Ctrl-C and SIGTERM end in 130, a worker that is gone in 1."""
        self.interrupted = True
        self.signalled = self.signalled or isinstance(why, KeyboardInterrupt)

    def _alive(self) -> int:
        return sum(not pipe.closed for pipe in self.pipes)

    def _cleanup(self) -> None:
        """Sessions and retained messages of this run are deleted from the broker."""
        self.phase = "clean up"
        if self.server.wanted and self.server.command is not None and not self.plan.keep:
            return  # its data goes with it
        try:
            self.tell("cleanup")
            self._await_status()
            self._leave(lambda: self.total("leaving"))
            if not self.plan.keep and any(group.persistent for group in self.layout.groups):
                self.tell("forget_sessions")
                self._await_status()
                self._leave(lambda: self.total("connecting") + self.total("leaving"))
        except (Interrupted, KeyboardInterrupt) as why:
            self._interrupt(why)
