"""Notify within one process: hints wait for the loop's next turn and arrive there merged."""

from __future__ import annotations

import logging
from collections.abc import Callable

from notify.api import Hints, OnHints, merge

QUEUES_MAX = 100_000
"""Queues with a hint under way; further ones are dropped and counted (whoever reads them looks again by itself)."""

log = logging.getLogger("lmq.notify")


class InProcessNotify:
    """Notify over a dict. `call_soon` runs a call in the loop's next turn; publish from the loop's own thread."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], queues_max: int = QUEUES_MAX) -> None:
        self.dropped = 0
        self._call_soon = call_soon
        self._queues_max = queues_max
        self._pending: dict[int, int] = {}
        self._asked = False
        self._subscribers: list[OnHints] = []

    def publish(self, hints: Hints) -> None:
        """See Notify.publish."""
        pending = self._pending
        if len(pending) + len(hints) > self._queues_max:
            known = {queue_id: max_offset for queue_id, max_offset in hints.items() if queue_id in pending}
            room = self._queues_max - len(pending)
            fresh = [item for item in hints.items() if item[0] not in pending]
            self.dropped += max(0, len(fresh) - room)
            hints = known | dict(fresh[:room])
        merge(pending, hints)
        if pending and not self._asked:
            self._asked = True
            self._call_soon(self._deliver)

    def subscribe(self, on_hints: OnHints) -> Callable[[], None]:
        """See Notify.subscribe."""
        self._subscribers.append(on_hints)

        def end() -> None:
            if on_hints in self._subscribers:
                self._subscribers.remove(on_hints)

        return end

    def _deliver(self) -> None:
        self._asked = False
        hints, self._pending = self._pending, {}
        for on_hints in list(self._subscribers):
            try:
                on_hints(hints)
            except Exception:  # one subscriber's fault must not keep the hints from the others
                log.exception("a subscriber to hints failed")
