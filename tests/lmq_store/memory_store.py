"""The naive engine: both store ports over plain lists and dicts, correct because there is nothing to it.

It is the model that property tests compare with, and the second engine that keeps the contract suite honest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from lmq_store.api.errors import DiskFull, StoreError
from lmq_store.api.model import LightQueue, Message, Pulled, Run
from lmq_store.api.ports import Bounds, Done, Popped, Table
from lmq_store.embedded.consumer_groups import ConsumerGroups


class MemoryMeta:
    """MetaStore over dicts. Writes are "durable" at the next `sync`."""

    def __init__(self, waiting: list[Done]) -> None:
        self.tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        self.waiting = waiting

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self.tables[table].get(key)

    def scan(self, table: Table, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        rows = self.tables[table]
        for key in sorted(rows):
            if key.startswith(prefix) and key >= start:
                yield key, rows[key]

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self.tables[table][bytes(key)] = bytes(value)

    def delete(self, table: Table, key: bytes) -> None:
        self.tables[table].pop(key, None)

    def delete_prefix(self, table: Table, prefix: bytes) -> None:
        for key in [key for key in self.tables[table] if key.startswith(prefix)]:
            del self.tables[table][key]

    def commit(self, done: Done | None) -> None:
        if done is not None:
            self.waiting.append(done)


class MemoryStore:
    """MessageStore over lists. A message's position is its number in the log times 100."""

    bounds = Bounds(queues_per_message=65_535, queue_name_bytes=65_535, message_bytes=1 << 28, hands_over=True)

    def __init__(self) -> None:
        self.log: list[Message] = []
        self.first = 0
        self.queues: dict[int, LightQueue] = {}
        self.entries: dict[int, list[Message]] = {}
        self.waiting: list[Done] = []
        self.meta = MemoryMeta(self.waiting)
        self.durable = 0
        self.full = False
        self.groups = ConsumerGroups(self, self.meta)

    def sync(self) -> None:
        """What is appended becomes durable; the callbacks run in order."""
        self.durable = self.end()
        ready, self.waiting[:] = list(self.waiting), []
        for done in ready:
            done(None)

    def retain_from(self, position: int) -> None:
        """Retention took everything below the position."""
        self.first = position // 100

    def append(self, messages: list[Message], now_ms: int, done: Done) -> list[Run]:
        if self.full:
            raise DiskFull("full")
        runs: dict[int, Run] = {}
        for message in messages:
            message.position = len(self.log) * 100
            message.stored_ms = max(now_ms, self.log[-1].stored_ms) if self.log else now_ms
            self.log.append(message)
            if message.retain:
                self.meta.put(Table.RETAINED, message.topic, b"%d" % (len(self.log) - 1))
                if not message.payload:
                    self.meta.delete(Table.RETAINED, message.topic)
            assert message.route is not None
            for queue in [message.route.parents[message.partition], *message.route.lights]:
                self.open_queue(queue.id, queue.name)
                entries = self.entries[queue.id]
                if queue.readers:
                    runs.setdefault(queue.id, Run(queue, len(entries))).messages.append(message)
                entries.append(message)
                queue.next_offset = len(entries)
        self.waiting.append(done)
        return list(runs.values())

    def open_queue(self, queue_id: int, name: bytes) -> LightQueue:
        self.entries.setdefault(queue_id, [])
        return self.queues.setdefault(queue_id, LightQueue(queue_id, name, len(self.entries[queue_id])))

    def drop_queue(self, queue: LightQueue) -> None:
        self.queues.pop(queue.id, None)
        self.entries.pop(queue.id, None)

    def pull(
        self, queue: LightQueue, offset: int, max_messages: int, max_bytes: int, done: Callable[[Pulled], None]
    ) -> Pulled | None:
        entries = self.entries[queue.id]
        at = max(offset, self.min_offset(queue))
        end = at
        size = 0
        while end < len(entries) and end - at < max_messages and (size == 0 or size < max_bytes):
            size += len(entries[end].payload) + len(entries[end].topic)
            end += 1
        return Pulled(entries[at:end], list(range(at, end)), max(end, min(offset, len(entries))))

    def min_offset(self, queue: LightQueue) -> int:
        return bisect_left(self.entries[queue.id], self.first * 100, key=lambda message: message.position)

    def max_offset(self, queue: LightQueue) -> int:
        return len(self.entries[queue.id])

    def load_offsets(self, queues: list[LightQueue]) -> None:
        pass

    def offset_at_time(self, queue: LightQueue, time_ms: int) -> int:
        found = bisect_left(self.entries[queue.id], time_ms, key=lambda message: message.stored_ms)
        return max(found, self.min_offset(queue))

    def offset_at_position(self, queue: LightQueue, position: int) -> int:
        found = bisect_left(self.entries[queue.id], position, key=lambda message: message.position)
        return max(found, self.min_offset(queue))

    def scan(self, position: int, max_bytes: int) -> tuple[list[Message], int]:
        first = max(-(-position // 100), self.first)
        last = min(len(self.log), first + max(1, max_bytes // 100))
        return self.log[first:last], max(position, last * 100)

    def read(self, position: int) -> Message | None:
        number, rest = divmod(position, 100)
        return self.log[number] if self.first <= number < len(self.log) and not rest else None

    def retained_message(self, row: bytes) -> Message:
        return self.log[int(row)]

    def format_position(self, position: int) -> str:
        return str(position)

    def parse_position(self, text: str) -> int:
        return int(text)

    def position_at_time(self, time_ms: int) -> int:
        return 100 * max(self.first, bisect_left(self.log, time_ms, key=lambda message: message.stored_ms))

    def end(self) -> int:
        return 100 * len(self.log)

    def durable_end(self) -> int:
        return self.durable

    def pop(
        self, queue: LightQueue, group: bytes, max_messages: int, invisible_ms: int, now_ms: int
    ) -> list[Popped]:
        return self.groups.pop(queue, group, max_messages, invisible_ms, now_ms)

    def ack(self, queue: LightQueue, group: bytes, handles: list[int]) -> None:
        self.groups.ack(queue, group, handles)

    def change_invisible(
        self, queue: LightQueue, group: bytes, handles: list[int], invisible_ms: int, now_ms: int
    ) -> None:
        self.groups.change_invisible(queue, group, handles, invisible_ms, now_ms)


def ignore(_: StoreError | None) -> None:
    """A `done` that nobody waits for."""
