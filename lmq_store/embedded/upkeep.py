"""What a store does beside its messages, in steps of about a millisecond: index flushes, persisting, watching the disk.

The tables follow the log at a distance: a crash replays at most what lies between. Flushing late is what makes the index
cheap (many entries of a queue go in one run), flushing at all is what bounds the replay.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmq_store.embedded.store import EmbeddedStore

INDEX_EVERY_MS = 2_000
INDEX_EVERY_BYTES = 48 << 20
"""Log bytes after which an index flush begins without waiting for its time."""
INDEX_EVERY_ENTRIES = 500_000
"""Entries in memory (24 bytes each, and room) after which it does."""
STEP_QUEUES = 50
"""Tails written in one turn: about 0.2 ms."""
STEPS = 400
"""A long list of queues makes longer steps, so that a flush ends after about so many turns,"""
STEP_QUEUES_MAX = 500
"""but not longer than this (a millisecond) while memory allows: others wait meanwhile."""
PERSIST_EVERY_BYTES = 64 << 20
"""Log bytes after which both databases are made durable."""
FREE_EVERY_BYTES = 16 << 20
"""Log bytes after which free space is looked at without waiting for the tick."""
RESUME_FACTOR = 1.25

logger = logging.getLogger(__name__)


class Upkeep:
    """Steps of the work beside the messages of one store."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.indexing = False
        self.persisted_end = 0
        """The files of both databases hold all that the log says below this position."""
        self.persist_wanted = False
        self._indexed_ms = 0
        self._persist_begun = store.log.end
        self._persisting: threading.Thread | None = None
        self._free_seen_end = 0

    def tick(self, now_ms: int) -> None:
        """Every 50 to 100 ms."""
        self._begin_index(now_ms)
        if self.indexing:
            self.index_step()
        self._persist_when_due()
        self.watch_free_space()

    def turn(self) -> None:
        """At the end of a turn that wrote something: a step of a flush under way, so that it keeps up with the load."""
        store = self.store
        if self.indexing:
            self.index_step()
        elif store.appender.tail_entries > INDEX_EVERY_ENTRIES:
            self.indexing = True
        if store.log.end - self._free_seen_end >= FREE_EVERY_BYTES:
            self.watch_free_space()

    def index_step(self) -> None:
        """Write the next tails; the step grows with what is left, so that a flush of a million queues ends too."""
        store = self.store
        step = max(STEP_QUEUES, store.queues.flushing // STEPS)
        if store.appender.tail_entries < 2 * INDEX_EVERY_ENTRIES:
            step = min(step, STEP_QUEUES_MAX)
        self.indexing = not store.queues.flush_step(store.appender, store.commits.durable_end, step)

    def finish(self) -> None:
        """Everything below the durable end goes to both databases, durably (at close)."""
        store = self.store
        durable_end = store.commits.durable_end
        while store.queues.flushed_position < durable_end:
            store.queues.flush_step(store.appender, durable_end, 10_000)
        store.meta.advance(durable_end)
        self.join()
        store.queues.database.flush()
        store.meta.database.flush()

    def join(self) -> None:
        """Wait for a persist under way."""
        if self._persisting is not None:
            self._persisting.join()

    def watch_free_space(self) -> None:
        """Refuse publishes below `min_free_bytes`; take them again at 1.25 times of it."""
        store = self.store
        self._free_seen_end = store.log.end
        free = store.files.free_bytes(store.directory)
        wanted = store.options.min_free_bytes
        if not store.disk_full and free < wanted:
            store.disk_full = True
            logger.error("disk nearly full: %d bytes free, min_free_bytes is %d: publishes are refused", free, wanted)
        elif store.disk_full and free >= wanted * RESUME_FACTOR and not store.write_refused:
            store.disk_full = False
            logger.warning("disk has room again: %d bytes free: publishes are taken", free)

    def _begin_index(self, now_ms: int) -> None:
        store = self.store
        behind = store.commits.durable_end - store.queues.flushed_position
        waited_ms = now_ms - self._indexed_ms
        if self.indexing or behind <= 0:
            return
        if self.persist_wanted or behind >= INDEX_EVERY_BYTES or not 0 <= waited_ms < INDEX_EVERY_MS:
            self._indexed_ms = now_ms
            self.indexing = True
            store.meta.advance(store.commits.durable_end)

    def _persist_when_due(self) -> None:
        if self._persisting is not None and self._persisting.is_alive():
            return
        self._persisting = None
        store = self.store
        end = min(store.queues.flushed_position, store.meta.applied_position)
        if self.persist_wanted or store.commits.durable_end - self._persist_begun >= PERSIST_EVERY_BYTES:
            self.persist_wanted = False
            self._persist_begun = store.commits.durable_end
            self._persisting = threading.Thread(target=self._persist, args=(end,), name="lmq-persist", daemon=True)
            self._persisting.start()

    def _persist(self, end: int) -> None:
        """In a thread: RocksDB releases the interpreter lock while it writes."""
        self.store.queues.database.flush()
        self.store.meta.database.flush()
        self.persisted_end = end
