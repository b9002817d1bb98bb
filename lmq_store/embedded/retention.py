"""Retention: whole segments leave the log by age or by size, never the active one, and nothing else leaves with them.

Before a segment goes, in this order and in small steps: index entries that point into it are deleted, each queue that
loses its last entry has its next offset saved as a high-water mark (durable before the entries go), and both databases
hold everything up to the marks in their files. A crash at any point leaves a store that only has more than it needs.
"""

from __future__ import annotations

import logging
import struct
import threading
from contextlib import suppress
from enum import Enum
from itertools import pairwise
from typing import Protocol

from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.consume_queue import entry_position
from lmq_store.embedded.files import Files
from lmq_store.embedded.light_queues import LightQueues, parse_run_key, run_key
from lmq_store.embedded.log_format import AT_STORED_MS, ENTRY, FRAME_HEADER, RECORD_HEADER
from lmq_store.embedded.meta_tables import OWN, MetaTables
from lmq_store.embedded.record import frame_header_length, record_stored_ms
from lmq_store.embedded.rocks import new_batch

RETENTION_MS = 7 * 24 * 3_600_000
STEP_RUNS = 200
"""Index runs looked at in one step, about a millisecond."""
LOOK_EVERY_MS = 5_000

_U64 = struct.Struct("<Q")
_KEY64 = struct.Struct(">Q")

logger = logging.getLogger(__name__)


class Durability(Protocol):
    """What retention and collection ask of the store around them. Positions are bytes of the log."""

    def end(self) -> int: ...

    def durable_end(self) -> int: ...

    def persisted_end(self) -> int:
        """Both databases' files hold all that the log says below this position."""
        ...

    def request_persist(self) -> None:
        """Make `persisted_end` catch up with the durable end soon."""
        ...


class Phase(Enum):
    IDLE = "idle"
    SWEEP = "deleting index entries"
    MARKS = "waiting for high-water marks"
    PERSIST = "waiting for the databases"


