"""A row per second of the run, folded as soon as every worker has told its part, so that an hour costs no more than a minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.histogram import Histogram

Picture = tuple[int, float, int, int, list[int]]
RESIDENT_EVERY = 5.0


class Timeline:
    """Rows of whole seconds from the first due send; `minutes` holds the end to end p99 of each whole minute, in µs."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.parts: dict[int, list[tuple[tuple[int, ...], Picture]]] = {}
        self.rows: list[dict[str, Any]] = []
        self.before = (0, 0, 0)
        self.minute = Histogram()
        self.second = Histogram()
        self.minutes: list[float | None] = []
        self.memory: list[dict[str, Any]] = []
        """{t_s, server_mb, harness_mb, disk_mb} every few seconds."""

    def add(self, second: int, counts: tuple[int, ...], picture: Picture) -> None:
        """One worker's second."""
        parts = self.parts.setdefault(second, [])
        parts.append((counts, picture))
        if len(parts) == self.workers:
            self._fold(second, self.parts.pop(second))

    def _fold(self, second: int, parts: list[tuple[tuple[int, ...], Picture]]) -> None:
        totals = [sum(counts[place] for counts, _ in parts) for place in range(5)]
        latency = self.second
        latency.clear()
        for _, picture in parts:
            latency.add_sparse(picture)
            self.minute.add_sparse(picture)
        has = latency.number > 0
        self.rows.append({
            "t_s": second,
            "sent": totals[0] - self.before[0], "acked": totals[1] - self.before[1], "delivered": totals[2] - self.before[2],
            "in_flight": totals[3], "connected": totals[4],
            "e2e_p50": round(latency.percentile(50) / 1e3, 1) if has else None,
            "e2e_p99": round(latency.percentile(99) / 1e3, 1) if has else None,
        })  # fmt: skip
        self.before = (totals[0], totals[1], totals[2])
        if second % 60 == 0:
            self.minutes.append(round(self.minute.percentile(99) / 1e3, 1) if self.minute.number else None)
            self.minute.clear()

    def resident(self, at: float, server: int | None, harness: int, disk: Callable[[], int | None]) -> None:
        """Resident bytes at this moment; kept every few seconds."""
        if not self.memory or at - self.memory[-1]["t_s"] >= RESIDENT_EVERY:
            megabytes = None if server is None else round(server / 1e6, 2)
            kept = disk()
            self.memory.append({
                "t_s": round(at, 1), "server_mb": megabytes, "harness_mb": round(harness / 1e6, 2),
                "disk_mb": None if kept is None else round(kept / 1e6, 1),
            })  # fmt: skip
