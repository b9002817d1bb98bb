"""The MetaStore over the same log: writes are records of the log, the tables in RocksDB are derived from them.

A write is visible at once (an overlay in memory) and goes to RocksDB only once its record is durable, together with the
checkpoint, so that the tables never run ahead of the log. Key in RocksDB: table u8, key. Table 0 is the store's own:
`C` → checkpoint, `E` epoch u32 → its start, `H` queue id u64 → high-water mark, `D` queue id u64 → being collected.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator

from lmq_store.api.model import Message
from lmq_store.api.ports import Done, Table
from lmq_store.api.rows import RECEIVED
from lmq_store.embedded.record import encode_message
from lmq_store.embedded.rocks import Database, new_batch

OWN = 0
"""The store's own table."""
PUT = 1
DELETE = 2
DELETE_PREFIX = 3
MANY_KEYS = 1_000
"""A prefix with more keys is deleted as a range."""

CHECKPOINT = bytes((OWN,)) + b"C"

_HEAD = struct.Struct("<BBH")
_LENGTH = struct.Struct("<I")
_EVENT = struct.Struct("<BH")
_U64 = struct.Struct("<Q")
_KEY64 = struct.Struct(">Q")
_KEY64_64 = struct.Struct(">QQ")

Operation = tuple[int, bytes, bytes]
"""(PUT, DELETE or DELETE_PREFIX, table byte + key, value)."""


def encode_operations(operations: list[Operation]) -> bytes:
    """The payload of a table-writes record."""
    parts: list[bytes] = []
    for kind, key, value in operations:
        parts += (_HEAD.pack(key[0], kind, len(key) - 1), key[1:], _LENGTH.pack(len(value)), value)
    return b"".join(parts)


def decode_operations(payload: bytes) -> list[Operation]:
    """The operations of a table-writes record. Raises ValueError or struct.error on bytes that are none."""
    operations: list[Operation] = []
    at = 0
    while at < len(payload):
        table, kind, key_length = _HEAD.unpack_from(payload, at)
        at += _HEAD.size
        key = bytes((table,)) + payload[at : at + key_length]
        at += key_length
        length = _LENGTH.unpack_from(payload, at)[0]
        at += _LENGTH.size
        operations.append((kind, key, payload[at : at + length]))
        at += length
    if at != len(payload):
        raise ValueError("table writes are cut short")
    return operations


def retained_operation(message: Message, parent_id: int) -> Operation:
    """What a PUBLISH with the retain flag does to RETAINED [MQTT-3.3.1-5], [MQTT-3.3.1-6]."""
    key = bytes((Table.RETAINED,)) + message.topic
    if not message.payload:
        return DELETE, key, b""
    return PUT, key, _U64.pack(message.position) + encode_message(message, parent_id)


