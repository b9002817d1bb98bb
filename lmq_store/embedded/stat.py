"""`lmq store stat`: what a store holds: segments, queues, and how far each subscription and group is behind. Reads only."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass, field
from typing import Any

from lmq_store.api.ports import Table
from lmq_store.api.rows import OffsetRow, SessionRow, SubscriptionRow, filter_of, filter_row_of, offset_key, u64_of
from lmq_store.embedded.consumer_groups import parse_group_key
from lmq_store.embedded.dump import as_time
from lmq_store.embedded.files import Files
from lmq_store.embedded.light_queues import parse_run_key, run_key
from lmq_store.embedded.log_format import ENTRY, FRAME_HEADER, MESSAGE, RECORD_HEADER
from lmq_store.embedded.meta_tables import MetaTables
from lmq_store.embedded.pop import decode_row
from lmq_store.embedded.read_only import ReadOnlyStore
from lmq_store.embedded.record import (
    frame_header_length,
    parent_queue_id,
    record_parent,
    record_queues,
    record_stored_ms,
    record_type,
)

_KEY64 = struct.Struct(">Q")


@dataclass(slots=True)
class SegmentStat:
    base: int
    bytes: int
    first_stored_ms: int | None
    """None while the segment has no record."""


@dataclass(slots=True)
class QueueStat:
    """Offsets `min_offset` up to, not including, `max_offset`."""

    id: int
    name: str
    min_offset: int = 0
    max_offset: int = 0

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(slots=True)
class SubscriptionStat:
    """How many messages of its queue a stored session, or a group (`client_id` None), has not consumed yet."""

    client_id: str | None
    name: str
    group: str | None
    queue_id: int
    next_offset: int | None
    lag: int | None
    unacked: int = 0


@dataclass(slots=True)
class StoreStat:
    directory: str
    running: bool
    start: int
    end: int
    index_checkpoint: int
    meta_checkpoint: int
    problems: list[str]
    segments: list[SegmentStat] = field(default_factory=list)
    queues: list[QueueStat] = field(default_factory=list)
    subscriptions: list[SubscriptionStat] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def stat(directory: str, files: Files | None = None) -> StoreStat:
    """Look at the store in `directory`. Raises StoreError when the folder is none."""
    store = ReadOnlyStore(directory, files)
    try:
        index_checkpoint = store.index.checkpoint()[0] if store.index is not None else 0
        meta_checkpoint = store.meta.checkpoint() if store.meta is not None else 0
        queues = _queues(store, index_checkpoint)
        log = store.log
        found = StoreStat(
            directory, store.running, log.start, log.end, index_checkpoint, meta_checkpoint, store.problems,
            [
                SegmentStat(one.base, one.size if not one.last else log.end - one.base, _first_stored_ms(store, one.base))
                for one in log.segments
            ],
            sorted(queues.values(), key=lambda queue: queue.id),
        )  # fmt: skip
        if store.meta is not None:
            found.subscriptions = _subscriptions(store.meta, queues) + _groups(store.meta, queues)
            found.rows = {table.name: sum(1 for _ in store.meta.scan(table, b"")) for table in Table}
    finally:
        store.close()
    return found


def _first_stored_ms(store: ReadOnlyStore, base: int) -> int | None:
    head = store.log.read(base, FRAME_HEADER + RECORD_HEADER)
    if len(head) < FRAME_HEADER + RECORD_HEADER or frame_header_length(head, 0, len(head), base) < 0:
        return None
    return record_stored_ms(head, FRAME_HEADER)


def _queues(store: ReadOnlyStore, checkpoint: int) -> dict[int, QueueStat]:
    """The queues that have messages or are registered: by the index, and the log behind its checkpoint."""
    names = _queue_names(store.meta) if store.meta is not None else {}
    queues = {queue_id: QueueStat(queue_id, name) for queue_id, name in names.items() if queue_id < 1 << 40}
    if store.meta is not None:
        for queue in queues.values():
            queue.min_offset = queue.max_offset = store.meta.high_water(queue.id)
    if store.index is not None:
        cursor = store.index.database.iterator()
        cursor.seek(run_key(0, 0))
        while cursor.valid() and len(key := cursor.key()) == 17 and key[:1] == b"Q":
            queue_id, first_offset = parse_run_key(key)
            queue = queues.setdefault(queue_id, QueueStat(queue_id, names.get(queue_id, "")))
            last = store.index.last_run(queue_id)
            queue.min_offset = first_offset
            queue.max_offset = first_offset if last is None else last[0] + len(last[1]) // ENTRY
            cursor.seek(run_key(queue_id + 1, 0))
    for frame in store.log.frames(max(checkpoint, store.log.start)):
        for place, position in frame.records():
            if record_type(frame.data, place) != MESSAGE or position < checkpoint:
                continue
            parent_id, partition, offset = record_parent(frame.data, place)
            _count(queues, names, parent_queue_id(parent_id, partition), offset)
            for queue_id, offset in record_queues(frame.data, place):
                _count(queues, names, queue_id, offset)
    return queues


def _count(queues: dict[int, QueueStat], names: dict[int, str], queue_id: int, offset: int) -> None:
    queue = queues.get(queue_id)
    if queue is None:
        queue = queues[queue_id] = QueueStat(queue_id, names.get(queue_id, ""), offset, offset)
    elif queue.messages == 0:
        queue.min_offset = offset
    queue.max_offset = max(queue.max_offset, offset + 1)


def _queue_names(meta: MetaTables) -> dict[int, str]:
    names = {}
    for key, row in meta.scan(Table.FILTER, b""):
        names[filter_row_of(row)[0]] = key.decode(errors="backslashreplace")
    for key, row in meta.scan(Table.PARENT, b""):
        parent_id, partitions = u64_of(row) >> 16, u64_of(row) & 0xFFFF
        for partition in range(partitions):
            level = key.decode(errors="backslashreplace")
            names[parent_queue_id(parent_id, partition)] = f"parent:{level}:{partition}"
    return names


def _subscriptions(meta: MetaTables, queues: dict[int, QueueStat]) -> list[SubscriptionStat]:
    clients = {SessionRow.decode(row).session_id: key for key, row in meta.scan(Table.SESSION, b"")}
    found = []
    for key, row in meta.scan(Table.SUBSCRIPTION, b""):
        session_id = _KEY64.unpack_from(key)[0]
        queue_id = SubscriptionRow.decode(row).queue_id
        name = filter_of(key).decode(errors="backslashreplace")
        if name.startswith("$share/"):
            continue  # its group has the offset
        offset_row = meta.get(Table.OFFSET, offset_key(session_id, queue_id))
        next_offset = None if offset_row is None else OffsetRow.decode(offset_row).next_offset
        client = clients.get(session_id, b"?").decode(errors="backslashreplace")
        found.append(SubscriptionStat(client, name, None, queue_id, next_offset, _lag(queues.get(queue_id), next_offset)))
    return found


def _groups(meta: MetaTables, queues: dict[int, QueueStat]) -> list[SubscriptionStat]:
    found = []
    for key, row in meta.scan(Table.GROUP, b"\0"):
        parsed = parse_group_key(key)
        if parsed is None:
            continue
        queue_id, group = parsed
        state = decode_row(row)
        queue = queues.get(queue_id)
        found.append(
            SubscriptionStat(
                None,
                queue.name if queue is not None else "",
                group.decode(errors="backslashreplace"),
                queue_id,
                state.committed_offset,
                (_lag(queue, state.next_offset) or 0) + len(state.unacked),
                len(state.unacked),
            )
        )
    return found


def _lag(queue: QueueStat | None, next_offset: int | None) -> int | None:
    """Messages that are there and not consumed; None where the offset is not known."""
    if next_offset is None or queue is None:
        return None
    return max(0, queue.max_offset - max(next_offset, queue.min_offset))


def as_text(found: StoreStat, top: int) -> list[str]:
    """The figures as lines; the `top` longest queues and the `top` subscriptions that are most behind."""
    lines = [
        f"{found.directory}: {'a server is running on it' if found.running else 'no server is running on it'}",
        f"log: {found.end - found.start} bytes, positions {found.start} to {found.end}, in {len(found.segments)} segments",
        f"index: up to position {found.index_checkpoint}; tables: up to position {found.meta_checkpoint}",
        *found.problems,
    ]
    for segment in found.segments:
        since = "empty" if segment.first_stored_ms is None else f"since {as_time(segment.first_stored_ms)}"
        lines.append(f"  segment {segment.base:020d} {segment.bytes:>12} bytes {since}")
    lines.append(f"queues: {len(found.queues)}, {sum(queue.messages for queue in found.queues)} entries")
    lines += [
        f"  {queue.messages:>10} messages, offsets {queue.min_offset} to {queue.max_offset}  {queue.name or f'id:{queue.id}'}"
        for queue in sorted(found.queues, key=lambda queue: -queue.messages)[:top]
    ]
    lines.append(f"subscriptions: {len(found.subscriptions)}")
    for one in sorted(found.subscriptions, key=lambda one: -(one.lag or 0))[:top]:
        who = f"group {one.group} ({one.unacked} unacknowledged)" if one.group is not None else one.client_id
        lines.append(f"  {'?' if one.lag is None else one.lag:>10} behind  {who}  {one.name}")
    lines.append("rows: " + ", ".join(f"{name.lower()} {count}" for name, count in found.rows.items() if count))
    return lines
