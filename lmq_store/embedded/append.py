"""The append path: messages become records of the open frame, entries of their queues, and runs for who reads along. Pure.

One loop per batch does all the work per message. Nothing here waits: store.py writes the frame and syncs it.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from lmq_store.api.errors import StoreError
from lmq_store.api.model import LightQueue, Message, Run
from lmq_store.embedded.consume_queue import IndexedQueue
from lmq_store.embedded.log_format import ENTRY, FRAME_HEADER, MAX_FRAME, MAX_QUEUES, QOS_BITS, QUEUE_ENTRY, RECORD_HEADER, RETAIN_BIT
from lmq_store.embedded.recent import Recent
from lmq_store.embedded.record import message_size, put_plain

if not cython.compiled:
    from lmq_store.embedded.record import put_dispatch, put_message, put_queue, seal_record

FIRST_BUFFER = 1 << 20
OBJECT_BYTES = 400
"""What a message costs in memory beside its record: the objects and their headers."""


class Appender:
    """The open frame (`buffer[:used]`, which will lie at `frame_position`) and the queues with new entries (`dirty`).

    `cut()` writes the open frame and sets `frame_position` and `room` for the next; `load(queue)` finds the next offset of
    a queue not used before; `derive(message)` notes the rows that a retained or QoS 2 message brings with it.
    """

    __slots__ = (
        "buffer", "capacity", "cut", "derive", "dirty", "frame_position", "load", "max_record", "recent", "records", "room",
        "stored_ms", "tail_entries", "used",
    )  # fmt: skip

    def __init__(
        self, recent: Recent, cut: Callable[[], None], load: Callable[[IndexedQueue], int], derive: Callable[[Message], None]
    ) -> None:
        self.recent = recent
        self.cut = cut
        self.load = load
        self.derive = derive
        self.buffer = bytearray(FIRST_BUFFER)
        self.capacity = FIRST_BUFFER
        self.used = 0
        self.records = 0
        self.frame_position = 0
        self.room = 0
        self.max_record = 0
        self.stored_ms = 0
        self.tail_entries = 0
        self.dirty: list[IndexedQueue] = []

    def end(self) -> int:
        """The position behind the last record."""
        return self.frame_position + self.used

    def append(self, messages: list[Message], now_ms: int) -> list[Run]:
        """Encode and dispatch the messages; the runs of the queues that somebody reads."""
        runs: list[Run] = []
        if now_ms > self.stored_ms:
            self.stored_ms = now_ms
        stored_ms = self.stored_ms
        self.check(messages)
        if not messages:
            return runs
        chunk = self.recent.begin(self.begin_record(0))
        kept = chunk.messages
        chunk_bytes = 0
        for message in messages:
            route = message.route
            lights = route.lights  # type: ignore[union-attr]
            count = len(lights)
            if count > MAX_QUEUES:
                count = MAX_QUEUES
            size = message_size(message, count)
            position = self.begin_record(size)
            at = self.used
            message.position = position
            message.size = size
            message.stored_ms = stored_ms
            flags = message.qos & QOS_BITS
            if message.retain:
                flags |= RETAIN_BIT
            if message.partition >= len(route.parents):  # type: ignore[union-attr]  # made when `partitions` was lower
                message.partition %= len(route.parents)  # type: ignore[union-attr]
            parent: IndexedQueue = route.parents[message.partition]  # type: ignore[union-attr, assignment]
            queue_offset = parent.next_offset
            if queue_offset < 0:
                queue_offset = self.load(parent)
            parent.add(queue_offset, position, size, flags, stored_ms)
            if not parent.dirty:
                parent.dirty = True
                self.dirty.append(parent)
            if parent.readers:
                self.hand_over(parent, queue_offset, message, runs)
            place = put_message(self.buffer, at, message, route.parent_id, queue_offset, count)  # type: ignore[union-attr]
            for index in range(count):
                light: IndexedQueue = lights[index]  # type: ignore[assignment]
                queue_offset = light.next_offset
                if queue_offset < 0:
                    queue_offset = self.load(light)
                light.add(queue_offset, position, size, flags, stored_ms)
                if not light.dirty:
                    light.dirty = True
                    self.dirty.append(light)
                if light.readers:
                    self.hand_over(light, queue_offset, message, runs)
                put_queue(self.buffer, place, light.id, queue_offset)
                place += QUEUE_ENTRY
            seal_record(self.buffer, at, size)
            self.used = at + size
            self.records += 1
            self.tail_entries += count + 1
            kept.append(message)
            chunk_bytes += size + OBJECT_BYTES
            if flags > 1:  # retained, or QoS 2
                self.derive(message)
            if count == MAX_QUEUES:
                self.dispatch(message, lights[MAX_QUEUES:], flags, runs)
        chunk.bytes += chunk_bytes
        self.recent.bytes += chunk_bytes
        for run in runs:
            run.queue.run = None
        return runs

    def check(self, messages: list[Message]) -> None:
        """Refuse the batch, before anything of it is stored, when a message cannot be a record."""
        for message in messages:
            route = message.route
            if route is None:
                raise StoreError("a message without a route cannot be appended")
            size = message_size(message, min(len(route.lights), MAX_QUEUES))
            if size > self.max_record:
                raise StoreError(f"a record may have at most {self.max_record} bytes, not {size}")

    def begin_record(self, size: int) -> int:
        """Make room for a record of `size` bytes; its position."""
        if self.used == 0:
            self.used = FRAME_HEADER
        elif self.used + size > self.room and self.records:
            self.cut()
            if self.records == 0:  # else the disk takes nothing now: the frame grows on, and waits
                self.used = FRAME_HEADER
        return self.reserve(size)

    def reserve(self, size: int) -> int:
        """Make the buffer large enough for `size` more bytes of the open frame; the position that they will have."""
        need = self.used + size
        if need > self.capacity:
            while self.capacity < need:
                self.capacity *= 2
            self.buffer.extend(bytes(self.capacity - len(self.buffer)))
        return self.frame_position + self.used

    def dispatch(self, message: Message, lights: list[LightQueue], flags: int, runs: list[Run]) -> None:
        """Add the message to more light queues, in dispatch records behind its own, in the same frame: durable together."""
        for start in range(0, len(lights), MAX_QUEUES):
            part = lights[start : start + MAX_QUEUES]
            size = RECORD_HEADER + ENTRY + QUEUE_ENTRY * len(part)
            position = self.reserve(size)
            at = self.used
            place = put_dispatch(self.buffer, at, position, size, message, flags, len(part))
            for light in part:
                assert isinstance(light, IndexedQueue)
                queue_offset = light.next_offset if light.next_offset >= 0 else self.load(light)
                light.add(queue_offset, message.position, message.size, flags, message.stored_ms)
                if not light.dirty:
                    light.dirty = True
                    self.dirty.append(light)
                if light.readers:
                    self.hand_over(light, queue_offset, message, runs)
                put_queue(self.buffer, place, light.id, queue_offset)
                place += QUEUE_ENTRY
            seal_record(self.buffer, at, size)
            self.used = at + size
            self.records += 1
            self.tail_entries += len(part)

    def append_plain(self, record_type: int, payload: bytes, now_ms: int) -> int:
        """Add a record that is no message; its position."""
        if now_ms > self.stored_ms:
            self.stored_ms = now_ms
        size = RECORD_HEADER + len(payload)
        position = self.begin_record(size)
        put_plain(self.buffer, self.used, record_type, position, self.stored_ms, payload)
        self.used += size
        self.records += 1
        return position

    def written(self, frame_position: int, room: int) -> None:
        """The open frame is in the file; the next one begins at `frame_position` with `room` bytes before it is cut."""
        self.used = 0
        self.records = 0
        self.frame_position = frame_position
        self.room = room
        if self.capacity > 2 * MAX_FRAME:
            self.buffer = bytearray(FIRST_BUFFER)
            self.capacity = FIRST_BUFFER

    def hand_over(self, queue: IndexedQueue, queue_offset: int, message: Message, runs: list[Run]) -> None:
        """Put the message in the queue's run of this batch."""
        run = queue.run
        if run is None:
            run = Run(queue, queue_offset)
            queue.run = run
            runs.append(run)
        run.messages.append(message)
