"""POP: one group's progress through one queue, message by message. Pure: the caller brings the clock and the messages.

A message is *lent* with an invisible time. It is acknowledged by its handle, or given back, or its time runs out: then it
*waits* to be lent again, before anything new is. `committed_offset` is the lowest offset that is neither acknowledged nor
given up. The same rules as Apache RocketMQ's POP consumption, for one (queue, group).
"""

from __future__ import annotations

import struct
from collections import deque
from heapq import heapify, heappop, heappush

from lmq_store.api.errors import FormatError

MAX_DELIVERIES = 16
"""A message lent so often and never acknowledged goes to the dead-letter queue."""

MAX_UNACKED = 10_000
"""So many messages of one (queue, group) may be lent or waiting: no new one is lent beyond it."""

_ROW_VERSION = 1
_ROW_HEAD = struct.Struct("<BQQI")


class PopState:
    """Which offsets of a queue a group still owes. Offsets are queue offsets, times milliseconds since the epoch."""

    __slots__ = ("_heap", "_in_heap", "_order", "_waiting", "changed", "deadlines", "next_offset", "unacked")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """The lowest offset that was never lent."""
        self.unacked: dict[int, int] = {}
        """Offset → deliveries so far, of what is lent or waits to be lent again."""
        self.deadlines: dict[int, int] = {}
        """Offset → when its lending runs out; an unacknowledged offset that is not here waits."""
        self.changed = False
        """Something happened since the row was last written; whoever writes it clears this."""
        self._order: deque[int] = deque()
        """Offsets in the order of their first lending, which is their own order; those that are done leave once they are the first."""
        self._heap: list[tuple[int, list[int]]] = []
        """Heap of (deadline, offsets lent until then); an offset whose deadline is another by now is stale there."""
        self._in_heap = 0
        self._waiting: list[int] = []
        """Heap of offsets to lend again; one that is done or lent meanwhile is stale, one may be there twice."""

    # --- what the group holds ---

    @property
    def committed_offset(self) -> int:
        """The lowest offset that is not done: everything below it is acknowledged or given up."""
        return self._order[0] if self._order else self.next_offset

    def room(self) -> int:
        """How many new messages may still be lent."""
        return max(0, MAX_UNACKED - len(self.unacked))

    def next_deadline_ms(self) -> int | None:
        """When the next lending runs out, if nothing changes before."""
        while self._heap:
            deadline_ms, offsets = self._heap[0]
            if any(self.deadlines.get(offset) == deadline_ms for offset in offsets):
                return deadline_ms
            self._pop_heap()
        return None

    def waiting(self, limit: int) -> list[int]:
        """The lowest offsets (at most `limit`, ascending) to be lent again; they stay waiting until `lend` or `done`."""
        found: list[int] = []
        while self._waiting and len(found) < limit:
            offset = heappop(self._waiting)
            if offset in self.unacked and offset not in self.deadlines and (not found or found[-1] != offset):
                found.append(offset)
        for offset in found:
            heappush(self._waiting, offset)
        return found

    # --- what happens to it ---

    def revive(self, now_ms: int) -> int:
        """Lendings whose time is over wait again; returns how many."""
        count = 0
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, offsets = self._pop_heap()
            for offset in offsets:
                if self.deadlines.get(offset) == deadline_ms:
                    self._wait(offset)
                    count += 1
        return count

    def lend(self, offsets: list[int], deadline_ms: int) -> list[int]:
        """Lend waiting offsets again, or new ones (>= `next_offset`), ascending: how often each was lent with this time.

        Offsets between `next_offset` and a new one are holes (taken by retention) and count as done.
        """
        unacked, deadlines = self.unacked, self.deadlines
        deliveries = []
        for offset in offsets:
            before = unacked.get(offset)
            if before is None:
                if offset < self.next_offset:
                    raise ValueError(f"offset {offset} is neither new nor waiting")
                before = 0
                self.next_offset = offset + 1
                self._order.append(offset)
            elif offset in deadlines:
                raise ValueError(f"offset {offset} is lent")
            unacked[offset] = before + 1
            deadlines[offset] = deadline_ms
            deliveries.append(before + 1)
        if offsets:
            self._push_heap(deadline_ms, offsets)
        return deliveries

    def skip_to(self, offset: int) -> None:
        """Nothing is readable below `offset`: what was never lent there counts as done."""
        if offset > self.next_offset:
            self.next_offset = offset
            self.changed = True

    def ack(self, handle: int) -> bool:
        """Acknowledge: False for a handle that is done already, or older than the message's latest lending.

        A handle whose time has run out still counts as long as the message has not been lent again.
        """
        offset = handle >> 8
        deliveries = self.unacked.get(offset)
        if deliveries is None or deliveries & 0xFF != handle & 0xFF:
            return False
        self.done(offset)
        return True

    def done(self, offset: int) -> None:
        """The message needs no more deliveries: acknowledged, expired, dead-lettered or no longer in the log."""
        if self.unacked.pop(offset, None) is not None:
            self.deadlines.pop(offset, None)
            self.changed = True
            order = self._order
            while order and order[0] not in self.unacked:
                order.popleft()

    def settle(self, offset: int) -> None:
        """The message is done, also where its lending is not known any more: what was passed over then waits to be lent."""
        if offset < self.next_offset:
            self.done(offset)
            return
        for passed_over in range(self.next_offset, offset):
            self.unacked[passed_over] = 0
            self._order.append(passed_over)
            heappush(self._waiting, passed_over)
        self.skip_to(offset + 1)

    def change_invisible(self, handles: list[int], deadline_ms: int | None) -> int:
        """Lend until `deadline_ms`, or give back at once (None); handles that are stale are passed over.

        What waits since its time ran out stays waiting: another may be about to get it. Returns how many were changed.
        """
        changed = []
        for handle in handles:
            offset = handle >> 8
            if offset in self.deadlines and self.unacked[offset] & 0xFF == handle & 0xFF:
                changed.append(offset)
                if deadline_ms is None:
                    self._wait(offset)
                else:
                    self.deadlines[offset] = deadline_ms
        if changed and deadline_ms is not None:
            self._push_heap(deadline_ms, changed)
        return len(changed)

    def give_back_all(self) -> None:
        """Nobody holds what was lent (all consumers are gone): all of it waits."""
        for offset in list(self.deadlines):
            self._wait(offset)

    # --- inside ---

    def _wait(self, offset: int) -> None:
        del self.deadlines[offset]
        heappush(self._waiting, offset)
        self.changed = True

    def _push_heap(self, deadline_ms: int, offsets: list[int]) -> None:
        self.changed = True
        heappush(self._heap, (deadline_ms, offsets))
        self._in_heap += len(offsets)
        if self._in_heap > 4 * len(self.deadlines) + 64:  # lendings are renewed often: drop the stale entries
            self.rebuild_heap()

    def _pop_heap(self) -> tuple[int, list[int]]:
        top = heappop(self._heap)
        self._in_heap -= len(top[1])
        return top

    def rebuild_heap(self) -> None:
        """Make the heap of deadlines from what is lent."""
        by_deadline: dict[int, list[int]] = {}
        for offset, deadline_ms in self.deadlines.items():
            by_deadline.setdefault(deadline_ms, []).append(offset)
        self._heap = list(by_deadline.items())
        heapify(self._heap)
        self._in_heap = len(self.deadlines)

    def restore(self, offset: int, deliveries: int, deadline_ms: int | None) -> None:
        """Take up an unacknowledged offset of a stored row, in ascending order; `rebuild_heap` ends it."""
        self.unacked[offset] = deliveries
        self._order.append(offset)
        if deadline_ms is None:
            self._waiting.append(offset)  # ascending: a heap already
        else:
            self.deadlines[offset] = deadline_ms


