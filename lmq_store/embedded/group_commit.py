"""Group commit: who waits for which position, and when the next sync may begin. Never more than one sync is in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from lmq_store.api.errors import StoreError, StorePoisoned
from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.segment import Segment
from lmq_store.embedded.sync_thread import Sync

INLINE_BYTES = 8192
INLINE_US = 500
SLOW_US = 10_000
"""Up to INLINE_BYTES are synced in the loop while syncs take less than INLINE_US, as a running mean (one that
took longer than SLOW_US counts as that: a single stall is no slow disk)."""

Done = Callable[[StoreError | None], None]


class GroupCommit:
    """`durable_end` follows the log's end, one sync at a time; `done` callbacks run in the order of their calls."""

    def __init__(self, log: CommitLog, sync: Sync) -> None:
        self.log = log
        self.sync = sync
        self.durable_end = log.end
        self.acknowledged_end = log.end
        """What `done` goes by: the durable end, or (flush "async") the end of what was written."""
        self.in_flight = False
        self.poisoned: StorePoisoned | None = None
        self.syncs = 0
        self.sync_us = [0] * 32
        """How long syncs took: at index n those of less than 2**n microseconds (and not less than half of it)."""
        self.sync_us_total = 0
        self._began = 0.0
        self._mean_us = 0.0
        self._syncing_end = 0
        self._completed: Segment | None = None
        self._waiting: deque[tuple[int, Done]] = deque()

    def begin(self, durable_end: int) -> None:
        """Everything below is durable already."""
        self.durable_end = self.acknowledged_end = durable_end

    def wait_for(self, position: int, done: Done) -> None:
        """Call `done` once everything below `position` counts as stored: now, if it does already."""
        if self.poisoned is not None:
            done(self.poisoned)
        elif position <= self.acknowledged_end and not self._waiting:
            done(None)
        else:
            self._waiting.append((position, done))

    def start(self) -> None:
        """Begin a sync of what is written, if that is more than what is durable and none is in flight."""
        if self._take_up():
            self.in_flight = True
            self.sync.start(self.log.active.handle, self._earlier())

    def light(self, collected: int) -> bool:
        """True where a sync in the loop is the better one: few bytes, a quick disk. It saves the way to the thread and back, a
        third of the CPU of a message that comes alone; what comes meanwhile waits for a fraction of a millisecond."""
        return collected <= INLINE_BYTES and self._mean_us < INLINE_US

    def sync_now(self) -> bool:
        """Sync what is written, in the loop; True when the durable end moved."""
        if not self._take_up():
            return False
        return self._settled(self.sync.now(self.log.active.handle, self._earlier()))

    def finished(self) -> bool:
        """Take the answer of the sync in flight, if it is there; True when the durable end moved."""
        if not self.in_flight:
            return False
        failed = self.sync.answer()
        if failed is None:
            return False
        self.in_flight = False
        return self._settled(failed)

    def _take_up(self) -> bool:
        """Note what the next sync covers; False where there is nothing, or one is in flight."""
        log = self.log
        if self.in_flight or self.poisoned is not None or log.end == self.durable_end:
            return False
        self._began = monotonic()
        self._syncing_end = log.end
        self._completed = log.unsynced
        log.unsynced = None
        return True

    def _earlier(self) -> int:
        return self._completed.handle if self._completed is not None else -1

    def _settled(self, failed: int) -> bool:
        self.syncs += 1
        took_us = int((monotonic() - self._began) * 1e6)
        self.sync_us[min(took_us.bit_length(), 31)] += 1
        self.sync_us_total += took_us
        self._mean_us += (min(took_us, SLOW_US) - self._mean_us) / 16
        if failed:
            self.poison(f"fdatasync of the log failed (errno {failed}): nothing more can be acknowledged")
            return False
        self.durable_end = self._syncing_end
        self.acknowledged_end = max(self.acknowledged_end, self.durable_end)
        if self._completed is not None:
            self.log.trim_completed(self._completed)
            self._completed = None
        return True

    def poison(self, reason: str) -> None:
        """Nothing is acknowledged from here on; everyone who waits is told."""
        if self.poisoned is None:
            self.poisoned = StorePoisoned(reason)
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(self.poisoned)

    def run_callbacks(self) -> None:
        """Tell those whose position is stored, in order."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.acknowledged_end:
            waiting.popleft()[1](None)