class Retention:
    """Removes old segments. Call `step` every tick; a step takes about a millisecond.

    `retention_ms` and `retention_bytes` 0: no such limit.
    """

    def __init__(
        self, log: CommitLog, queues: LightQueues, meta: MetaTables, durability: Durability, retention_ms: int, retention_bytes: int
    ) -> None:
        self.log = log
        self.queues = queues
        self.meta = meta
        self.durability = durability
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes
        self.phase = Phase.IDLE
        self.segments_removed = 0
        self.bytes_removed = 0
        self.deletes_beside = True
        """Delete files in a thread (tests that cut the power at every call do not)."""
        self._min_position = 0
        """What the sweep under way removes lies below it."""
        self._next_key = b""
        self._batch = new_batch()
        self._marks: list[tuple[int, int]] = []
        self._wait_position = 0
        self._first_stored_ms: dict[int, int] = {}
        self._looked_ms = -LOOK_EVERY_MS
        self._paths: list[str] = []
        """Files that are no longer part of the log and still there, oldest first."""
        self._unlinking: threading.Thread | None = None

    def step(self, now_ms: int) -> None:
        """Do the next bit of work, if there is any."""
        if self.phase is Phase.IDLE:
            if not 0 <= now_ms - self._looked_ms < LOOK_EVERY_MS:
                self._looked_ms = now_ms
                self._delete_files()
                self._begin(self.removable_end(now_ms))
        elif self.phase is Phase.SWEEP:
            self._sweep()
        elif self.phase is Phase.MARKS:
            if self.durability.durable_end() >= self._wait_position:
                self._apply()
        elif self.durability.persisted_end() >= self._wait_position:
            self._remove_segments()
        else:
            self.durability.request_persist()

    def removable_end(self, now_ms: int) -> int:
        """The position below which whole segments are too old, or too much; the log's start if there are none."""
        bases = self.log.bases
        end = self.log.start
        for base, beyond in pairwise(bases):
            too_much = 0 < self.retention_bytes < self.log.end - base
            # The first record of the next segment is at least as young as the last one of this.
            stored_ms = self._segment_stored_ms(beyond) if self.retention_ms else None
            too_old = stored_ms is not None and stored_ms < now_ms - self.retention_ms
            if not (too_much or too_old):
                break
            end = beyond
        return end

    def close(self) -> None:
        """Wait for a file that is just being deleted."""
        if self._unlinking is not None:
            self._unlinking.join()
            self._unlinking = None

    # --- the steps ---

    def _begin(self, min_position: int) -> None:
        if min_position <= self.log.start:
            return
        if self.queues.flushed_position < min_position:
            return  # entries of those segments are still in memory: the next look finds them flushed
        self._min_position = min_position
        self._next_key = run_key(0, 0)
        # How far the sweep goes is durable before its first deletion: after a crash in the middle of it, `store check` knows
        # that the missing entries were taken on purpose, from segments that were about to go.
        self.meta.put(OWN, b"R", _U64.pack(min_position))
        self.meta.commit(None)
        self._wait_position = self.durability.end()
        self.phase = Phase.MARKS

    def _sweep(self) -> None:
        """Look at the next runs; what goes is collected in a batch that waits for its marks."""
        cursor = self.queues.database.iterator()
        cursor.seek(self._next_key)
        for _ in range(STEP_RUNS):
            if not cursor.valid() or len(key := cursor.key()) != len(self._next_key) or key[:1] != b"Q":
                self._next_key = b""
                self.queues.forget_marks(self._batch, self._min_position)
                break
            queue_id, first_offset = parse_run_key(key)
            run: bytes = cursor.value()
            gone = entries_below(run, self._min_position)
            count = len(run) // ENTRY
            if gone < count:
                if gone:
                    self._batch.delete(key)
                    self._batch.put(run_key(queue_id, first_offset + gone), run[gone * ENTRY :])
                self._next_key = run_key(queue_id + 1, 0)
                cursor.seek(self._next_key)
                continue
            self._batch.delete(key)
            self._next_key = run_key(queue_id, first_offset + 1)
            cursor.next()
            if not cursor.valid() or cursor.key()[:9] != key[:9]:
                self._marks.append((queue_id, first_offset + count))
        if self._marks:
            for queue_id, next_offset in self._marks:
                save_high_water(self.meta, queue_id, next_offset)
            self._marks = []
            self.meta.commit(None)
            self._wait_position = self.durability.end()
            self.phase = Phase.MARKS
        else:
            self._apply()

    def _apply(self) -> None:
        """The marks are durable: the entries may go."""
        if self._batch.len():
            self.queues.database.write(self._batch)
            self._batch = new_batch()
        self.phase = Phase.SWEEP
        if not self._next_key:
            # Only files that were written after the last deletion will do: a record of its own tells them from earlier ones.
            self.meta.put(OWN, b"R", _U64.pack(self._min_position))
            self.meta.commit(None)
            self._wait_position = self.durability.end()
            self.phase = Phase.PERSIST
            self.durability.request_persist()

    def _remove_segments(self) -> None:
        """Take the segments out of the log at once; their files are deleted beside the loop, for that can take long."""
        before = self.segments_removed
        while self.log.start < self._min_position and len(self.log.segments) > 1:
            segment = self.log.drop_first()
            self.segments_removed += 1
            self.bytes_removed += segment.end - segment.base
            self._first_stored_ms.pop(segment.base, None)
            self._paths.append(segment.path)
        logger.info("retention: %d segments removed; the log begins at position %d", self.segments_removed - before, self.log.start)
        self._delete_files()
        self.phase = Phase.IDLE

    def _delete_files(self) -> None:
        """Delete what has left the log, in order; what fails is tried again at the next look, before anything newer."""
        if not self._paths or (self._unlinking is not None and self._unlinking.is_alive()):
            return
        arguments = (self.log.files, self.log.directory, self._paths)
        if self.deletes_beside:
            self._unlinking = threading.Thread(target=delete_files, args=arguments, name="lmq-retention", daemon=True)
            self._unlinking.start()
        else:
            delete_files(*arguments)

    def _segment_stored_ms(self, base: int) -> int | None:
        """When the segment's first record was stored; None while there is none (or it is not readable)."""
        stored_ms = self._first_stored_ms.get(base)
        if stored_ms is None:
            head = self.log.read(base, FRAME_HEADER + RECORD_HEADER)
            if len(head) < FRAME_HEADER + AT_STORED_MS + 8 or frame_header_length(head, 0, len(head), base) < 0:
                return None
            stored_ms = self._first_stored_ms[base] = record_stored_ms(head, FRAME_HEADER)
        return stored_ms


def entries_below(run: bytes, position: int) -> int:
    """How many of a run's entries lie before `position` in the log."""
    low, high = 0, len(run) // ENTRY
    while low < high:
        middle = (low + high) >> 1
        if entry_position(run, middle) < position:
            low = middle + 1
        else:
            high = middle
    return low


def save_high_water(meta: MetaTables, queue_id: int, next_offset: int) -> None:
    """Queue the write that keeps the queue's next offset when the log has no record of it any more."""
    meta.put(OWN, b"H" + _KEY64.pack(queue_id), _U64.pack(next_offset))


def delete_files(files: Files, directory: str, paths: list[str]) -> None:
    """Unlink oldest first, each durably before the next, so that a crash leaves no hole; after an error the rest stays in `paths`."""
    try:
        while paths:
            with suppress(FileNotFoundError):
                files.unlink(paths[0])
            files.fsync_dir(directory)
            del paths[0]
    except OSError as error:
        logger.error("retention: cannot delete a segment: %s", error)