def handle_of(offset: int, deliveries: int) -> int:
    """The handle of one lending: it names the message and which lending of it this is, and outlives a restart."""
    return offset << 8 | deliveries & 0xFF


def encode_row(state: PopState) -> bytes:
    """The state as a row of the GROUP table (docs/formats.md, "POP rows")."""
    deadlines = state.deadlines
    base_ms = min(deadlines.values(), default=0)
    row = bytearray(_ROW_HEAD.pack(_ROW_VERSION, state.next_offset, base_ms, len(state.unacked)))
    before = 0
    for offset in sorted(state.unacked):
        _put_varint(row, offset - before)
        _put_varint(row, state.unacked[offset])
        _put_varint(row, deadlines[offset] - base_ms + 1 if offset in deadlines else 0)
        before = offset
    return bytes(row)


def decode_row(row: bytes) -> PopState:
    """The state that `encode_row` wrote. Raises FormatError for anything else."""
    try:
        version, next_offset, base_ms, count = _ROW_HEAD.unpack_from(row)
        if version != _ROW_VERSION:
            raise FormatError(f"POP row of version {version}; this program knows {_ROW_VERSION}")
        state = PopState(next_offset)
        at = _ROW_HEAD.size
        offset = 0
        for _ in range(count):
            gap, at = _get_varint(row, at)
            deliveries, at = _get_varint(row, at)
            deadline, at = _get_varint(row, at)
            offset += gap
            state.restore(offset, deliveries, base_ms + deadline - 1 if deadline else None)
    except (struct.error, IndexError) as error:
        raise FormatError(f"POP row is cut short: {error}") from None
    if at != len(row) or len(state.unacked) != count or (count and offset >= next_offset):
        raise FormatError("POP row contradicts itself")
    state.rebuild_heap()
    return state


def _put_varint(row: bytearray, value: int) -> None:
    while value > 0x7F:
        row.append(value & 0x7F | 0x80)
        value >>= 7
    row.append(value)


def _get_varint(row: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = row[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
