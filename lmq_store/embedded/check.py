"""`lmq store check`: reads a whole store and names whatever is not as docs/formats.md says.

Looks at every frame and record of the log, the order of positions, times and queue offsets, the index against the log, and
every row of the tables. Writes nothing. A torn tail is no fault: the next opening cuts it, and it was never acknowledged.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from lmq_store.api.errors import FormatError, StoreError
from lmq_store.api.ports import Table
from lmq_store.api.rows import (
    DeliveryState,
    OffsetRow,
    RetainedWalkRow,
    RowError,
    SessionRow,
    SubscriptionRow,
    WillRow,
    filter_row_of,
    offset_key,
    u64_of,
)
from lmq_store.embedded.consume_queue import entry_position, entry_size
from lmq_store.embedded.consumer_groups import parse_group_key
from lmq_store.embedded.files import Files
from lmq_store.embedded.light_queues import parse_run_key
from lmq_store.embedded.log_format import DISPATCH, ENTRY, EPOCH, FAULTS, HOLE, MESSAGE, TABLE_WRITES
from lmq_store.embedded.log_walk import Frame
from lmq_store.embedded.meta_tables import OWN, MetaTables, decode_operations
from lmq_store.embedded.pop import decode_row
from lmq_store.embedded.read_only import ReadOnlyStore
from lmq_store.embedded.record import (
    check_record,
    parent_queue_id,
    record_parent,
    record_payload,
    record_queues,
    record_size,
    record_stored_ms,
    record_type,
)

MAX_FAULTS = 1_000
"""Faults that are kept as text; the rest is counted."""
CACHED_RUNS = 100_000
"""Index runs kept in memory while the log is compared with them."""

_KEY64 = struct.Struct(">Q")


@dataclass
class Findings:
    """What a check saw. The store is sound when there are no `faults`; `notes` are worth knowing and no fault."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more_faults: int = 0
    segments: int = 0
    frames: int = 0
    records: int = 0
    messages: int = 0
    queues: int = 0
    entries: int = 0
    rows: int = 0

    def fault(self, text: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(text)
        else:
            self.more_faults += 1

    @property
    def sound(self) -> bool:
        return not self.faults


def check(directory: str, files: Files | None = None, progress: Callable[[int], None] | None = None) -> Findings:
    """Check the store in `directory`. Raises StoreError when the folder is no store, or FormatError when it is too new.

    `progress` is called now and then with the log position reached.
    """
    store = ReadOnlyStore(directory, files)
    findings = Findings()
    try:
        if store.running:
            findings.notes.append("a server is running on this folder: what it writes during the check may be seen in part")
        for problem in store.problems:
            findings.notes.append(f"{problem}: the next start rebuilds it from the log")
        tables = _TableCheck(store.meta, findings) if store.meta is not None else None
        if tables is not None:
            tables.run()
        _LogCheck(store, findings, tables).run(progress)
    finally:
        store.close()
    return findings


class _LogCheck:
    """One pass over the log, with the index beside it."""

    def __init__(self, store: ReadOnlyStore, findings: Findings, tables: _TableCheck | None) -> None:
        self.store = store
        self.findings = findings
        self.registered = tables.registered if tables is not None else set()
        self.swept_below = tables.swept_below if tables is not None else 0
        self.swept = 0
        """Records whose entries a retention sweep took, and whose segment it had no time left to remove."""
        self.next_offsets: dict[int, int] = {}
        self.first_offsets: dict[int, int] = {}
        self.stored_ms = 0
        self.epoch = 0
        self.holes = 0
        """Records that a repair could not keep: what they held is missing in their queues too."""
        self.meta_checkpoint = 0 if store.meta is None else store.meta.checkpoint()
        self.index = None if store.index is None else _IndexLookup(store)

    def run(self, progress: Callable[[int], None] | None) -> None:
        findings, log = self.findings, self.store.log
        findings.segments = len(log.segments)
        for frame in log.frames():
            findings.frames += 1
            self._frame(frame)
            if progress is not None and findings.frames % 256 == 0:
                progress(frame.position)
        for gap in log.gaps:
            if gap.torn:
                findings.notes.append(f"log: {gap}; the next start cuts it" if not self.store.running else f"log: {gap}; being written")
            else:
                findings.fault(f"log: {gap}")
        if self.index is not None:
            self._index_ends()
        if self.swept:
            findings.notes.append(f"index: retention had taken {self.swept} entries and not yet their segments")
        if log.vanished:
            findings.notes.append("log: retention took segments while they were read")
            return
        if self.index is not None and self.index.checkpoint > log.end:
            findings.fault(f"index: checkpoint {self.index.checkpoint} lies beyond the log's end {log.end}")
        if self.meta_checkpoint > log.end:
            findings.fault(f"meta: checkpoint {self.meta_checkpoint} lies beyond the log's end {log.end}")
        if self.store.meta is not None and self.meta_checkpoint < log.start:
            findings.fault(f"meta: checkpoint {self.meta_checkpoint} lies before the log's start {log.start}: rows are lost")

    def _frame(self, frame: Frame) -> None:
        for place, position in frame.records():
            self.findings.records += 1
            stored_ms = record_stored_ms(frame.data, place)
            if stored_ms < self.stored_ms:
                self.findings.fault(f"log: record at position {position} is older ({stored_ms}) than the one before ({self.stored_ms})")
            self.stored_ms = max(self.stored_ms, stored_ms)
            kind = record_type(frame.data, place)
            if kind == MESSAGE:
                self._message(frame.data, place, position)
            elif kind == TABLE_WRITES:
                self._table_writes(frame.data, place, position)
            elif kind == EPOCH:
                self._epoch(frame.data, place, position)
            elif kind == HOLE:
                self.holes += 1
                size = record_size(frame.data, place)
                self.findings.notes.append(f"log: {size} bytes at position {position} were lost and repaired")
            elif kind == DISPATCH:
                entry = record_payload(frame.data, place)
                for queue_id, offset in record_queues(frame.data, place):
                    self._dispatched(queue_id, offset, entry_position(entry, 0), entry_size(entry, 0))
            else:
                self.findings.fault(f"log: record at position {position} is of unknown type {kind}")

    def _message(self, data: bytes, place: int, position: int) -> None:
        self.findings.messages += 1
        size = record_size(data, place)
        parent_id, partition, offset = record_parent(data, place)
        self._dispatched(parent_queue_id(parent_id, partition), offset, position, size)
        for queue_id, offset in record_queues(data, place):
            self._dispatched(queue_id, offset, position, size)

    def _dispatched(self, queue_id: int, offset: int, position: int, size: int) -> None:
        expected = self.next_offsets.get(queue_id)
        if expected is None:
            self.first_offsets[queue_id] = offset
            if offset and self.store.log.start == 0 and not self._has_holes():
                self.findings.fault(f"log: queue {queue_id} begins with offset {offset} at position {position}, not with 0")
        elif offset != expected and not (offset > expected and self._has_holes()):  # a hole in the log is one in its queues
            self.findings.fault(f"log: queue {queue_id} goes from offset {expected - 1} to {offset} at position {position}")
        self.next_offsets[queue_id] = offset + 1
        if self.index is None or position >= self.index.checkpoint:
            return
        entry = self.index.entry(queue_id, offset)
        if entry is None:
            if position < self.swept_below:
                self.swept += 1
            elif queue_id in self.registered:
                self.findings.fault(f"index: queue {queue_id} offset {offset} is missing (position {position})")
        elif entry != (position, size):
            self.findings.fault(f"index: queue {queue_id} offset {offset} says position, size {entry}, not {(position, size)}")
        else:
            self.findings.entries += 1

    def _has_holes(self) -> bool:
        return self.holes > 0 or self.store.log.vanished or bool(self.store.log.gaps)

    def _table_writes(self, data: bytes, place: int, position: int) -> None:
        try:
            decode_operations(record_payload(data, place))
        except (ValueError, struct.error) as error:
            self.findings.fault(f"log: table writes at position {position}: {error}")

    def _epoch(self, data: bytes, place: int, position: int) -> None:
        payload = record_payload(data, place)
        epoch, start = struct.unpack_from("<IQ", payload) if len(payload) >= 12 else (0, 0)
        if epoch <= self.epoch:
            self.findings.fault(f"log: epoch {epoch} at position {position} follows epoch {self.epoch}")
        if start > position:
            self.findings.fault(f"log: epoch {epoch} at position {position} begins later, at {start}")
        self.epoch = max(self.epoch, epoch)

    def _index_ends(self) -> None:
        """Look at the index from its own side: whole runs that agree where they overlap, no queue with more than the log has."""
        assert self.store.index is not None
        queue_id, before_first, before = -1, 0, b""
        for key, run in self.store.index.database.range(b"Q"):
            if len(key) != 17 or len(run) % ENTRY or not run:
                self.findings.fault(f"index: key {key.hex()} with {len(run)} bytes is no run")
                continue
            found, first_offset = parse_run_key(key)
            if found != queue_id:
                queue_id = found
                self.findings.queues += 1
                self._index_start(queue_id, first_offset, run)
            elif not _agree(before, run, first_offset - before_first):
                self.findings.fault(f"index: queue {queue_id}: the runs from {before_first} and {first_offset} contradict each other")
            before_first, before = first_offset, run
            self._index_end(queue_id, first_offset + len(run) // ENTRY, run)

    def _index_end(self, queue_id: int, beyond: int, run: bytes) -> None:
        in_log = self.next_offsets.get(queue_id, 0)
        kept = entry_position(run, len(run) // ENTRY - 1) >= self.store.log.start
        if beyond > in_log and kept and not self._has_holes():
            self.findings.fault(f"index: queue {queue_id} ends with offset {beyond - 1}, in the log with {in_log - 1}")

    def _index_start(self, queue_id: int, first_offset: int, run: bytes) -> None:
        in_log = self.first_offsets.get(queue_id)
        position = entry_position(run, 0)
        if in_log is not None and first_offset < in_log and position >= self.store.log.start and not self._has_holes():
            self.findings.fault(f"index: queue {queue_id} offset {first_offset} says position {position}, where the log has no such record")


class _IndexLookup:
    """Entries of the index by queue and offset, a run at a time."""

    def __init__(self, store: ReadOnlyStore) -> None:
        assert store.index is not None
        self.queues = store.index
        self.checkpoint = store.index.checkpoint()[0]
        self.runs: OrderedDict[int, tuple[int, bytes]] = OrderedDict()

    def entry(self, queue_id: int, offset: int) -> tuple[int, int] | None:
        """(position, size), or None where the index has no such offset."""
        first, entries = self.runs.get(queue_id, (0, b""))
        at = offset - first
        if not 0 <= at < len(entries) // ENTRY:
            found = self.queues.run_before(queue_id, offset)
            if found is None:
                return None
            self.runs[queue_id] = first, entries = found
            if len(self.runs) > CACHED_RUNS:
                self.runs.popitem(last=False)
            at = offset - first
            if at >= len(entries) // ENTRY:
                return None
        return entry_position(entries, at), entry_size(entries, at)


class _TableCheck:
    """Every row of every table can be read, and what they say of each other holds."""

    def __init__(self, meta: MetaTables, findings: Findings) -> None:
        self.meta = meta
        self.findings = findings
        self.registered: set[int] = set()
        """Queues that hold messages for somebody: the index has to have all of them."""
        row = meta.get(OWN, b"R")
        self.swept_below = u64_of(row) if row is not None else 0
        """Retention takes index entries below this position, before it removes their segments."""

    def run(self) -> None:
        for table, read in self._readers().items():
            for key, row in self.meta.scan(table, b""):
                self.findings.rows += 1
                try:
                    read(key, row)
                except (RowError, FormatError, ValueError, IndexError, struct.error) as error:
                    self.findings.fault(f"meta: {_table_name(table)} row {key.hex()}: {error}")
        # A queue that is being collected is missing in part.
        self.registered -= {_KEY64.unpack_from(key, 1)[0] for key, _ in self.meta.scan(OWN, b"D")}

    def _readers(self) -> dict[int, Callable[[bytes, bytes], object]]:
        return {
            OWN: self._own,
            Table.SESSION: lambda _, row: SessionRow.decode(row),
            Table.SUBSCRIPTION: lambda _, row: SubscriptionRow.decode(row),
            Table.SNAPSHOT: lambda _, row: DeliveryState.decode(row),
            Table.JOURNAL: lambda _, row: DeliveryState().apply(row),
            Table.FILTER: self._filter,
            Table.PARENT: lambda _, row: u64_of(row),
            Table.RETAINED: self._retained,
            Table.GROUP: self._group,
            Table.WILL: lambda _, row: WillRow.decode(row),
            Table.COUNTER: lambda _, row: u64_of(row),
            Table.OFFSET: lambda key, row: (OffsetRow if len(key) == len(offset_key(0, 0)) else RetainedWalkRow).decode(row),
        }

    def _own(self, key: bytes, row: bytes) -> None:
        lengths = {b"C": (1, 8), b"R": (1, 8), b"E": (5, 8), b"H": (9, 8), b"D": (9, 8)}
        if lengths.get(key[:1]) != (len(key), len(row)):
            raise RowError(f"{len(row)} bytes under a key of {len(key)}")

    def _group(self, key: bytes, row: bytes) -> None:
        if parse_group_key(key) is not None:
            decode_row(row)
        elif key[:1] == b"\1" and len(row) % 8:
            raise RowError(f"{len(row)} bytes are no list of offsets")

    def _filter(self, key: bytes, row: bytes) -> None:
        queue_id = filter_row_of(row)[0]
        if queue_id in self.registered:
            raise RowError(f"queue {queue_id} has two filters")
        counter = self.meta.get(Table.COUNTER, b"queue")
        if counter is not None and queue_id >= u64_of(counter):
            raise RowError(f"queue {queue_id} lies beyond the counter {u64_of(counter)}: its id could come twice")
        self.registered.add(queue_id)

    def _retained(self, key: bytes, row: bytes) -> None:
        size = check_record(row, 8, len(row), u64_of(row)) if len(row) > 8 else -1
        if size != len(row) - 8:
            raise RowError(f"record {FAULTS.get(size, 'is not as long as its row')}")


def _agree(before: bytes, run: bytes, offsets_apart: int) -> bool:
    """Whether a run continues the one before it, or repeats a part of it (a replay writes entries again)."""
    shared = before[offsets_apart * ENTRY :]
    if shared:
        return run.startswith(shared) or shared.startswith(run)
    return entry_position(run, 0) > entry_position(before, len(before) // ENTRY - 1)


def _table_name(table: int) -> str:
    return Table(table).name if table else "the store's own"


__all__ = ["Findings", "StoreError", "check"]