class ReceivedIds:
    """The QoS 2 packet ids of consecutive messages: one journal row for each session, at its first message's position."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, bytearray]] = {}

    def add(self, message: Message) -> None:
        """The message is stored: its packet id is taken until its release."""
        row = self._rows.get(message.session_id)
        if row is None:
            row = self._rows[message.session_id] = (message.position, bytearray())
        row[1].extend(_EVENT.pack(RECEIVED, message.packet_id))

    def take(self) -> list[Operation]:
        """The journal rows; the next message begins new ones."""
        rows, self._rows = self._rows, {}
        head = bytes((Table.JOURNAL,))
        return [(PUT, head + _KEY64_64.pack(session_id, position), bytes(events)) for session_id, (position, events) in rows.items()]

    def __len__(self) -> int:
        return len(self._rows)


class _Overlay:
    """Writes that RocksDB does not have yet: the last one of each key wins, a prefix delete hides what is before it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[int, bytes | None]] = {}
        self.keys: list[bytes] = []
        self.prefixes: dict[bytes, int] = {}
        self.lengths: dict[int, int] = {}

    def add(self, sequence: int, operation: Operation) -> None:
        kind, key, value = operation
        if kind == DELETE_PREFIX:
            for one in self.matching(key):
                self.rows[one] = (sequence, None)
            if key not in self.prefixes:
                self.lengths[len(key)] = self.lengths.get(len(key), 0) + 1
            self.prefixes[key] = sequence
            return
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = (sequence, value if kind == PUT else None)

    def hidden(self, key: bytes) -> bool:
        """Is the key, which has no row here, deleted by a prefix?"""
        return bool(self.prefixes) and any(key[:length] in self.prefixes for length in self.lengths)

    def matching(self, prefix: bytes, start: bytes = b"") -> list[bytes]:
        found = []
        at = bisect_left(self.keys, max(prefix, start))
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            found.append(self.keys[at])
            at += 1
        return found

    def remove(self, sequence: int, operation: Operation) -> None:
        """The operation with this sequence number is in RocksDB now."""
        kind, key, _ = operation
        if kind == DELETE_PREFIX:
            if self.prefixes.get(key) == sequence:
                del self.prefixes[key]
                self.lengths[len(key)] -= 1
                if not self.lengths[len(key)]:
                    del self.lengths[len(key)]
            keys = self.matching(key)
        else:
            keys = [key]
        for one in keys:
            row = self.rows.get(one)
            if row is not None and row[0] == sequence:
                del self.rows[one]
                del self.keys[bisect_left(self.keys, one)]


