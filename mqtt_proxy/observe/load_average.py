"""Averages per minute over the last 1, 5 and 15 minutes, as mosquitto's `$SYS/broker/load` and the kernel's load do it. Pure."""

from __future__ import annotations

from math import exp
from typing import Final

SPANS_MIN: Final = (1, 5, 15)


class LoadAverage:
    """Follows a counter that only grows; `per_minute` has one average for each of SPANS_MIN."""

    __slots__ = ("_last", "per_minute")

    def __init__(self) -> None:
        self._last = 0
        self.per_minute = [0.0] * len(SPANS_MIN)

    def update(self, counter: int, passed_s: float) -> None:
        """The counter's value `passed_s` after the last update."""
        if passed_s <= 0:
            return
        rate = (counter - self._last) * 60 / passed_s
        self._last = counter
        for index, span in enumerate(SPANS_MIN):
            kept = exp(-passed_s / (60 * span))
            self.per_minute[index] = rate + kept * (self.per_minute[index] - rate)
