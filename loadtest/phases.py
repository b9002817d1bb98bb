"""The phases of a run: connect subscribers, (offline: they leave), connect the others, go, measure, drain the acknowledgements,
(offline: return), drain the deliveries.
"""

from __future__ import annotations

import time

from loadtest.crew import STEP, Crew
from loadtest.tally import FOREVER, FORGIVEN, ROW

SETTLE = 0.2
QUIET_AFTER_ALL = 0.25
"""Seconds after the last expected delivery in which repeats may still come."""
CALIBRATE = 0.4
FORGIVE_AFTER = 1.0


class Phases(Crew):
    """Leads the crew through the run."""

    def _phases(self) -> None:
        self.phase = "connect"
        if not self._connect_all():
            return
        self._measure()
        self.phase = "acknowledgements"
        self._drain_acks()
        if any(group.offline or group.late for group in self.layout.groups):
            self.phase = "return"
            self._return()
        self.phase = "deliveries"
        self._drain_deliveries()

    def _connect_all(self) -> bool:
        rate = self.plan.connect_rate
        wanted = 0
        for which in ("subscribers", "others"):
            members = sum(
                group.clients for group in self.layout.groups
                if not group.late and (which == "subscribers") == (group.subscribe is not None)
            )  # fmt: skip
            if not members:
                continue
            self.tell("connect", which, rate)
            self._await_status()
            wanted += members
            self._until(lambda: self.total("connecting") == 0, self.plan.connect_timeout, None)
            self._note_ramp(members)
            if self.total("connecting"):
                self.problems.append(f"only {self.total('connected')} of {wanted} clients connected and subscribed{self._why()}")
                return False
            if which == "subscribers" and any(group.offline for group in self.layout.groups):
                self.tell("leave")
                wanted -= sum(group.clients for group in self.layout.groups if group.offline)
                self._await_status()
                self._until(lambda: self.total("leaving") == 0, self.plan.connect_timeout, "the subscribers could not leave")
        self.listen(SETTLE)
        self.noted.connected = self.total("connected")
        self.noted.harness_rss_connected = self._workers_rss()
        if self.server.pid is not None:
            self.noted.server_rss_connected = self.server.usage()[1]
        return True

    def _note_ramp(self, members: int) -> None:
        """Ramps follow each other with pauses between: only the ramps count."""
        started = min((status["ramp_started"] for status in self.status if status.get("ramp_started")), default=0)
        ended = max((status["last_connected"] for status in self.status), default=0)
        if ended > started:
            self.noted.ramp_s += (ended - started) / 1e9
            self.noted.ramped += members

    def _why(self) -> str:
        reasons: dict[str, int] = {}
        for status in self.status:
            for reason, times in status.get("reasons", {}).items():
                reasons[reason] = reasons.get(reason, 0) + times
        most = sorted(reasons.items(), key=lambda item: -item[1])[:2]
        return ": " + "; ".join(reason for reason, _ in most) if most else ""

    def _measure(self) -> None:
        plan = self.plan
        rates = [group.publish.rate for group in self.layout.groups if group.publish and group.publish.rate]
        if rates:
            self.tell("calibrate", sum(rates), CALIBRATE)
            deadline = time.monotonic() + 10
            while len(self.inbox.get("calibrated", [])) < plan.workers and time.monotonic() < deadline:
                self.listen()
        t0 = time.monotonic_ns() + 20_000_000
        warmup = int((plan.warmup or 0.0) * 1e9)
        length = self._planned()
        until = t0 + warmup + int(length * 1e9) if length is not None else FOREVER
        self.noted.t0, self.noted.measured_from = t0, t0 + warmup
        self.noted.measured_until = until
        self.tell("go", t0, t0 + warmup, until, until)
        self.phase = "warm-up" if warmup else "measure"
        if warmup:
            self._wait_until(t0 + warmup)
            self.phase = "measure"
        self._mark("from")
        self.faults.begin(t0, length)
        if length is not None:
            self._wait_until(until)
        else:
            self._await_status()
            self._until(self._all_sent, plan.drain, "publishing came to a standstill")
        self._end_measured()
        while self.faults.busy() or self.faults.left():
            self.listen()

    def _planned(self) -> float | None:
        """Seconds of the measured time; None: until every publisher has sent its count."""
        if self.plan.scenario == "connect":
            return self.plan.hold
        return self.plan.duration if self.plan.count is None else None

    def _all_sent(self) -> bool:
        return not (self.total("publishing") or self.total("scheduling") or self.total("waiting")) and all(self.status)

    def _wait_until(self, instant: int) -> None:
        stalled_at, last = time.monotonic(), -1
        while (left := instant - time.monotonic_ns()) > 0:
            self.listen(min(STEP, left / 1e9))
            if self.plan.credit:
                delivered = self.total("delivered")
                if delivered != last:
                    last, stalled_at = delivered, time.monotonic()
                elif time.monotonic() - stalled_at > FORGIVE_AFTER:
                    self._forgive()
                    stalled_at = time.monotonic()

    def _forgive(self) -> None:
        """Deliveries that do not come any more give their credit back, so that one loss does not end the run."""
        first = self.layout.publishers
        sent = sum(self.board[first + ROW * worker] for worker in range(self.plan.workers))
        got = sum(self.board[first + ROW * worker + 2] for worker in range(self.plan.workers))
        self.board[first + FORGIVEN] = max(self.board[first + FORGIVEN], int(sent * self.layout.fan()) - got)

    def _mark(self, which: str) -> None:
        self.tell("cpu", which)
        spent = self.server.spent() if self.server.pid is not None else None
        if which == "from":
            self.server_cpu_from = spent
        elif spent is not None and self.server_cpu_from is not None:
            self.noted.server_cpu = (self.server_cpu_from, spent)

    server_cpu_from: float | None = None

    def _end_measured(self) -> None:
        if self.ended or not self.noted.t0:
            return
        self.ended = True
        self.noted.measured_until = min(self.noted.measured_until, time.monotonic_ns())
        self._mark("until")
        self.tell("stop", self.noted.measured_until)

    def _drain_acks(self) -> None:
        self._await_status()
        if not self._until(lambda: not self.total("waiting") and not self.total("scheduling"), self.plan.drain, None):
            away = self.total("connecting")
            if away:
                ended = self.total("disconnects")
                self.problems.append(f"{away} clients were not connected at the end, after {ended} disconnects{self._why()}")
        self.tell("fence")
        self._await_status()
        self._until(lambda: not self.total("fencing"), self.plan.drain, None)

    def _return(self) -> None:
        self.noted.returned_at = time.monotonic_ns()
        for which in ("offline", "late"):
            if any(getattr(group, which) for group in self.layout.groups):
                self.tell("connect", which, self.plan.connect_rate)

    def _expected(self) -> float:
        messages = self.total("sent" if not self.plan.qos else "acked")
        return messages * self.layout.fan()

    def _drain_deliveries(self) -> None:
        if not self.layout.subscribers:
            return
        self._await_status()
        quiet: list[float] = []

        def complete() -> bool:
            if self.total("delivered") < self._expected() or self.total("connecting"):
                quiet.clear()
                return False
            now = (time.monotonic(), self.total("received"))
            if not quiet or quiet[1] != now[1]:
                quiet[:] = now
            return now[0] - quiet[0] > QUIET_AFTER_ALL

        self._until(complete, self.plan.drain, None)
