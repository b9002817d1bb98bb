"""Opening a folder after whatever happened to it: find the log's intact end, replay what the tables have not seen.

From the lower checkpoint on every frame is checked. Bytes that are no intact frame are a torn tail, and cut, unless a later
intact frame says that more than this was durable when it was written: then it is corruption, and the folder is refused.
"""

from __future__ import annotations

import logging
import struct
from typing import Protocol

from lmq_store.api.errors import CorruptionError
from lmq_store.embedded.append import Appender
from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.consume_queue import entry_flags, entry_position, entry_size, entry_stored_ms
from lmq_store.embedded.frame import frames, last_byte, later_synced_frame
from lmq_store.embedded.light_queues import LightQueues
from lmq_store.embedded.log_format import (
    DISPATCH,
    EPOCH,
    FAULTS,
    FRAME_HEADER,
    MESSAGE,
    QOS_BITS,
    RETAIN_BIT,
    TABLE_WRITES,
)
from lmq_store.embedded.meta_tables import (
    OWN,
    PUT,
    MetaTables,
    Operation,
    ReceivedIds,
    decode_operations,
    retained_operation,
)
from lmq_store.embedded.record import (
    decode_message,
    parent_queue_id,
    record_flags,
    record_parent,
    record_payload,
    record_queues,
    record_size,
    record_stored_ms,
    record_type,
)
from lmq_store.embedded.segment import Segment

REPLAY_STEP = 100_000
"""Entries and table writes that gather before they go to RocksDB."""

_EPOCH = struct.Struct("<IQ")
_EPOCH_KEY = struct.Struct(">cI")
_U64 = struct.Struct("<Q")
_KEY64 = struct.Struct(">Q")
_DROPPED = bytes((OWN,)) + b"D"

logger = logging.getLogger(__name__)


def epoch_payload(epoch: int, start: int) -> bytes:
    return _EPOCH.pack(epoch, start)


def epoch_operation(epoch: int, start: int) -> Operation:
    return PUT, bytes((OWN,)) + _EPOCH_KEY.pack(b"E", epoch), _U64.pack(start)


def epochs(meta: MetaTables) -> list[tuple[int, int]]:
    """(epoch, the position it started at), oldest first."""
    return [(_EPOCH_KEY.unpack(key)[1], _U64.unpack(row)[0]) for key, row in meta.scan(OWN, b"E")]


class Repair(Protocol):
    """What to do about corruption instead of refusing the folder (repair.py)."""

    def mend(self, log: CommitLog, position: int, segment: Segment, stored_ms: int) -> None:
        """Make intact frames of what lies between `position` and the segment's next intact frame, or its end.

        `stored_ms` is when the record before was stored.
        """
        ...

    def lost(self, position: int, end: int, why: str) -> None:
        """Report bytes that are not kept."""
        ...


