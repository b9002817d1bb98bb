"""A seeded workload against an embedded store, beside a model of what it promised.

The model is the list of events in log order: a message with its queues, or a group of table writes. After a power cut the
store may hold any prefix of it that has all that was acknowledged, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from lmq_store.api.errors import DiskFull, StoreError
from lmq_store.api.model import LightQueue, Message, Route
from lmq_store.api.ports import Table
from lmq_store.api.rows import u64_row
from lmq_store.embedded.files import Files
from lmq_store.embedded.store import EmbeddedStore, StoreOptions

SEGMENT = 24 << 10
QUEUES = 8
PARENT = 1 << 40
T0 = 1_700_000_000_000


@dataclass
class Event:
    """A message in `queues` (with `payload`), or table writes (key → row, None deletes; `wiped`: all with the prefix)."""

    queues: tuple[int, ...] = ()
    payload: bytes = b""
    retained_topic: bytes = b""
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    wiped: bytes | None = None
    dropped: tuple[int, int] | None = None
    """(the queue that is gone, the one that takes its place)."""


class Workload:
    """Drives a store, remembers what was asked for and what was acknowledged. Goes on over crashes with `open`."""

    def __init__(self, seed: int, **options: int | str) -> None:
        self.random = Random(seed)
        self.options = options
        self.events: list[Event] = []
        self.acknowledged = 0
        """So many events, from the first on, must be there whatever happens."""
        self.refused = 0
        self.now_ms = T0
        self.number = 0
        self.last_queue = QUEUES
        self.store: EmbeddedStore

    def open(self, folder: str, files: Files | None, repair: bool = False) -> None:
        options = StoreOptions(segment_bytes=SEGMENT, repair=repair, **({"min_free_bytes": 0} | self.options))  # type: ignore[arg-type]
        self.store = EmbeddedStore.open(folder, options, files=files, now_ms=self.now_ms)
        self.store.retention.deletes_beside = False

    # --- doing ---

    def step(self) -> None:
        """One random thing that a proxy does."""
        self.now_ms += self.random.randrange(400)
        what = self.random.randrange(12)
        if what < 6:
            self.append()
        elif what < 8:
            self.random.choice((self.write_rows, self.write_rows, self.wipe_rows, self.drop_queue))()
        elif what < 10:
            self.store.flush()
        elif what == 10:
            self.settle()
        else:
            self.store.tick(self.now_ms)
            if self.random.random() < 0.5:
                self.store.upkeep.join()
        self.store.on_sync_ready()

    def append(self) -> None:
        messages, events = [], []
        for _ in range(self.random.randrange(1, 8)):
            message, event = self._message()
            messages.append(message)
            events.append(event)
        upto = len(self.events) + len(events)
        self.events += events  # before the call: the power may go within it
        try:
            self.store.append(messages, self.now_ms, lambda error: self._acknowledge(error, upto))
        except DiskFull:
            self.refused += len(events)
            del self.events[-len(events) :]

    def write_rows(self) -> None:
        writes: dict[bytes, bytes | None] = {}
        for _ in range(self.random.randrange(1, 5)):
            key = b"k%d" % self.random.randrange(20)
            writes[key] = None if self.random.random() < 0.2 else u64_row(self._next())
        for key, row in writes.items():
            if row is None:
                self.store.meta.delete(Table.COUNTER, key)
            else:
                self.store.meta.put(Table.COUNTER, key, row)
        self._commit(Event(writes=writes))

    def wipe_rows(self) -> None:
        """Delete by prefix, and write one of the deleted keys again."""
        prefix, key, row = b"k1", b"k1%d" % self.random.randrange(10), u64_row(self._next())
        self.store.meta.delete_prefix(Table.COUNTER, prefix)
        self.store.meta.put(Table.COUNTER, key, row)
        self._commit(Event(writes={key: row}, wiped=prefix))

    def drop_queue(self) -> None:
        """A filter goes and another one comes: ids are never used twice."""
        old, new = self.random.choice(self.live(len(self.events))), self._next_queue()
        row = u64_row(new)
        self.store.meta.put(Table.COUNTER, b"queues", row)
        self.store.drop_queue(self.queue(old))
        self._commit(Event(writes={b"queues": row}, dropped=(old, new)))

    def _commit(self, event: Event) -> None:
        self.events.append(event)
        upto = len(self.events)
        self.store.meta.commit(lambda error: self._acknowledge(error, upto))

    def _next_queue(self) -> int:
        self.last_queue += 1
        return self.last_queue

    def live(self, end: int) -> list[int]:
        """The queues that are there after so many events."""
        found = set(range(1, QUEUES + 1))
        for event in self.events[:end]:
            if event.dropped is not None:
                found.remove(event.dropped[0])
                found.add(event.dropped[1])
        return sorted(found)

    def settle(self) -> None:
        self.store.flush()
        self.store.on_sync_ready()

    def _message(self) -> tuple[Message, Event]:
        queue_ids = tuple(sorted(self.random.sample(self.live(len(self.events)), self.random.randrange(4))))
        retain = self.random.random() < 0.1
        topic = b"t/%d" % self.random.randrange(5)
        payload = b"%d " % self._next() + bytes(self.random.randrange(self.random.choice((10, 500, 3_000))))
        if retain and self.random.random() < 0.3:
            payload = b""  # clears what is retained [MQTT-3.3.1-6]
        message = Message(topic, payload, 1, retain)
        message.route = Route(topic, 0, [self.queue(PARENT)], [self.queue(queue_id) for queue_id in queue_ids])
        return message, Event((PARENT, *queue_ids), payload, topic if retain else b"")

    def queue(self, queue_id: int) -> LightQueue:
        return self.store.open_queue(queue_id, b"queue %d" % queue_id)

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _acknowledge(self, error: StoreError | None, upto: int) -> None:
        if error is None:
            assert upto > self.acknowledged
            self.acknowledged = upto

    # --- looking ---

    def verify(self) -> None:
        """The store holds a prefix of the events with all acknowledged ones; the model is cut to it."""
        count = self._surviving_messages()
        ends = [end for end in range(self.acknowledged, len(self.events) + 1) if self._messages(end) == count]
        assert ends, f"{count} messages are there; {self._messages(self.acknowledged)} were acknowledged"
        rows = dict(self.store.meta.scan(Table.COUNTER, b""))
        retained = {
            topic: self.store.retained_message(row).payload for topic, row in self.store.meta.scan(Table.RETAINED, b"")
        }
        end = next((end for end in ends if self._rows(end) == rows), None)
        assert end is not None, "the tables are not those of any moment that fits the messages"
        assert retained == self._retained(end)
        del self.events[end:]
        for queue_id in (PARENT, *self.live(end)):
            self._verify_queue(queue_id)
        self.acknowledged = end

    def _verify_queue(self, queue_id: int) -> None:
        expected = [event.payload for event in self.events if queue_id in event.queues]
        queue = self.queue(queue_id)
        assert self.store.max_offset(queue) == len(expected)
        low = self.store.min_offset(queue)
        pulled = self.store.pull(queue, 0, 1_000_000, 1 << 30, lambda _: None)
        assert pulled is not None
        assert pulled.offsets == list(range(low, len(expected)))
        assert [message.payload for message in pulled.messages] == expected[low:]
        if queue_id == PARENT and low:
            kept = int(self.options["retention_bytes"]) - 2 * SEGMENT
            assert sum(message.size for message in pulled.messages) >= kept, "retention took what is not old"

    def _surviving_messages(self) -> int:
        """How many messages the log ever had, by the parent queue that every message is in."""
        return self.store.max_offset(self.queue(PARENT))

    def _messages(self, end: int) -> int:
        return sum(1 for event in self.events[:end] if event.queues)

    def _rows(self, end: int) -> dict[bytes, bytes]:
        rows: dict[bytes, bytes] = {}
        for event in self.events[:end]:
            if event.wiped is not None:
                rows = {key: row for key, row in rows.items() if not key.startswith(event.wiped)}
            for key, row in event.writes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        return rows

    def _retained(self, end: int) -> dict[bytes, bytes]:
        kept = {event.retained_topic: event.payload for event in self.events[:end] if event.retained_topic}
        return {topic: payload for topic, payload in kept.items() if payload}
