"""What a person sees while it runs: one block redrawn up to four times a second, or plain lines where there is no terminal."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from typing import TYPE_CHECKING, Protocol

from loadtest.summary import micro

if TYPE_CHECKING:
    from loadtest.conductor import Conductor

LINE_EVERY = 2.0
BARS = "▁▂▃▄▅▆▇█"


class View(Protocol):
    def show(self) -> None: ...

    def end(self) -> None: ...


class _Figures:
    """Rates between two looks."""

    def __init__(self, run: Conductor) -> None:
        self.run = run
        self.last: tuple[float, int, int, int] | None = None
        self.rates = (0.0, 0.0, 0.0)
        self.history: list[float] = []
        self.cpu_last = (time.monotonic(), 0.0)
        self.cpu = 0.0

    def look(self) -> None:
        run = self.run
        now = time.monotonic()
        current = (now, run.total("sent"), run.total("acked"), run.total("delivered"))
        if self.last is None:
            self.last = current
            self.cpu_last = (now, self._cpu())
        elif now - self.last[0] >= 0.9:
            span = now - self.last[0]
            self.rates = tuple(max(0, current[place] - self.last[place]) / span for place in (1, 2, 3))  # type: ignore[assignment]
            self.history = [*self.history[-59:], max(self.rates)]
            self.last = current
            spent = self._cpu()
            self.cpu = 100 * (spent - self.cpu_last[1]) / (now - self.cpu_last[0])
            self.cpu_last = (now, spent)

    def _cpu(self) -> float:
        from loadtest.server_process import usage_of

        own = resource.getrusage(resource.RUSAGE_SELF)
        return usage_of([process.pid for process in self.run.processes if process.pid])[0] + own.ru_utime + own.ru_stime

    def latency(self) -> tuple[float | None, float | None]:
        rows = self.run.timeline.rows[-1:]
        return (rows[0]["e2e_p50"], rows[0]["e2e_p99"]) if rows else (None, None)

    def faults(self) -> str:
        shown = []
        for row in self.run.faults.rows:
            if row.state == "due":
                shown.append(f"{row.fault.kind} in {max(0.0, row.at - self.run.faults.elapsed()):.0f} s")
            elif row.state == "over":
                shown.append(f"{row.fault.kind} over")
            else:
                shown.append(f"{row.fault.kind} {row.state}")
        return ", ".join(shown[:4])

    def elapsed(self) -> float:
        t0 = self.run.noted.t0
        return max(0.0, (time.monotonic_ns() - t0) / 1e9) if t0 else 0.0


class Terminal:
    """The redrawn block, on stderr."""

    def __init__(self, run: Conductor, color: bool) -> None:
        self.figures = _Figures(run)
        self.color = color
        self.drawn = 0

    def show(self) -> None:
        figures, run = self.figures, self.figures.run
        figures.look()
        width = max(40, shutil.get_terminal_size().columns) - 1
        sent, acked, delivered = figures.rates
        p50, p99 = figures.latency()
        bold, dim, plain = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if self.color else ("", "", "")
        in_flight = sum(run.board[run.layout.publishers + 16 * worker + 5] for worker in range(len(run.processes))) if run.processes else 0
        connected = run.total("connected")
        rows = [
            (bold, f"{run.plan.scenario} {run.address}  {run.phase}  {figures.elapsed():.0f} s"),
            ("", f"  per second  sent {sent:>9,.0f}   acked {acked:>9,.0f}   delivered {delivered:>9,.0f}"),
            ("", f"  latency     p50 {micro(p50):>9}   p99 {micro(p99):>9}   in flight {in_flight:,}   connected {connected:,}"),
            (dim, f"  harness     {figures.cpu:.0f} % CPU in {len(run.processes)} worker(s)   {_chart(figures.history)}"),
        ]
        faults = figures.faults()
        if faults:
            rows.append(("", f"  faults      {faults}"))
        text = "".join(f"{style}{line[:width]}{plain if style else ''}\x1b[K\n" for style, line in rows)
        up = f"\x1b[{self.drawn}A" if self.drawn else ""
        sys.stderr.write(f"{up}\r{text}\x1b[J")
        sys.stderr.flush()
        self.drawn = len(rows)

    def end(self) -> None:
        """The block gives way to the summary."""
        if self.drawn:
            sys.stderr.write(f"\x1b[{self.drawn}A\r\x1b[J")
            sys.stderr.flush()
            self.drawn = 0


class Lines:
    """A plain line every two seconds, on stderr."""

    def __init__(self, run: Conductor) -> None:
        self.figures = _Figures(run)
        self.next = time.monotonic() + LINE_EVERY

    def show(self) -> None:
        self.figures.look()
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + LINE_EVERY
        figures, run = self.figures, self.figures.run
        sent, acked, delivered = figures.rates
        p50, p99 = figures.latency()
        faults = figures.faults()
        print(
            f"{figures.elapsed():6.0f} s  {run.phase:<16} sent {sent:,.0f}/s  acked {acked:,.0f}/s  delivered {delivered:,.0f}/s  "
            f"p50 {micro(p50)}  p99 {micro(p99)}  connected {run.total('connected'):,}  harness {figures.cpu:.0f} %"
            + (f"  [{faults}]" if faults else ""),
            file=sys.stderr, flush=True,
        )  # fmt: skip

    def end(self) -> None:
        return


def _chart(history: list[float]) -> str:
    top = max(history, default=0.0)
    return "".join(BARS[min(7, int(7 * value / top))] for value in history[-30:]) if top else ""


def view_for(run: Conductor, color: bool) -> View:
    """A redrawn block on a terminal, else lines."""
    if sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        return Terminal(run, color)
    return Lines(run)