class Replay:
    """Brings records into the queues' tails and the tables, as the append path did when they were written."""

    __slots__ = ("appender", "dropped", "index_from", "meta", "meta_from", "operations", "queues", "received", "records")

    def __init__(self, appender: Appender, queues: LightQueues, meta: MetaTables) -> None:
        self.appender = appender
        self.queues = queues
        self.meta = meta
        self.index_from, stored_ms = queues.checkpoint()
        appender.stored_ms = max(appender.stored_ms, stored_ms)
        self.meta_from = meta.checkpoint()
        self.dropped = {_KEY64.unpack_from(key, 1)[0] for key, _ in meta.scan(OWN, b"D")}
        """Queues that were being deleted: their entries must not come back."""
        self.operations: list[Operation] = []
        self.received = ReceivedIds()
        self.records = 0

    def frame(self, data: bytes, at: int, length: int, position: int) -> None:
        """Replay an intact frame that lies at `position`."""
        stop = at + length
        place = at + FRAME_HEADER
        last = place
        base = position - at
        index = position >= self.index_from
        tables = position >= self.meta_from
        if not (index or tables):  # only to be checked
            return
        while place < stop:
            kind = record_type(data, place)
            if kind == MESSAGE:
                if index:
                    self._index(data, place, base + place)
                if tables and record_flags(data, place) & (RETAIN_BIT | 2):
                    self._derive(data, place)
            else:
                self._plain(data, place, kind, index, tables)
            self.records += 1
            last = place
            place += record_size(data, place)
        self.operations += self.received.take()
        self.appender.stored_ms = max(self.appender.stored_ms, record_stored_ms(data, last))
        if index:
            self.queues.mark_time(position + length, self.appender.stored_ms)
        if self.appender.tail_entries > REPLAY_STEP or len(self.operations) > REPLAY_STEP:
            self.flush(position + length)

    def _index(self, data: bytes, place: int, position: int) -> None:
        size = record_size(data, place)
        flags = record_flags(data, place) & (QOS_BITS | RETAIN_BIT)
        stored_ms = record_stored_ms(data, place)
        parent_id, partition, parent_offset = record_parent(data, place)
        self._add(parent_queue_id(parent_id, partition), parent_offset, position, size, flags, stored_ms)
        for queue_id, queue_offset in record_queues(data, place):
            self._add(queue_id, queue_offset, position, size, flags, stored_ms)

    def _plain(self, data: bytes, place: int, kind: int, index: bool, tables: bool) -> None:
        """A record that is no message."""
        if kind == TABLE_WRITES and (tables or index):
            self.operations += self.received.take()
            for operation in decode_operations(record_payload(data, place)):
                if operation[0] == PUT and operation[1][:2] == _DROPPED:
                    self._drop(_KEY64.unpack_from(operation[1], 2)[0])
                if tables:
                    self.operations.append(operation)
        elif kind == EPOCH and tables:
            self.operations.append(epoch_operation(*_EPOCH.unpack(record_payload(data, place))))
        elif kind == DISPATCH and index:
            entry = record_payload(data, place)
            for queue_id, queue_offset in record_queues(data, place):
                self._add(
                    queue_id, queue_offset, entry_position(entry, 0), entry_size(entry, 0), entry_flags(entry, 0), entry_stored_ms(entry, 0)
                )

    def _add(self, queue_id: int, queue_offset: int, position: int, size: int, flags: int, stored_ms: int) -> None:
        queue = self.queues.open.get(queue_id)
        if queue is None:
            if queue_id in self.dropped:
                return
            queue = self.queues.queue(queue_id, b"")
        if queue.tail_count and queue_offset != queue.next_offset:
            self.flush(position)
        queue.add(queue_offset, position, size, flags, stored_ms)
        self.appender.tail_entries += 1
        if not queue.dirty:
            queue.dirty = True
            self.appender.dirty.append(queue)

    def _drop(self, queue_id: int) -> None:
        self.dropped.add(queue_id)
        queue = self.queues.open.pop(queue_id, None)
        if queue is not None:
            queue.dropped = True

    def _derive(self, data: bytes, place: int) -> None:
        message = decode_message(data, place)
        if message.retain:
            self.operations.append(retained_operation(message, record_parent(data, place)[0]))
        if message.qos == 2 and message.session_id:
            self.received.add(message)

    def flush(self, end: int) -> None:
        """Move what has gathered to RocksDB; everything below `end` has been replayed."""
        if end > self.meta_from:
            self.meta.write(self.operations, end)
        self.operations = []
        while end > self.index_from and not self.queues.flush_step(self.appender, end, REPLAY_STEP):
            pass


def recover(log: CommitLog, replay: Replay, start: int, repair: Repair | None = None) -> int:
    """Check and replay the log from the frame at `start`; the position where it ends intact.

    Raises CorruptionError, unless `repair` is there to mend the places.
    """
    position = start
    segments = [one for one in log.segments if one.end > start or one is log.active]
    for segment in segments:
        position = max(position, segment.base)
        while position < segment.end:
            fault = 0
            for data, at, length in frames(log, position, segment.end):
                if length < 0:
                    fault = length
                    break
                replay.frame(data, at, length, position)
                position += length
            if position == segment.end:
                break
            later = later_synced_frame(log, position)
            if later is None and position >= max(replay.index_from, replay.meta_from):
                return _torn(log, position)
            if repair is None:
                raise CorruptionError(_corrupt(log, position, fault, later) + "; --repair keeps all that is readable")
            if later is None:
                repair.lost(position, last_byte(log, position), "the log ends here, before what the tables know")
                return position
            repair.mend(log, position, segment, replay.appender.stored_ms)
    return position


def _torn(log: CommitLog, position: int) -> int:
    torn = last_byte(log, position) - position
    if torn:
        logger.warning("log cut at position %d: %d bytes of a torn tail dropped, never acknowledged", position, torn)
    return position


def _corrupt(log: CommitLog, position: int, fault: int, later: int | None) -> str:
    segment = log.segment_at(position)
    place = f"{segment.path} byte {position - segment.base}" if segment is not None else "the log"
    why = f"an intact frame follows at position {later}" if later is not None else "the tables know what came after it"
    return f"{place} (position {position}): frame {FAULTS.get(fault, 'is bad')}, although {why}"
