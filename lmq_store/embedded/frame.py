"""Finding frames in a log: one after the other where all is well, the next intact one where something is not."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.log_format import AT_MAGIC, CUT_SHORT, FRAME_HEADER, FRAME_MAGIC, MAX_RECORD, RECORD_HEADER, RECORD_MAGIC
from lmq_store.embedded.record import check_frame, check_record, frame_header_length, frame_synced_end, record_size

READ = 4 << 20
"""Bytes of the log read at a time."""

_MAGIC = struct.pack("<I", FRAME_MAGIC)
_RECORD_MAGIC = struct.pack("<H", RECORD_MAGIC)


def frames(log: CommitLog, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(bytes, index, length) of each frame between `position` and `end` of one segment; a negative length is a fault and the last."""
    data = b""
    at = 0
    while position < end:
        length = check_frame(data, at, len(data), position) if at < len(data) else CUT_SHORT
        if length == CUT_SHORT:
            wanted = max(READ, 2 * (len(data) - at)) if at == 0 else READ
            more = log.read(position, wanted)
            if len(more) <= len(data) - at:
                yield data, at, length
                return
            data, at = more, 0
            continue
        yield data, at, length
        if length < 0:
            return
        at += length
        position += length


def later_synced_frame(log: CommitLog, position: int) -> int | None:
    """The position of an intact frame behind `position` that was written when more than `position` was durable."""
    for segment in log.segments:
        place = max(position + 1, segment.base)
        while (found := next_frame(log, place, segment.end)) is not None:
            at, length, synced_end = found
            if synced_end > position:
                return at
            place = at + length
    return None


def next_frame(log: CommitLog, position: int, end: int) -> tuple[int, int, int] | None:
    """(position, length, synced end) of the first intact frame at or after `position`, before `end` of the same segment."""
    while position < end:
        data = log.read(position, min(READ, end - position))
        at = data.find(_MAGIC)
        while at >= 0:
            head = log.read(position + at, FRAME_HEADER)
            length = frame_header_length(head, 0, len(head), position + at)
            if length > 0:
                whole = log.read(position + at, length)
                if check_frame(whole, 0, len(whole), position + at) == length:
                    return position + at, length, frame_synced_end(whole, 0)
            at = data.find(_MAGIC, at + 1)
        if len(data) < len(_MAGIC):
            return None
        position += len(data) - len(_MAGIC) + 1
    return None


def next_record(log: CommitLog, position: int, end: int) -> int:
    """The position of the first intact record at or after `position`, before `end` of the same segment; `end` if there is none."""
    while position < end:
        data = log.read(position, min(READ, end - position))
        at = data.find(_RECORD_MAGIC, AT_MAGIC)
        while at >= 0:
            start = at - AT_MAGIC
            size = check_record(data, start, len(data), position + start)
            if size == CUT_SHORT:
                whole = log.read(position + start, min(record_size(data, start), MAX_RECORD))
                size = check_record(whole, 0, len(whole), position + start)
            if size > 0:
                return position + start
            at = data.find(_RECORD_MAGIC, at + 1)
        if len(data) <= RECORD_HEADER:
            return end
        position += len(data) - AT_MAGIC - 1
    return end


def last_byte(log: CommitLog, position: int) -> int:
    """The position behind the last byte that is not zero; `position` where only zeros follow."""
    last = position
    for segment in log.segments:
        place = max(position, segment.base)
        while place < segment.end:
            data = log.read(place, READ)
            if not data:
                break
            filled = len(data.rstrip(b"\0"))
            if filled:
                last = place + filled
            place += len(data)
    return last
