"""Collection: the index entries of queues that nobody holds any more are deleted, in steps that never stall the loop.

A dropped queue has a row `D` in the store's own table from the drop until no replay can bring an entry back, so that a
crash halfway is taken up again. Its records stay in the log until retention takes them.
"""

from __future__ import annotations

import struct
from collections import deque

from rocksdict import WriteBatch

from lmq_store.embedded.consume_queue import IndexedQueue
from lmq_store.embedded.light_queues import LightQueues, run_key
from lmq_store.embedded.meta_tables import OWN, MetaTables
from lmq_store.embedded.retention import Durability
from lmq_store.embedded.rocks import new_batch

STEP_KEYS = 300
"""Index runs deleted one by one in a step, about a millisecond."""
MANY_RUNS = 64
"""A queue with more runs is deleted as a range; range tombstones slow reads down, so small queues go key by key."""

_KEY64 = struct.Struct(">Q")
_U64 = struct.Struct("<Q")


class QueueCollection:
    """Forgets dropped queues. Call `step` every tick."""

    def __init__(self, queues: LightQueues, meta: MetaTables, durability: Durability) -> None:
        self.queues = queues
        self.meta = meta
        self.durability = durability
        self.collected = 0
        self._fresh: list[IndexedQueue] = []
        """Dropped since the last step: their rows are queued, and perhaps in no record yet."""
        self._dropped: deque[tuple[IndexedQueue, int]] = deque()
        """(queue, log position from which on the drop is durable)."""
        self._deleted: deque[tuple[int, int]] = deque()
        """(queue id, position that both databases' files have to be beyond before its row goes)."""

    def load(self) -> None:
        """Take up what a crash or stop left (after recovery)."""
        for key, _ in self.meta.scan(OWN, b"D"):
            self._dropped.append((IndexedQueue(_KEY64.unpack_from(key, 1)[0], b""), 0))

    @property
    def waiting(self) -> int:
        """Queues whose entries are still to be deleted."""
        return len(self._fresh) + len(self._dropped)

    def drop(self, queue: IndexedQueue) -> None:
        """The queue is gone: its handle takes no more messages, its entries go once the drop is durable, and not before."""
        self.queues.open.pop(queue.id, None)
        self.meta.put(OWN, b"D" + _KEY64.pack(queue.id), _U64.pack(self.durability.end()))
        self.meta.delete(OWN, b"H" + _KEY64.pack(queue.id))
        self._fresh.append(queue)

    def step(self) -> None:
        """Delete the entries of the next few queues."""
        if self._fresh:
            self.meta.commit(None)
            end = self.durability.end()
            self._dropped.extend((queue, end) for queue in self._fresh)
            self._fresh = []
        durable_end = self.durability.durable_end()
        batch = new_batch()
        keys = 0
        while self._dropped and keys < STEP_KEYS and self._dropped[0][1] <= durable_end:
            queue, _ = self._dropped.popleft()
            queue.dropped = True  # from here on no flush brings an entry of it
            keys += self._delete(queue.id, batch) + 1
            self._deleted.append((queue.id, self.durability.end()))
        if batch.len():
            self.queues.database.write(batch)
        self._finish()

    def _delete(self, queue_id: int, batch: WriteBatch) -> int:
        """Add the queue's deletions to the batch; how many keys were looked at."""
        cursor = self.queues.database.iterator()
        cursor.seek(run_key(queue_id, 0))
        keys: list[bytes] = []
        prefix = run_key(queue_id, 0)[:9]
        while len(keys) <= MANY_RUNS and cursor.valid() and len(key := cursor.key()) == 17 and key[:9] == prefix:
            keys.append(key)
            cursor.next()
        if len(keys) > MANY_RUNS:
            batch.delete_range(run_key(queue_id, 0), run_key(queue_id + 1, 0))
        else:
            for key in keys:
                batch.delete(key)
        return len(keys)

    def _finish(self) -> None:
        """Rows `D` go once no replay begins before the drop."""
        wrote = False
        persisted_end = self.durability.persisted_end()
        while self._deleted and self._deleted[0][1] < persisted_end:
            queue_id, _ = self._deleted.popleft()
            self.meta.delete(OWN, b"D" + _KEY64.pack(queue_id))
            self.collected += 1
            wrote = True
        if wrote:
            self.meta.commit(None)
