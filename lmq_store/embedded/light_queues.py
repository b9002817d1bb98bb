"""The light queues' index in RocksDB: tails move there in small steps, reads join both. Compiled.

Keys (numbers big-endian): `Q` queue id u64, first queue offset u64 → a run of entries; `C` → checkpoint: every record below
that position is in the runs; `T` position u64 → stored time: nothing below the position was stored later. Nothing at or
beyond the durable end of the log is ever written here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from rocksdict import WriteBatch

from lmq_store.api.model import UNKNOWN
from lmq_store.embedded.append import Appender
from lmq_store.embedded.consume_queue import IndexedQueue, entry_position, entry_stored_ms
from lmq_store.embedded.log_format import ENTRY
from lmq_store.embedded.rocks import Database, new_batch

RUN_ENTRIES = 256
"""Entries of one run at most: a reader that wants a few messages does not read a megabyte of index."""
STEP_ENTRIES = 20_000
STEP_SHARE = 32
"""One step of a flush writes so many entries (a millisecond), or this part of all that wait where more come in than that."""
CHECKPOINT = b"C"
FIRST_PARENT = 1 << 40
"""Ids of light queues lie below, parents' partitions from here on."""
TIME_MARK_BYTES = 1 << 20
"""Log bytes between two time marks."""
MARKS_MAX = 2_000
"""Time marks that one sweep of retention deletes at most."""

_KEY = struct.Struct(">cQQ")
_U64 = struct.Struct("<Q")
_CHECKPOINT = struct.Struct("<QQ")
_MARK_KEY = struct.Struct(">cQ")
_END = _KEY.pack(b"R", 0, 0)
_LAST = (1 << 64) - 1


def run_key(queue_id: int, first_offset: int) -> bytes:
    return _KEY.pack(b"Q", queue_id, first_offset)


def parse_run_key(key: bytes) -> tuple[int, int]:
    """(queue id, first queue offset)."""
    _, queue_id, first_offset = _KEY.unpack(key)
    return queue_id, first_offset


