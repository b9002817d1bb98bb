"""`lmq store dump`: the records of the log, or the messages of one queue, as lines for people or programs. Reads only."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lmq_store.api.errors import StoreError
from lmq_store.api.model import NEVER, Message
from lmq_store.api.ports import Table
from lmq_store.api.rows import filter_row_of, u64_of
from lmq_store.embedded.consume_queue import entry_position, entry_size
from lmq_store.embedded.log_format import ENTRY, EPOCH, MESSAGE, TABLE_WRITES
from lmq_store.embedded.meta_tables import DELETE, PUT, decode_operations
from lmq_store.embedded.read_only import ReadOnlyStore
from lmq_store.embedded.record import (
    check_record,
    decode_message,
    parent_queue_id,
    record_parent,
    record_payload,
    record_queues,
    record_stored_ms,
    record_type,
)

PAYLOAD_CHARACTERS = 200
"""Of a payload in a text line."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a dump begins: at a number (queue offset, or log position where no queue is named), a position or a time."""

    number: int = 0
    position: int = 0
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One record: `queue_offset` is None where no queue is named, `message` where it is a record of the store's own."""

    position: int
    stored_ms: int
    message: Message | None
    queue_offset: int | None = None
    text: str = ""


def parse_start(text: str) -> Start:
    """`--from`: digits, an `lmq-offset` (`0-<epoch>-<position>`) or an RFC 3339 time (UTC where it names no zone).

    Raises ValueError for anything else.
    """
    if text.isdecimal():
        return Start(number=int(text))
    if text.startswith("0-") and text.count("-") == 2:
        return Start(position=int(text.rpartition("-")[2]))
    moment = datetime.fromisoformat(text)
    return Start(time_ms=int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000))


def find_queue(store: ReadOnlyStore, name: str) -> int:
    """The id of a queue by its filter, by `parent:LEVEL[:PARTITION]` (a parent topic's), or by `id:NUMBER`."""
    kind, _, rest = name.partition(":")
    if kind == "id" and rest.isdecimal():
        return int(rest)
    if store.meta is None:
        raise StoreError(f"{store.problems[0]}: name the queue by id:NUMBER")
    if kind == "parent":
        level, _, partition = rest.rpartition(":") if rest.rpartition(":")[2].isdecimal() else (rest, "", "0")
        row = store.meta.get(Table.PARENT, level.encode())
        if row is not None:
            return parent_queue_id(u64_of(row) >> 16, int(partition))
    row = store.meta.get(Table.FILTER, name.encode())
    if row is None:
        raise StoreError(f"no queue is registered for {name!r} (a filter, parent:LEVEL[:PARTITION] or id:NUMBER)")
    return filter_row_of(row)[0]


def log_lines(store: ReadOnlyStore, start: Start) -> Iterator[Line]:
    """Every record from a position or a time on."""
    first = max(start.number, start.position)
    for frame in store.log.frames(first):
        for place, position in frame.records():
            stored_ms = record_stored_ms(frame.data, place)
            if position >= first and stored_ms >= start.time_ms:
                message = decode_message(frame.data, place) if record_type(frame.data, place) == MESSAGE else None
                yield Line(position, stored_ms, message, text="" if message else _own_record(frame.data, place))


def queue_lines(store: ReadOnlyStore, queue_id: int, start: Start) -> Iterator[Line]:
    """The messages of one queue: by the index as far as it goes, then from the log behind it."""
    offset = start.number
    from_position = store.log.start
    if store.index is not None:
        for line in _indexed_lines(store, queue_id, offset):
            offset = (line.queue_offset or 0) + 1
            if line.stored_ms >= start.time_ms and line.position >= start.position:
                yield line
        from_position = store.index.checkpoint()[0]
    for frame in store.log.frames(max(from_position, start.position)):
        for place, position in frame.records():
            if record_type(frame.data, place) != MESSAGE:
                continue
            found = offset_in(frame.data, place, queue_id)
            stored_ms = record_stored_ms(frame.data, place)
            if found is not None and found >= offset and stored_ms >= start.time_ms and position >= start.position:
                yield Line(position, stored_ms, decode_message(frame.data, place), found)


def offset_in(data: bytes, place: int, queue_id: int) -> int | None:
    """The message record's offset in the queue, None where it is not in it."""
    parent_id, partition, parent_offset = record_parent(data, place)
    if parent_queue_id(parent_id, partition) == queue_id:
        return parent_offset
    for found, queue_offset in record_queues(data, place):
        if found == queue_id:
            return queue_offset
    return None


def _indexed_lines(store: ReadOnlyStore, queue_id: int, offset: int) -> Iterator[Line]:
    assert store.index is not None
    queue = store.index.queue(queue_id, b"")
    while entries := store.index.read(queue, offset, 1_000):
        for first_offset, run in entries:
            for number in range(len(run) // ENTRY):
                position, size = entry_position(run, number), entry_size(run, number)
                data = store.log.read(position, size)
                if check_record(data, 0, len(data), position) == size:
                    message = decode_message(data, 0)
                    yield Line(position, message.stored_ms, message, first_offset + number)
            offset = first_offset + len(run) // ENTRY


def as_text(line: Line) -> str:
    """One line for people: position, queue offset, time, then QoS, retain, client id, topic and payload."""
    where = f"{line.position:>12}" if line.queue_offset is None else f"{line.position:>12} {line.queue_offset:>8}"
    head = f"{where} {as_time(line.stored_ms)}"
    message = line.message
    if message is None:
        return f"{head} {line.text}"
    flags = f"q{message.qos}{'r' if message.retain else '-'}{'w' if message.will else '-'}"
    payload = _printable(message.payload, PAYLOAD_CHARACTERS)
    return f"{head} {flags} {_printable(message.client_id, 64) or '-'} {_printable(message.topic, 1_000)} {payload}"


def as_json(line: Line) -> str:
    """One JSON object. What is no UTF-8 comes as base64 under the name with `_base64` behind it."""
    found: dict[str, Any] = {"position": line.position, "stored_at": as_time(line.stored_ms)}
    if line.queue_offset is not None:
        found["queue_offset"] = line.queue_offset
    message = line.message
    if message is None:
        found["record"] = line.text
        return json.dumps(found)
    for name in ("topic", "payload", "client_id"):
        value: bytes = getattr(message, name)
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            found[f"{name}_base64"] = base64.b64encode(value).decode()
    found |= {"qos": message.qos, "retain": message.retain}
    if message.will:
        found["will"] = True
    if message.expires_ms != NEVER:
        found["expires_at"] = as_time(message.expires_ms)
    if message.properties:
        found["properties_hex"] = message.properties.hex()
    return json.dumps(found, ensure_ascii=False)


def as_time(time_ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _own_record(data: bytes, place: int) -> str:
    kind = record_type(data, place)
    payload = record_payload(data, place)
    if kind == EPOCH:
        return f"epoch {int.from_bytes(payload[:4], 'little')}"
    if kind == TABLE_WRITES:
        names = {PUT: "put", DELETE: "delete"}
        writes = [
            f"{names.get(operation, 'delete prefix')} {Table(key[0]).name if key[0] else 'OWN'} {_printable(key[1:], 100)}"
            for operation, key, _ in decode_operations(payload)
        ]
        return f"table writes: {', '.join(writes)}"
    return f"record of type {kind}"


def _printable(value: bytes, most: int) -> str:
    text = value[: most * 4].decode(errors="backslashreplace")
    text = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[:most])
    return text if len(value) <= most else f"{text}… ({len(value)} bytes)"
