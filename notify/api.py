"""The Notify port: tells proxies that light queues have grown. A hint may be lost; the queue offset is the truth.

So a lost hint costs latency and never a message: whoever listens also looks at the queues by itself from time to time.
Pure; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

Hints = Mapping[int, int]
"""Queue id → the queue's max offset (the one its next message will get), as high as the sender knew it."""
OnHints = Callable[[Hints], None]


class Notify(Protocol):
    """Carries hints to every subscriber, the sender's own process included."""

    def publish(self, hints: Hints) -> None:
        """Tell all subscribers, soon and with luck. Returns at once and never raises for what happens on the way.

        Tell only what is durable: a hint must not lead anybody to a message that a power loss takes back.
        """
        ...

    def subscribe(self, on_hints: OnHints) -> Callable[[], None]:
        """Call back with every hint from here on; the answer ends that.

        Calls come on the subscriber's loop, never from within `publish`. Hints that came meanwhile are one call, with
        the highest offset of each queue.
        """
        ...


def merge(into: dict[int, int], hints: Hints) -> None:
    """Keep the highest offset of each queue."""
    for queue_id, max_offset in hints.items():
        if max_offset > into.get(queue_id, -1):
            into[queue_id] = max_offset
