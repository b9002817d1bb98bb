"""Positions as outsiders see them: `<shard>-<epoch>-<physical offset>`.

Every opening of the log begins a new epoch at the log's end (formats.md, "Epochs"): a position that was given out before,
and whose bytes a cut took away since, is told from the one that has the same number now.
"""

from __future__ import annotations

from bisect import bisect_right

SHARD = 0
"""The embedded store has one log."""


class Positions:
    """The epochs of a log, oldest first, as (epoch, the position it started at)."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, int]] = []
        self.moved = 0
        """Positions read that a later epoch had cut off."""
        self._starts: list[int] = []

    def begin(self, epochs: list[tuple[int, int]]) -> None:
        self.epochs = epochs
        self._starts = [start for _, start in epochs]

    def format(self, position: int) -> str:
        """The text that means this position for good."""
        index = bisect_right(self._starts, position) - 1
        return f"{SHARD}-{self.epochs[max(index, 0)][0]}-{position}"

    def parse(self, text: str) -> int:
        """The physical offset; one past the start of a later epoch is moved back to that start, and counted.

        Raises ValueError on text that no `format` of this store gave.
        """
        words = text.split("-")
        if len(words) != 3 or not all(word.isascii() and word.isdecimal() and len(word) < 20 for word in words):
            raise ValueError(f"not a position: {text}")
        shard, epoch, position = (int(word) for word in words)
        if shard != SHARD or not 0 < epoch <= self.epochs[-1][0]:
            raise ValueError(f"not a position of this store: {text}")
        cut = min((start for later, start in self.epochs if later > epoch), default=position)
        if cut < position:
            self.moved += 1
            return cut
        return position
