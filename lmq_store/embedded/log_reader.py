"""Reads messages by position: from the batch cache, else from cached blocks of the log file.

Bad records are counted, reported once each with their place, and passed over: the reader goes on after them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

import cython

from lmq_store.api.model import Message
from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.frame import next_record
from lmq_store.embedded.log_format import BAD_MAGIC, ENTRY, FAULTS, FRAME_HEADER, FRAME_MAGIC, MAX_RECORD, MESSAGE, RECORD_HEADER
from lmq_store.embedded.recent import Recent
from lmq_store.embedded.record import check_record, decode_message, frame_header_length, record_size, record_type

if not cython.compiled:
    from lmq_store.embedded.record import get_u32, get_u64

BLOCK = 256 << 10
"""Log bytes read and cached at a time, where what is wanted next lies in them too."""
LONE = 512
"""Log bytes read for one message whose size is not known."""

logger = logging.getLogger(__name__)


class LogReader:
    """Messages of the log by position. Keeps at most `cache_bytes` of log blocks."""

    __slots__ = ("_at_base", "_at_block", "_blocks", "_reported", "bad_records", "collected_bytes", "log", "max_blocks", "recent")

    def __init__(self, log: CommitLog, recent: Recent, cache_bytes: int) -> None:
        self.log = log
        self.recent = recent
        self.max_blocks = max(2, cache_bytes // BLOCK)
        self.bad_records = 0
        self.collected_bytes = 0
        """Record bytes of the messages that `collect` has found since this was last set to 0."""
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._at_block = b""
        """The block used last, which begins at `_at_base`: most reads go on in it."""
        self._at_base = 0
        self._reported: set[int] = set()

    def collect(self, entries: bytes, first_offset: int, max_bytes: int, messages: list[Message], offsets: list[int]) -> int:
        """Add the messages of consecutive index entries, until `max_bytes` would be passed; how many entries were done.

        The first message is added whatever its size. Entries whose message is not readable are done without one.
        """
        count = len(entries) // ENTRY
        for index in range(count):
            size = get_u32(entries, index * ENTRY + 8)
            if self.collected_bytes and self.collected_bytes + size > max_bytes:
                return index
            position = get_u64(entries, index * ENTRY)
            message = self.recent.find(position)
            if message is None:
                near = index + 1 < count and get_u64(entries, (index + 1) * ENTRY) - position < BLOCK
                message = self.stored(position, size, near)
                if message is None:
                    continue
            messages.append(message)
            offsets.append(first_offset + index)
            self.collected_bytes += size
        return count

    def stored(self, position: int, size: int, near: bool) -> Message | None:
        """The message at `position`, from the file; None when the log no longer has it, or when its bytes are bad (reported).

        `near` says that others close behind it are wanted too: then the whole block is read and kept.
        """
        block = self._at_block
        at = position - self._at_base
        if at < 0 or at + size > len(block):
            block, at = self._bytes(position, size) if near else self._lone(position, size)
        return self._checked(block, at, position, size)

    def _checked(self, block: bytes, at: int, position: int, size: int) -> Message | None:
        if len(block) - at < size:
            return None
        fault = check_record(block, at, at + size, position)
        if fault != size:
            self._report(position, fault)
            return None
        return decode_message(block, at) if record_type(block, at) == MESSAGE else None

    def message_at(self, position: int) -> Message | None:
        """The message whose record begins at `position`; None where no message's record does."""
        found = self.recent.find(position)
        if found is not None:
            return found
        block, at = self._lone(position, LONE)
        if len(block) - at < RECORD_HEADER or record_type(block, at) != MESSAGE:
            return None
        size = record_size(block, at)
        if not RECORD_HEADER <= size <= MAX_RECORD:
            return None
        if len(block) - at < size:
            block, at = self._lone(position, size)
        return self._checked(block, at, position, size)

    def scan(self, position: int, max_bytes: int, end: int) -> tuple[list[Message], int]:
        """The messages of the log between `position` (a record's or a frame's) and `end`, at most `max_bytes` of it.

        Returns them and the position to go on at.
        """
        messages: list[Message] = []
        stop = min(end, position + max_bytes)
        asked = position
        while position < stop:
            before = position
            block, at = self._around(position)
            position = self._scan_block(block, at, position, stop, messages)
            if position == before:  # what begins here goes on behind the block
                position = self._scan_long(position, stop, messages)
            if position == before:  # what is here is neither record nor frame
                position = self._pass_over(position, end, position != asked)
        return messages, position

    def forget(self) -> None:
        """Drop all cached blocks."""
        self._blocks.clear()
        self._at_block = b""

    def _scan_block(self, block: bytes, at: int, position: int, stop: int, messages: list[Message]) -> int:
        length = len(block)
        while position < stop and at + 4 <= length:
            first = record_size(block, at)
            if first == FRAME_MAGIC:
                if at + FRAME_HEADER > length:
                    break
                at += FRAME_HEADER
                position += FRAME_HEADER
                continue
            if first < RECORD_HEADER or first > MAX_RECORD or at + first > length:
                break
            fault = check_record(block, at, length, position)
            if fault < 0:
                self._report(position, fault)
            elif record_type(block, at) == MESSAGE:
                messages.append(self.recent.find(position) or decode_message(block, at))
            at += first
            position += first
        return position

    def _scan_long(self, position: int, stop: int, messages: list[Message]) -> int:
        head = self.log.read(position, RECORD_HEADER)
        if len(head) < FRAME_HEADER:
            return position
        size = record_size(head, 0)
        if size == FRAME_MAGIC:
            return position + FRAME_HEADER if frame_header_length(head, 0, len(head), position) > 0 else position
        if size < RECORD_HEADER or size > MAX_RECORD:
            return position
        block = self.log.read(position, size)
        return self._scan_block(block, 0, position, stop, messages)

    def _pass_over(self, position: int, end: int, is_damage: bool) -> int:
        """The next intact record behind a place that is not readable, or the end of its segment.

        No damage is reported where the place came from outside: it may be no record's at all.
        """
        if is_damage:
            self._report(position, BAD_MAGIC)
        segment = self.log.segment_at(position)
        if segment is None:
            return end
        return next_record(self.log, position + 1, segment.end)

    def _bytes(self, position: int, size: int) -> tuple[bytes, int]:
        """(bytes, index of `position` in them): `size` bytes from there, where the segment has them."""
        block, at = self._around(position, size)
        if at + size <= len(block):
            self._at_block = block
            self._at_base = position - at
            return block, at
        return self.log.read(position, size), 0

    def _lone(self, position: int, size: int) -> tuple[bytes, int]:
        """(bytes, index of `position` in them): from the block where it is cached, else only these bytes are read."""
        segment = self.log.segment_at(position)
        if segment is None:
            return b"", 0
        at = (position - segment.base) % BLOCK
        block = self._blocks.get(position - at)
        if block is not None and at + size <= len(block):
            return block, at
        return self.log.read(position, size), 0

    def _around(self, position: int, size: int = BLOCK) -> tuple[bytes, int]:
        """The cached block that holds `position`, and where in it; at least `size` bytes from there if block and segment have them."""
        segment = self.log.segment_at(position)
        if segment is None:
            return b"", 0
        start = position - (position - segment.base) % BLOCK
        return self._block(start, min(BLOCK, segment.end - start, position + size - start)), position - start

    def _block(self, start: int, needed: int) -> bytes:
        """The cached block at `start`, read again when it was cached with fewer bytes than `needed`."""
        block = self._blocks.get(start)
        if block is not None and len(block) >= needed:
            self._blocks.move_to_end(start)
            return block
        block = self.log.read(start, BLOCK)
        self._blocks[start] = block
        if len(self._blocks) > self.max_blocks:
            self._blocks.popitem(last=False)
        return block

    def _report(self, position: int, fault: int) -> None:
        self.bad_records += 1
        if position not in self._reported and len(self._reported) < 10_000:
            self._reported.add(position)
            logger.error("log position %d: record %s; passed over", position, FAULTS.get(fault, "is not readable"))
