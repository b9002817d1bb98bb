"""The embedded store: MessageStore and MetaStore in one process, over one commit log.

The owner's loop drives it: `flush` once at the end of each turn, `on_sync_ready` when `sync_fd` is readable, `tick` every 50
to 100 ms. Nothing is acknowledged before it is durable under the flush policy.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from lmq_store.api.errors import CorruptionError, DiskFull, StoreError, StorePoisoned
from lmq_store.api.model import LightQueue, Message, Pulled, Run
from lmq_store.api.ports import Bounds, Done, Popped
from lmq_store.api.rows import u64_of
from lmq_store.embedded.append import Appender
from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.consume_queue import IndexedQueue
from lmq_store.embedded.consumer_groups import ConsumerGroups
from lmq_store.embedded.files import Files, OsFiles
from lmq_store.embedded.group_commit import GroupCommit
from lmq_store.embedded.light_queues import LightQueues
from lmq_store.embedded.log_format import ENTRY, EPOCH, FRAME_HEADER, MAX_FRAME, MAX_RECORD, TABLE_WRITES
from lmq_store.embedded.log_reader import LogReader
from lmq_store.embedded.meta_tables import OWN, MetaTables, encode_operations
from lmq_store.embedded.pop import MAX_DELIVERIES
from lmq_store.embedded.positions import Positions
from lmq_store.embedded.queue_collection import QueueCollection
from lmq_store.embedded.recent import Recent
from lmq_store.embedded.record import decode_message, put_frame_header
from lmq_store.embedded.recovery import Replay, epoch_operation, epoch_payload, epochs, recover
from lmq_store.embedded.repair import LogRepair
from lmq_store.embedded.retention import RETENTION_MS, Retention
from lmq_store.embedded.store_folder import check_format, new_database, open_database, take_lock
from lmq_store.embedded.sync_thread import Sync, SyncInline, SyncThread
from lmq_store.embedded.upkeep import Upkeep

SCAN_STEP = 1 << 20
VERIFY_BYTES = 256 << 20
"""Segments that lie within so many bytes of the log's end are read and checked whole at every opening."""
RECENT_BYTES = 16 << 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of the embedded store; see docs/operations.md."""

    flush: str = "sync"
    flush_interval_ms: int = 200
    segment_bytes: int = 256 << 20
    min_free_bytes: int = 128 << 20
    cache_bytes: int = 64 << 20
    repair: bool = False
    retention_ms: int = RETENTION_MS
    retention_bytes: int = 0
    max_deliveries: int = MAX_DELIVERIES
    offset_commit_ms: int = 1_000


class EmbeddedStore:
    """MessageStore, and MetaStore as `meta`. `disk_full` and `poisoned` say why nothing can be written."""

    def __init__(self, directory: str, options: StoreOptions, files: Files, lock: int) -> None:
        self.directory = directory
        self.options = options
        self.files = files
        self.bounds = Bounds(1_000_000, 65_535, min(MAX_RECORD, options.segment_bytes) - 1024, True)
        self.disk_full = False
        self.log = CommitLog(files, f"{directory}/log", options.segment_bytes)
        self.sync: Sync = SyncThread() if type(files) is OsFiles else SyncInline(files)
        self.sync_fd = self.sync.answer_fd
        self.commits = GroupCommit(self.log, self.sync)
        self.meta = MetaTables(open_database(f"{directory}/meta"), self.commit)
        self.recent = Recent(RECENT_BYTES)
        self.reader = LogReader(self.log, self.recent, options.cache_bytes)
        self.queues = LightQueues(open_database(f"{directory}/index"), self.meta.high_water)
        self.appender = Appender(self.recent, self._write_frame, self.queues.load_next_offset, self._derive)
        self.appender.max_record = min(MAX_RECORD, options.segment_bytes) - FRAME_HEADER
        self.replayed_records = 0
        self.repair: LogRepair | None = None
        """After an opening with `repair`: what was not readable (`repair.report`)."""
        self.positions = Positions()
        self.write_refused = False
        """The disk took no more bytes: the open frame waits, and is tried again every tick."""
        self._lock = lock
        self._is_async = options.flush == "async"
        self._sync_at_ms = 0
        self.groups = ConsumerGroups(self, self.meta, None, options.max_deliveries, options.offset_commit_ms)
        self.retention = Retention(self.log, self.queues, self.meta, self, options.retention_ms, options.retention_bytes)
        self.collection = QueueCollection(self.queues, self.meta, self)
        self.upkeep = Upkeep(self)

    # --- opening and closing ---

    @classmethod
    def open(
        cls,
        directory: str,
        options: StoreOptions | None = None,
        files: Files | None = None,
        now_ms: int | None = None,
    ) -> EmbeddedStore:
        """Open the folder, made where there is none, and bring it to a consistent state.

        Raises StoreLocked, FormatError or CorruptionError; StoreError where the folder cannot be read or written.
        """
        options = options or StoreOptions()
        files = files or OsFiles()
        try:
            return cls._open(directory, options, files, int(time.time() * 1000) if now_ms is None else now_ms)
        except OSError as error:
            place = f" ({error.filename})" if error.filename else ""
            raise StoreError(f"{directory} cannot be used: {(error.strerror or str(error)).lower()}{place}") from error

    @classmethod
    def _open(cls, directory: str, options: StoreOptions, files: Files, now_ms: int) -> EmbeddedStore:
        files.makedirs(f"{directory}/log")
        lock = take_lock(f"{directory}/lock")
        try:
            check_format(directory, files)
            store = cls(directory, options, files, lock)
        except BaseException:
            os.close(lock)
            raise
        try:
            store._recover(now_ms)
        except BaseException:
            store.abandon()
            raise
        return store

    def _recover(self, now_ms: int) -> None:
        log = self.log
        log.load()
        if not log.segments:
            log.create(0)
            end = 0
        else:
            for segment in log.segments[-2:]:  # a killed writer may have left them unsynced; derived rows must not be ahead
                self.files.fdatasync(segment.open())
            end = self._replay()
            while log.segments[-1].base > end and len(log.segments) > 1:
                log.remove_last()
            log.resume(end)
        self.commits.begin(log.end)
        self.queues.begin(self.meta.highest_marked(), log.end)
        self.appender.written(log.end, self._frame_room())
        self._begin_epoch(now_ms)
        self.collection.load()

    def _replay(self) -> int:
        """Check the log and bring the tables up to it; its intact end."""
        log = self.log
        replay = Replay(self.appender, self.queues, self.meta)
        known = max(replay.index_from, replay.meta_from)
        if known > log.end and not self.options.repair:
            raise CorruptionError(
                f"{self.directory}/log ends at position {log.end}, although the tables know what came up to {known}; "
                "--repair keeps all that is readable"
            )
        if replay.index_from > log.end:
            logger.error("%s/index is ahead of the log: it is rebuilt", self.directory)
            self.queues.database.close()
            self.queues.database = new_database(f"{self.directory}/index")
            replay.index_from = 0
        if replay.meta_from < log.start and not self.options.repair:
            raise CorruptionError(f"{self.directory}/meta is missing or damaged, and the log no longer reaches back to rebuild it")
        start = max(log.start, min(replay.index_from, replay.meta_from, log.end))
        taken = self.meta.get(OWN, b"R")  # what retention was about to delete may be there in part
        kept = 0 if taken is None else u64_of(taken)
        start = min([start, *(base for base in log.bases if base >= kept and log.end - base <= VERIFY_BYTES)])
        if not self.options.repair:
            log.check_lengths(kept, start)
        self.repair = LogRepair(self.files, self.directory) if self.options.repair else None
        end = recover(log, replay, log.start if self.repair is not None else start, self.repair)
        replay.flush(end)
        self.replayed_records = replay.records
        return end

    def _begin_epoch(self, now_ms: int) -> None:
        """Every opening is a new epoch: positions given out before, and cut since, are told from those that follow."""
        known = epochs(self.meta)
        epoch = known[-1][0] + 1 if known else 1
        start = self.log.end
        self.appender.append_plain(EPOCH, epoch_payload(epoch, start), now_ms)
        self.meta.note(self.appender.end(), epoch_operation(epoch, start))
        self.positions.begin([*known, (epoch, start)])
        self.wait_durable()

    def close(self) -> None:
        """Sync everything, flush the index, give back reserved space, release the folder."""
        if self._lock < 0:
            return
        if self.poisoned is None:
            self.groups.save_all()
            self.wait_durable()
            self.upkeep.finish()
            self.files.truncate(self.log.active.handle, self.log.end - self.log.active.base)
        self.abandon()

    def abandon(self) -> None:
        """Let go of everything without writing a byte more, as a killed process would."""
        self.upkeep.join()
        self.retention.close()
        self.sync.close()
        self.queues.database.close()
        self.meta.database.close()
        self.log.close()
        os.close(self._lock)
        self._lock = -1

    # --- the write path ---

    @property
    def poisoned(self) -> StorePoisoned | None:
        return self.commits.poisoned

    def append(self, messages: list[Message], now_ms: int, done: Done) -> list[Run]:
        """See MessageStore.append. Nothing leaves memory before `flush`."""
        if self.commits.poisoned is not None:
            raise self.commits.poisoned
        if self.disk_full:
            raise DiskFull("free space is below min_free_bytes: publishes are refused until there is room again")
        if self.meta.queued:
            self._place_table_writes(now_ms)
        runs = self.appender.append(messages, now_ms)
        self.meta.end_batch(self.appender.end())
        self.commits.wait_for(self.appender.end(), done)
        return runs

    def commit(self, done: Done | None, now_ms: int = 0) -> None:
        """See MetaStore.commit (`meta.commit` is the same without the time)."""
        if self.meta.queued and self.commits.poisoned is None:
            self._place_table_writes(now_ms)
        if done is not None:
            self.commits.wait_for(self.appender.end(), done)

    def flush(self) -> None:
        """End of a turn: write what was collected and start a sync, unless one is in flight (then it collects on)."""
        if self.meta.queued and self.commits.poisoned is None:
            self._place_table_writes(0)
        if self._is_async:
            self._write_frame()
            if self.commits.poisoned is None:
                self.commits.acknowledged_end = self.log.end
                self.commits.run_callbacks()
        elif not self.commits.in_flight:
            collected = self.appender.used
            self._write_frame()
            if collected and self.commits.light(collected):
                self._synced(self.commits.sync_now())
            else:
                self.commits.start()
        self.upkeep.turn()

    def on_sync_ready(self) -> None:
        """`sync_fd` is readable: move the durable end, start the next sync, bring rows to the tables, call back."""
        if not self.commits.finished():
            return
        if not self._is_async:
            self._write_frame()
            self.commits.start()
        self._synced(True)

    def _synced(self, moved: bool) -> None:
        """The durable end moved: bring rows to the tables, call back who waited."""
        if moved:
            self.meta.apply(self.commits.durable_end)
            self.commits.run_callbacks()

    def wait_durable(self) -> None:
        """Block until everything appended and queued so far is durable. Raises StorePoisoned."""
        self.flush()
        wanted = self.appender.end()
        while self.commits.durable_end < wanted:
            self._write_frame()
            self.commits.start()
            if self.commits.poisoned is not None:
                raise self.commits.poisoned
            if not self.commits.in_flight:
                raise DiskFull("the disk takes no more bytes: what was appended waits for room")
            self.sync.wait()
            self.on_sync_ready()

    def tick(self, now_ms: int) -> None:
        """Work beside the messages, in small steps: index, async sync, free space."""
        if self.commits.poisoned is not None:
            return
        if self._is_async and now_ms - self._sync_at_ms >= self.options.flush_interval_ms:
            self._sync_at_ms = now_ms
            self.commits.start()
        if self.write_refused:
            self._write_frame()
            self.commits.start()
        self.upkeep.tick(now_ms)
        self.retention.step(now_ms)
        self.collection.step()

    def persisted_end(self) -> int:
        """The files of both databases hold all that the log says below this position."""
        return self.upkeep.persisted_end

    def request_persist(self) -> None:
        """Make `persisted_end` follow the durable end soon, without waiting for its turn."""
        self.upkeep.persist_wanted = True

    def _place_table_writes(self, now_ms: int) -> None:
        self.appender.append_plain(TABLE_WRITES, encode_operations(self.meta.queued), now_ms)
        self.meta.placed(self.appender.end())

    def _derive(self, message: Message) -> None:
        if message.retain or message.session_id:
            self.meta.derive(message, message.route.parent_id if message.route is not None else 0)

    def _frame_room(self) -> int:
        return min(MAX_FRAME, self.log.room())

    def _write_frame(self) -> None:
        """Write the open frame, if anything is in it, and begin the next. A failed write poisons, but for a full disk."""
        appender = self.appender
        if not appender.records or self.commits.poisoned is not None:
            return
        used = appender.used
        self.meta.end_batch(appender.end())
        put_frame_header(appender.buffer, 0, used, self.commits.durable_end, appender.frame_position, appender.records)
        try:
            with memoryview(appender.buffer) as whole:
                self.log.write(whole[:used])
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.commits.poison(f"write to the log failed ({error.strerror}): nothing more can be acknowledged")
            elif not self.write_refused:
                self.write_refused = self.disk_full = True
                logger.error("disk full: the log takes no more bytes: publishes are refused, what came before waits")
            return
        self.write_refused = False
        appender.written(self.log.end, self._frame_room())
        self.recent.trim(self.log.end)
        self.queues.mark_time(self.log.end, appender.stored_ms)

    # --- queues and reads ---

    def open_queue(self, queue_id: int, name: bytes) -> LightQueue:
        queue = self.queues.queue(queue_id, name)
        if name and not queue.name:  # known from a replay, without its name
            queue.name = name
        return queue

    def drop_queue(self, queue: LightQueue) -> None:
        assert isinstance(queue, IndexedQueue)
        self.collection.drop(queue)

    def pull(
        self, queue: LightQueue, offset: int, max_messages: int, max_bytes: int, done: Callable[[Pulled], None]
    ) -> Pulled | None:
        """See MessageStore.pull: the answer is always at hand. At least one message, whatever `max_bytes`, if there is one."""
        assert isinstance(queue, IndexedQueue)
        messages: list[Message] = []
        offsets: list[int] = []
        next_offset = offset
        self.reader.collected_bytes = 0
        for first_offset, entries in self.queues.read(queue, offset, max_messages):
            done_entries = self.reader.collect(entries, first_offset, max_bytes, messages, offsets)
            next_offset = first_offset + done_entries
            if done_entries * ENTRY < len(entries):
                break
        return Pulled(messages, offsets, next_offset)

    def min_offset(self, queue: LightQueue) -> int:
        assert isinstance(queue, IndexedQueue)
        return self.queues.first_offset(queue)

    def max_offset(self, queue: LightQueue) -> int:
        assert isinstance(queue, IndexedQueue)
        return queue.next_offset if queue.next_offset >= 0 else self.queues.load_next_offset(queue)

    def load_offsets(self, queues: list[LightQueue]) -> None:
        """See MessageStore.load_offsets."""
        self.queues.load_next_offsets(queues)  # type: ignore[arg-type]

    def offset_at_time(self, queue: LightQueue, time_ms: int) -> int:
        assert isinstance(queue, IndexedQueue)
        return self.queues.offset_at(queue, self.min_offset(queue), self.max_offset(queue), time_ms=time_ms)

    def offset_at_position(self, queue: LightQueue, position: int) -> int:
        assert isinstance(queue, IndexedQueue)
        return self.queues.offset_at(queue, self.min_offset(queue), self.max_offset(queue), position=position)

    def pop(self, queue: LightQueue, group: bytes, max_messages: int, invisible_ms: int, now_ms: int) -> list[Popped]:
        return self.groups.pop(queue, group, max_messages, invisible_ms, now_ms)

    def ack(self, queue: LightQueue, group: bytes, handles: list[int]) -> None:
        self.groups.ack(queue, group, handles)

    def change_invisible(self, queue: LightQueue, group: bytes, handles: list[int], invisible_ms: int, now_ms: int) -> None:
        self.groups.change_invisible(queue, group, handles, invisible_ms, now_ms)

    def start(self) -> int:
        """The log position below which retention has taken everything."""
        return self.log.start

    def end(self) -> int:
        return self.appender.end()

    def durable_end(self) -> int:
        return self.commits.durable_end

    def scan(self, position: int, max_bytes: int) -> tuple[list[Message], int]:
        """See MessageStore.scan. `position` is a record's, a frame's, or 0."""
        if position + max_bytes > self.log.end:
            self._write_frame()  # what is read must be in the file
        return self.reader.scan(max(position, self.log.start), max_bytes, self.log.end)

    def read(self, position: int) -> Message | None:
        """The message whose record begins at `position`; None when the log no longer has it."""
        return self.reader.message_at(position)

    def position_at_time(self, time_ms: int) -> int:
        """See MessageStore.position_at_time; the log's end when everything is older."""
        position = self.queues.position_before(time_ms, self.log.start, self.log.end)
        while True:
            messages, next_position = self.scan(position, SCAN_STEP)
            for message in messages:
                if message.stored_ms >= time_ms:
                    return message.position
            if next_position <= position:
                return self.end()
            position = next_position

    def retained_message(self, row: bytes) -> Message:
        """The message in a row of RETAINED; `position` is where its PUBLISH was logged."""
        return decode_message(row, 8)

    # --- positions for outsiders ---

    def format_position(self, position: int) -> str:
        """See positions.py."""
        return self.positions.format(position)

    def parse_position(self, text: str) -> int:
        """See positions.py. Raises ValueError."""
        return self.positions.parse(text)


__all__ = ["EmbeddedStore", "StoreError", "StoreOptions"]
