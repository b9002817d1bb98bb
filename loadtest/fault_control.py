"""Fires a run's faults on time and follows each until the broker answers and the clients are back."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from loadtest.faults import RELAYED, Fault, Occurrence, occurrences

if TYPE_CHECKING:
    from loadtest.crew import Crew


class FaultControl:
    """The occurrences of all faults, each stepped from due to over by the conductor's loop."""

    def __init__(self, conductor: Crew, faults: list[Fault]) -> None:
        self.conductor = conductor
        self.faults = faults
        self.relayed = any(fault.kind in RELAYED for fault in faults)
        self.rows: list[Occurrence] = []
        self.t0 = 0
        self.probing: threading.Thread | None = None
        self.probe_answered: float | None = None
        self.given_up = False

    def begin(self, t0: int, planned: float | None) -> None:
        self.t0 = t0
        self.rows = occurrences(self.faults, planned, self.conductor.plan.seed)

    def elapsed(self) -> float:
        return (time.monotonic_ns() - self.t0) / 1e9

    def busy(self) -> bool:
        """True while a fault is on, or the broker or the clients are not back."""
        return any(row.state in ("on", "answering", "returning") for row in self.rows)

    def left(self) -> bool:
        return not self.given_up and any(row.state == "due" for row in self.rows)

    def step(self) -> None:
        if not self.rows or self.given_up:
            return
        now = self.elapsed()
        for row in self.rows:
            if row.state == "due" and now >= row.at and not (row.fault.kind in ("kill", "stop") and self._server_busy(row)):
                self._fire(row, now)
            elif row.state == "on" and row.ended is not None and now >= row.ended:
                self._lift(row)
            elif row.state == "answering":
                self._answering(row, now)
            elif row.state == "returning":
                self._returning(row, now)

    def _server_busy(self, row: Occurrence) -> bool:
        return any(other is not row and other.fault.kind in ("kill", "stop") and other.state in ("on", "answering") for other in self.rows)

    def _fire(self, row: Occurrence, now: float) -> None:
        fault, conductor = row.fault, self.conductor
        row.fired, row.state = now, "on"
        row.connects_before = conductor.total("connects")
        row.ended = now + fault.lasts
        if fault.kind == "kill":
            conductor.server.kill()
            row.ended = now + fault.restart
            row.detail = f"SIGKILL, started again after {fault.restart:g} s"
        elif fault.kind == "stop":
            conductor.server.freeze()
            row.detail = f"SIGSTOP for {fault.lasts:g} s"
        elif fault.kind == "cut":
            row.ended = now
            conductor.tell("cut", fault.share, row.seed)
            row.detail = f"{fault.share:.0%} of the connections"
        elif fault.kind == "slow-reader":
            conductor.tell("slow", fault.share, row.seed)
            row.detail = f"{fault.share:.0%} of the subscribers do not read for {fault.lasts:g} s"
        elif fault.kind == "half-open":
            conductor.tell("half_open", fault.share, row.seed)
            row.detail = f"{fault.share:.0%} of the connections stay open without a word for {fault.lasts:g} s"
        elif conductor.relay is not None:
            if fault.kind == "delay":
                conductor.relay.delay(fault.by)
                row.detail = f"{fault.by * 1000:g} ms each way for {fault.lasts:g} s"
            else:
                conductor.relay.throttle(fault.rate)
                row.detail = f"{fault.rate:g} bytes/s each way for {fault.lasts:g} s"

    def _lift(self, row: Occurrence) -> None:
        fault, conductor = row.fault, self.conductor
        if fault.kind == "kill" and conductor.server.command is not None:
            try:
                conductor.server.start()
            except OSError as failure:
                row.detail += f"; could not be started again: {failure.strerror}"
        elif fault.kind == "stop":
            conductor.server.thaw()
        elif fault.kind in ("slow-reader", "half-open"):
            conductor.tell("resume")
        elif conductor.relay is not None and fault.kind in RELAYED:
            conductor.relay.clear()
        row.state = "answering"

    def _answering(self, row: Occurrence, now: float) -> None:
        """The broker answers a CONNECT from the side; probed in a thread, so that the run goes on meanwhile."""
        if self.probe_answered is not None:
            row.answered = self.probe_answered
            self.probe_answered = None
            row.state = "returning"
            self.return_seen = 0
            return
        if self.probing is None or not self.probing.is_alive():
            self.probing = threading.Thread(target=self._probe, daemon=True)
            self.probing.start()
        self._give_up(row, now)

    def _probe(self) -> None:
        if self.conductor.answers(0.5):
            self.probe_answered = self.elapsed()
        else:
            time.sleep(0.02)

    def _returning(self, row: Occurrence, now: float) -> None:
        """Over once all clients that should be there are connected again."""
        assert row.answered is not None
        if now - row.answered > 0.1 and self.conductor.total("connecting") == 0:
            last = max((int(status.get("last_connected", 0)) for status in self.conductor.status), default=0)
            came_back = (last - self.t0) / 1e9 if last else row.answered
            row.recovered = max(row.answered, came_back if row.fired is not None and came_back > row.fired else row.answered)
            row.state = "over"
            return
        self._give_up(row, now)

    def _give_up(self, row: Occurrence, now: float) -> None:
        assert row.ended is not None
        if now - row.ended > self.conductor.plan.recovery_timeout:
            what = "the broker did not answer" if row.state == "answering" else "not all clients were back"
            self.conductor.problems.append(f"{row.fault.kind}: {what} within {self.conductor.plan.recovery_timeout:g} s")
            row.state = "failed"
            self.given_up = True