class LightQueues:
    """All queues that are open, and the index of all there are."""

    __slots__ = (
        "_cycle",
        "_cycle_end",
        "_marked",
        "_marks",
        "_replayed_end",
        "database",
        "flushed_position",
        "high_water",
        "highest_id",
        "open",
    )

    def __init__(self, database: Database, high_water: Callable[[int], int]) -> None:
        self.database = database
        self.high_water = high_water
        self.open: dict[int, IndexedQueue] = {}
        self.flushed_position = 0
        """The checkpoint as last written."""
        self.highest_id = FIRST_PARENT
        """Light queues up to this id may have been used by an earlier process."""
        self._marks: list[tuple[int, int]] = []
        self._marked = 0
        self._cycle: list[IndexedQueue] = []
        self._cycle_end = -1
        self._replayed_end = _LAST
        """Below this position of the log, which is not known before its replay, an earlier process may have written runs."""

    # --- handles ---

    def queue(self, queue_id: int, name: bytes) -> IndexedQueue:
        """The handle of the queue: always the same one."""
        queue = self.open.get(queue_id)
        if queue is None:
            is_new = self.highest_id < queue_id < FIRST_PARENT  # ids are never used twice: nothing to look up
            queue = self.open[queue_id] = IndexedQueue(queue_id, name, 0 if is_new else UNKNOWN)
        return queue

    def begin(self, highest_marked: int, log_end: int) -> None:
        """The index is up to the log: light queues with ids above all that it (or a high-water mark) knows are new."""
        self.flushed_position = self.checkpoint()[0]
        self._replayed_end = log_end
        cursor = self.database.iterator()
        cursor.seek_for_prev(run_key(FIRST_PARENT, 0))
        in_index = parse_run_key(key)[0] if cursor.valid() and len(key := cursor.key()) == _KEY.size and key[:1] == b"Q" else 0
        in_memory = max((queue_id for queue_id in self.open if queue_id < FIRST_PARENT), default=0)
        self.highest_id = max(highest_marked, in_index, in_memory)

    def load_next_offset(self, queue: IndexedQueue) -> int:
        """Find the next offset of a queue that this process has not used yet."""
        last = self.last_run(queue.id)
        after = 0 if last is None else last[0] + len(last[1]) // ENTRY
        queue.next_offset = max(after, self.high_water(queue.id))
        return queue.next_offset

    def load_next_offsets(self, queues: list[IndexedQueue]) -> None:
        """The same for many queues, a third of the time each: one cursor goes over them in the order of their keys."""
        unknown = sorted([queue.id for queue in queues if queue.next_offset < 0])
        cursor = self.database.iterator()
        for queue_id in unknown:
            queue = self.open[queue_id]
            cursor.seek_for_prev(run_key(queue_id, _LAST))
            after = 0
            if cursor.valid():
                key: bytes = cursor.key()
                if len(key) == _KEY.size and key[:9] == run_key(queue_id, 0)[:9]:
                    after = parse_run_key(key)[1] + len(cursor.value()) // ENTRY
            queue.next_offset = max(after, self.high_water(queue_id))

    # --- reading ---

    def last_run(self, queue_id: int) -> tuple[int, bytes] | None:
        return self.run_before(queue_id, _LAST)

    def first_run(self, queue_id: int) -> tuple[int, bytes] | None:
        cursor = self.database.iterator()
        cursor.seek(run_key(queue_id, 0))
        if not cursor.valid():
            return None
        key: bytes = cursor.key()
        if len(key) != _KEY.size:
            return None
        found, first_offset = parse_run_key(key)
        return (first_offset, cursor.value()) if found == queue_id and key < _END else None

    def run_before(self, queue_id: int, queue_offset: int) -> tuple[int, bytes] | None:
        """The run with the highest first offset that is not above `queue_offset`."""
        cursor = self.database.iterator()
        cursor.seek_for_prev(run_key(queue_id, queue_offset))
        if not cursor.valid():
            return None
        key: bytes = cursor.key()
        if len(key) != _KEY.size or key[:9] != _KEY.pack(b"Q", queue_id, 0)[:9]:
            return None
        return parse_run_key(key)[1], cursor.value()

    def first_offset(self, queue: IndexedQueue) -> int:
        """The lowest offset that the index knows; the next offset where there is none."""
        found = self.first_run(queue.id)
        if found is not None:
            return found[0]
        if queue.tail_count:
            return queue.tail_first
        return queue.next_offset if queue.next_offset >= 0 else self.load_next_offset(queue)

    def read(self, queue: IndexedQueue, queue_offset: int, max_entries: int) -> list[tuple[int, bytes]]:
        """Up to `max_entries` entries from `queue_offset` on, as (offset of the first, entries) in order."""
        found: list[tuple[int, bytes]] = []
        if queue.tail_count == 0 or queue_offset < queue.tail_first:
            queue_offset, max_entries = self._read_runs(queue.id, queue_offset, max_entries, found)
        if max_entries > 0 and queue.tail_count:
            start = max(queue_offset - queue.tail_first, 0)
            stop = min(queue.tail_count, start + max_entries)
            if start < stop:
                found.append((queue.tail_first + start, queue.entries(start, stop)))
        return found

    def _read_runs(self, queue_id: int, queue_offset: int, wanted: int, found: list[tuple[int, bytes]]) -> tuple[int, int]:
        """Add what RocksDB has to `found`; (offset to go on at, entries still wanted)."""
        cursor = self.database.iterator()
        prefix = _KEY.pack(b"Q", queue_id, 0)[:9]
        cursor.seek_for_prev(run_key(queue_id, queue_offset))
        if not cursor.valid() or not _is_run(cursor.key(), prefix):
            cursor.seek(run_key(queue_id, queue_offset))
        while wanted > 0 and cursor.valid() and _is_run(key := cursor.key(), prefix):
            first_offset = parse_run_key(key)[1]
            run: bytes = cursor.value()
            count = len(run) // ENTRY
            if first_offset > queue_offset:  # a hole: retention or collection took what was there
                queue_offset = first_offset
            start = queue_offset - first_offset
            stop = min(count, start + wanted)
            if start < stop:
                found.append((queue_offset, run[start * ENTRY : stop * ENTRY]))
                wanted -= stop - start
                queue_offset = first_offset + stop
            cursor.next()
        return queue_offset, wanted

    def offset_at(self, queue: IndexedQueue, low: int, high: int, position: int = 0, time_ms: int = 0) -> int:
        """The first offset in `low`..`high` whose entry lies at or after the position and the time; `high` if none."""
        while low < high:
            middle = (low + high) >> 1
            found = self.read(queue, middle, 1)
            if not found or found[0][0] >= high:
                high = middle
                continue
            at, entry = found[0]
            if entry_position(entry, 0) < position or entry_stored_ms(entry, 0) < time_ms:
                low = at + 1
            else:
                high = middle
        return low

    def position_before(self, time_ms: int, low: int, high: int) -> int:
        """A frame's position between `low` and `high` below which everything was stored before the time; as high as is known."""
        while low < high:
            middle = (low + high + 1) >> 1
            mark = self._mark_before(middle)
            if mark is None or mark[0] <= low or mark[1] < time_ms:
                low = middle
            else:
                high = mark[0] - 1
        mark = self._mark_before(low)
        known = [one for one in self._marks if one[0] <= high and one[1] < time_ms]
        return max([one[0] for one in known] + [0 if mark is None or mark[1] >= time_ms else mark[0]])

    def _mark_before(self, position: int) -> tuple[int, int] | None:
        cursor = self.database.iterator()
        cursor.seek_for_prev(_MARK_KEY.pack(b"T", position))
        if not cursor.valid() or len(key := cursor.key()) != _MARK_KEY.size or key[:1] != b"T":
            return None
        return _MARK_KEY.unpack(key)[1], _U64.unpack(cursor.value())[0]

    def forget_marks(self, batch: WriteBatch, position: int) -> None:
        """Put the deletion of time marks below `position` into the batch, MARKS_MAX at most: the log begins there, or will."""
        cursor = self.database.iterator()
        cursor.seek(_MARK_KEY.pack(b"T", 0))
        for _ in range(MARKS_MAX):
            if not cursor.valid() or len(key := cursor.key()) != _MARK_KEY.size or not key < _MARK_KEY.pack(b"T", position):
                return
            batch.delete(key)
            cursor.next()

    # --- flushing ---

    def mark_time(self, position: int, stored_ms: int) -> None:
        """A frame ends at `position`, and nothing before it was stored later than `stored_ms`."""
        if position - self._marked >= TIME_MARK_BYTES:
            self._marked = position
            self._marks.append((position, stored_ms))

    @property
    def flushing(self) -> int:
        """Queues whose tails the flush under way has still to write."""
        return len(self._cycle)

    def flush_step(self, appender: Appender, durable_end: int, max_queues: int) -> bool:
        """Write the next few tails; begins a cycle where none is under way. True when a cycle ended (checkpoint written)."""
        if self._cycle_end < 0:
            if not appender.dirty and durable_end == self.flushed_position:
                return True
            self._cycle, appender.dirty = appender.dirty, []
            self._cycle_end = durable_end
        batch = new_batch()
        written = 0
        most = max(STEP_ENTRIES, appender.tail_entries // STEP_SHARE)
        while self._cycle and max_queues > 0 and written < most:
            queue = self._cycle.pop()
            max_queues -= 1
            if queue.dropped:
                appender.tail_entries -= queue.tail_count
                queue.take(queue.tail_count)
                queue.dirty = False
                continue
            ripe = queue.below(durable_end)
            count = min(ripe, most - written)
            for start in range(0, count, RUN_ENTRIES):
                stop = min(count, start + RUN_ENTRIES)
                if self.flushed_position < self._replayed_end:
                    self._forget_runs(batch, queue.id, queue.tail_first + start + 1, queue.tail_first + stop)
                batch.put(run_key(queue.id, queue.tail_first + start), queue.entries(start, stop))
            queue.take(count)
            written += count
            if count < ripe:  # a long tail goes on in the next step
                self._cycle.append(queue)
                continue
            queue.dirty = queue.tail_count > 0
            if queue.dirty:
                appender.dirty.append(queue)
        appender.tail_entries -= written
        ended = not self._cycle
        if ended:
            batch.put(CHECKPOINT, _CHECKPOINT.pack(self._cycle_end, appender.stored_ms))
            while self._marks and self._marks[0][0] <= self._cycle_end:
                position, stored_ms = self._marks.pop(0)
                batch.put(_MARK_KEY.pack(b"T", position), _U64.pack(stored_ms))
            self.flushed_position = self._cycle_end
            self._cycle_end = -1
        self.database.write(batch)
        return ended

    def _forget_runs(self, batch: WriteBatch, queue_id: int, first_offset: int, stop: int) -> None:
        """Delete the runs that begin inside a run that is written anew: a reader takes the last one that begins at or before an
        offset, and one of an earlier process may end before the new one does. What it had beyond comes anew as well."""
        cursor = self.database.iterator()
        cursor.seek(run_key(queue_id, first_offset))
        end = run_key(queue_id, stop)
        while cursor.valid() and len(key := cursor.key()) == _KEY.size and key < end:
            batch.delete(key)
            cursor.next()

    def checkpoint(self) -> tuple[int, int]:
        """(position, stored time of what is below it) as RocksDB has it; zeros where there is none."""
        row = self.database.get(CHECKPOINT)
        return (0, 0) if row is None else _CHECKPOINT.unpack(row)


def _is_run(key: bytes, prefix: bytes) -> bool:
    return len(key) == _KEY.size and key.startswith(prefix)