class MetaTables:
    """MetaStore of the embedded store. `queued` holds writes that are in no record yet."""

    def __init__(self, database: Database, commit: Callable[[Done | None], None]) -> None:
        self.database = database
        self._commit = commit
        self.queued: list[Operation] = []
        self.applied_position = 0
        self._overlay = _Overlay()
        self._sequence = 0
        self._waiting: deque[tuple[int, int, Operation]] = deque()
        """(end of the record, sequence, operation), in log order."""
        self._unplaced: list[tuple[int, Operation]] = []
        self._received = ReceivedIds()

    # --- the port ---

    def get(self, table: int, key: bytes) -> bytes | None:
        full = bytes((table,)) + key
        row = self._overlay.rows.get(full)
        if row is not None:
            return row[1]
        if self._overlay.hidden(full):
            return None
        return self.database.get(full)

    def scan(self, table: int, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with `prefix`, from `start` on, as they are at the call."""
        head = bytes((table,))
        overlay = self._overlay
        mine = [(key, overlay.rows[key][1]) for key in overlay.matching(head + prefix, head + start)]
        stored = self.database.range(head + prefix, head + start)
        prefixes, lengths = set(overlay.prefixes), list(overlay.lengths)
        return _merge(mine, stored, prefixes, lengths)

    def put(self, table: int, key: bytes, value: bytes) -> None:
        self._queue((PUT, bytes((table,)) + key, value))

    def delete(self, table: int, key: bytes) -> None:
        self._queue((DELETE, bytes((table,)) + key, b""))

    def delete_prefix(self, table: int, prefix: bytes) -> None:
        self._queue((DELETE_PREFIX, bytes((table,)) + prefix, b""))

    def commit(self, done: Done | None) -> None:
        """Put what is queued into the log; `done(None)` once it, and everything appended before, is durable."""
        self._commit(done)

    def _queue(self, operation: Operation) -> None:
        self.queued.append(operation)
        self._sequence += 1
        self._overlay.add(self._sequence, operation)
        self._unplaced.append((self._sequence, operation))

    # --- the store's side ---

    def placed(self, record_end: int) -> None:
        """The queued writes are in the record that ends there."""
        self.queued = []
        for sequence, operation in self._unplaced:
            self._waiting.append((record_end, sequence, operation))
        self._unplaced = []

    def derive(self, message: Message, parent_id: int) -> None:
        """Note the rows that a stored message brings with it: retained, or a QoS 2 packet id."""
        if message.retain:
            self.note(message.position + message.size, retained_operation(message, parent_id))
        if message.qos == 2 and message.session_id:
            self._received.add(message)

    def end_batch(self, end: int) -> None:
        """What was derived up to the position `end` is complete. Needed before a frame ends, and before other table writes."""
        if self._received:
            for operation in self._received.take():
                self.note(end, operation)

    def note(self, record_end: int, operation: Operation) -> None:
        """A write that another record stands for: the one that ends there."""
        self._sequence += 1
        self._overlay.add(self._sequence, operation)
        self._waiting.append((record_end, self._sequence, operation))

    def apply(self, durable_end: int) -> None:
        """Write to RocksDB what the durable log says, and the checkpoint with it."""
        waiting = self._waiting
        if not waiting or waiting[0][0] > durable_end:
            return
        operations: list[tuple[int, Operation]] = []
        while waiting and waiting[0][0] <= durable_end:
            _, sequence, operation = waiting.popleft()
            operations.append((sequence, operation))
        self.write([operation for _, operation in operations], durable_end)
        if not waiting and not self._unplaced:
            self._overlay = _Overlay()
            return
        for sequence, operation in operations:
            self._overlay.remove(sequence, operation)

    def write(self, operations: list[Operation], checkpoint: int) -> None:
        """Bring the operations into RocksDB, in order."""
        batch = new_batch()
        for kind, key, value in operations:
            if kind == PUT:
                batch.put(key, value)
            elif kind == DELETE:
                batch.delete(key)
            else:
                if batch.len():
                    self.database.write(batch)
                    batch = new_batch()
                keys = []
                for one, _ in self.database.range(key):
                    keys.append(one)
                    if len(keys) > MANY_KEYS:
                        break
                if len(keys) > MANY_KEYS:
                    batch.delete_range(key, after_prefix(key))
                else:
                    for one in keys:
                        batch.delete(one)
        batch.put(CHECKPOINT, _U64.pack(checkpoint))
        self.database.write(batch)
        self.applied_position = checkpoint

    def checkpoint(self) -> int:
        row = self.database.get(CHECKPOINT)
        return 0 if row is None else int(_U64.unpack(row)[0])

    def advance(self, durable_end: int) -> None:
        """Move the checkpoint although nothing waits, so that a replay need not go over messages without rows."""
        if not self._waiting and not self._unplaced and durable_end > self.applied_position:
            self.write([], durable_end)

    def high_water(self, queue_id: int) -> int:
        """The next offset that was saved for the queue before its last record left the log."""
        row = self.get(OWN, b"H" + _KEY64.pack(queue_id))
        return 0 if row is None else int(_U64.unpack(row)[0])


    def highest_marked(self) -> int:
        """The highest light queue id with a high-water mark or a row of its deletion."""
        highest = 0
        for kind in (b"H", b"D"):
            cursor = self.database.iterator()
            cursor.seek_for_prev(bytes((OWN,)) + kind + _KEY64.pack((1 << 40) - 1))
            if cursor.valid() and cursor.key()[:2] == bytes((OWN,)) + kind:
                highest = max(highest, _KEY64.unpack_from(cursor.key(), 2)[0])
        return highest


def after_prefix(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b"\xff" * 64


def _merge(
    mine: list[tuple[bytes, bytes | None]], stored: Iterator[tuple[bytes, bytes]], prefixes: set[bytes], lengths: list[int]
) -> Iterator[tuple[bytes, bytes]]:
    """Join two sorted lists of rows; `mine` wins, None hides."""
    if not mine and not prefixes:
        for key, value in stored:
            yield key[1:], value
        return
    at = 0
    for key, value in stored:
        while at < len(mine) and mine[at][0] < key:
            if mine[at][1] is not None:
                yield mine[at][0][1:], mine[at][1]  # type: ignore[misc]
            at += 1
        if at < len(mine) and mine[at][0] == key:
            if mine[at][1] is not None:
                yield key[1:], mine[at][1]  # type: ignore[misc]
            at += 1
        elif not any(key[:length] in prefixes for length in lengths):
            yield key[1:], value
    for key, row in mine[at:]:
        if row is not None:
            yield key[1:], row
