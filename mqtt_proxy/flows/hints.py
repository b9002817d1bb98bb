"""Hints: where the engine doesn't hand over what it appended, readers learn through notify that their queues have grown.

A hint may be lost, so every queue that somebody reads here is also looked at once in each `repoll_ms` (law three).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from lmq_store.api.model import LightQueue, Message
from mqtt_proxy.session.session import CAUGHT_UP, Session
from notify.api import Hints, Notify

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.flows.promise import Promise

TICKS_PER_S = 10


class HintFlow:
    """Publishes hints for what this proxy appended, and wakes the sessions that hints concern. Idle until `begin`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.active = False
        self.notify: Notify
        self.queues: dict[int, LightQueue] = {}
        """The registered queues by id; at most `max_queues`."""
        self.round: Iterator[LightQueue] = iter(())
        self.round_step = 1
        self.next_round_ms = 0
        self.behind_without_hint = 0
        """Readers that only the re-poll found behind."""

    def begin(self, notify: Notify) -> None:
        """From now on readers depend on hints and on the re-poll."""
        self.active = True
        self.notify = notify
        notify.subscribe(self.received)

    def watch(self, queue: LightQueue) -> None:
        """The queue is registered: hints may concern it."""
        if self.active:
            self.queues[queue.id] = queue

    def unwatch(self, queue: LightQueue) -> None:
        self.queues.pop(queue.id, None)

    # --- out --------------------------------------------------------------------------------------------------------------

    def appended(self, batch: list[Message], promise: Promise) -> None:
        """Tell all proxies which queues have grown, once that is durable."""
        routes = {message.route for message in batch}
        queues = {queue for route in routes if route is not None for queue in route.lights}
        if queues:
            promise.calls.append(partial(self.publish, queues))

    def publish(self, queues: set[LightQueue]) -> None:
        self.notify.publish({queue.id: self.broker.store.max_offset(queue) for queue in queues})

    # --- in ---------------------------------------------------------------------------------------------------------------

    def received(self, hints: Hints) -> None:
        """Queues have grown, here or at another proxy."""
        for queue_id, max_offset in hints.items():
            queue = self.queues.get(queue_id)
            if queue is not None:
                self._wake_readers(queue, max_offset)

    def repoll(self, now_ms: int) -> None:
        """Look at a share of the queues that are read here, so that all of them have had their turn in `repoll_ms`."""
        if not self.active:
            return
        if now_ms >= self.next_round_ms:
            repoll_ms = self.broker.settings.repoll_ms
            self.next_round_ms = now_ms + repoll_ms
            read = [queue for queue in self.queues.values() if queue.readers]
            self.round_step = 1 + len(read) * 1000 // (repoll_ms * TICKS_PER_S)
            self.round = iter(read)
        for _ in range(self.round_step):
            queue = next(self.round, None)
            if queue is None:
                return
            self.behind_without_hint += self._wake_readers(queue, self.broker.store.max_offset(queue))

    def _wake_readers(self, queue: LightQueue, max_offset: int) -> int:
        """Note how far the queue goes and have its readers catch up; how many were behind."""
        if max_offset > queue.next_offset:
            queue.next_offset = max_offset
        deliverer = self.broker.deliverer
        behind = 0
        for reader in queue.readers:
            if reader.group is not None:
                deliverer.wake_group(reader.group)
            elif reader.session.state == CAUGHT_UP and reader.next_offset < queue.next_offset:
                behind += 1
                self._look_at_all(reader.session)
                deliverer.wake(reader.session)
        return behind

    def _look_at_all(self, session: Session) -> None:
        """All queues of the session as of one moment: a message in several of them goes out once, so they are merged."""
        for reader in session.readers:
            self.broker.store.max_offset(reader.queue)
