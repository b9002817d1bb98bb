"""One light queue's index: the entries that say where in the log its messages lie. Pure.

New entries gather in the queue's *tail* in memory; light_queues.py moves them to RocksDB as *runs*. An entry is 24 bytes
(log_format.ENTRY): position, size, flags, stored time.
"""

from __future__ import annotations

import cython

from lmq_store.api.model import UNKNOWN, LightQueue
from lmq_store.embedded.log_format import ENTRY

if not cython.compiled:
    from lmq_store.embedded.record import get_u32, get_u64, put_u32, put_u64

FIRST_TAIL = 4 * ENTRY
"""A tail begins with room for four entries: most queues of a million get one message now and then."""


@cython.no_gc
@cython.cclass
class IndexedQueue(LightQueue):
    """A light queue and the entries that are in memory only: offsets `tail_first` up to `tail_first + tail_count`."""

    __slots__ = ("dirty", "dropped", "tail", "tail_count", "tail_first", "tail_room")

    def __init__(self, id: int, name: bytes, next_offset: int = UNKNOWN) -> None:
        super().__init__(id, name, next_offset)
        self.tail: bytearray | None = None
        self.tail_first = 0
        self.tail_count = 0
        self.tail_room = 0
        self.dirty = False
        self.dropped = False

    def add(self, queue_offset: int, position: int, size: int, flags: int, stored_ms: int) -> None:
        """Append the entry of `queue_offset`, which follows the tail's last one."""
        if self.tail_count == 0:
            self.tail_first = queue_offset
        at = self.tail_count * ENTRY
        if at == self.tail_room:
            self.grow()
        tail: bytearray = self.tail  # type: ignore[assignment]
        put_u64(tail, at, position)
        put_u32(tail, at + 8, size)
        put_u32(tail, at + 12, flags)  # flags u8; the upper three bytes are reserved
        put_u64(tail, at + 16, stored_ms)
        self.tail_count += 1
        self.next_offset = queue_offset + 1

    def grow(self) -> None:
        """Make room for as many entries again."""
        if self.tail is None:
            self.tail = bytearray(FIRST_TAIL)
            self.tail_room = FIRST_TAIL
        else:
            self.tail.extend(bytes(self.tail_room))
            self.tail_room *= 2

    def below(self, position: int) -> int:
        """How many of the tail's entries lie before `position` in the log."""
        tail = self.tail
        if tail is None:
            return 0
        count = self.tail_count
        if get_u64(tail, (count - 1) * ENTRY) < position:
            return count
        low = 0
        while low < count:
            middle = (low + count) >> 1
            if get_u64(tail, middle * ENTRY) < position:
                low = middle + 1
            else:
                count = middle
        return low

    def take(self, count: int) -> None:
        """Forget the tail's first `count` entries: they are in RocksDB now."""
        if count == self.tail_count:
            self.tail = None
            self.tail_room = 0
        elif self.tail is not None:
            del self.tail[: count * ENTRY]
            self.tail_room -= count * ENTRY
        self.tail_count -= count
        self.tail_first += count

    def entries(self, start: int, stop: int) -> bytes:
        """The tail's entries `start` up to `stop` (counted from the tail's first)."""
        return b"" if self.tail is None else bytes(self.tail[start * ENTRY : stop * ENTRY])


def entry_position(run: bytes, index: int) -> int:
    return get_u64(run, index * ENTRY)


def entry_size(run: bytes, index: int) -> int:
    return get_u32(run, index * ENTRY + 8)


def entry_flags(run: bytes, index: int) -> int:
    return run[index * ENTRY + 12]


def entry_stored_ms(run: bytes, index: int) -> int:
    return get_u64(run, index * ENTRY + 16)
