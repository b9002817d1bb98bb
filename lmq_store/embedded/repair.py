"""Mends a damaged log in place (`--repair`): keeps every intact record where it is, lists every byte that is not kept.

Bytes that are no intact record become hole records, frame headers that are lost are written anew (docs/formats.md, "Repair").
What is replaced is first copied to `DIR/repair/<position>.bin`.
"""

from __future__ import annotations

import logging

from lmq_store.api.errors import CorruptionError
from lmq_store.embedded.commit_log import CommitLog
from lmq_store.embedded.files import Files
from lmq_store.embedded.frame import next_frame
from lmq_store.embedded.log_format import AT_MAGIC, FRAME_HEADER, HOLE, RECORD_HEADER, RECORD_MAGIC
from lmq_store.embedded.record import check_record, frame_header_length, put_frame_header, put_plain, record_stored_ms
from lmq_store.embedded.segment import Segment

_MAGIC = RECORD_MAGIC.to_bytes(2, "little")

logger = logging.getLogger(__name__)


class LogRepair:
    """Repairs one folder's log; `report` has a line for each place."""

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory
        self.report: list[str] = []
        self._stored_ms = 0

    def lost(self, position: int, end: int, why: str) -> None:
        """Report bytes that are not kept."""
        line = f"position {position}: {end - position} bytes lost: {why}"
        self.report.append(line)
        logger.error("repair: %s", line)

    def mend(self, log: CommitLog, position: int, segment: Segment, stored_ms: int) -> None:
        """Make intact frames of what lies between `position` and the segment's next intact frame, or its end."""
        self._stored_ms = stored_ms  # a hole is as old as the record before it
        found = next_frame(log, position + 1, segment.end)
        end = segment.end if found is None else found[0]
        data = log.read(position, end - position)
        self._keep_copy(position, data)
        data += bytes(end - position - len(data))  # the file was cut short
        mended = bytearray(end - position)
        at = 0
        while at < len(data):
            stop = self._frame_end(data, at, position)
            self._mend_frame(data, at, stop, position, mended)
            at = stop
        handle = segment.open()
        self.files.pwrite(handle, mended, position - segment.base)
        self.files.fdatasync(handle)

    def _frame_end(self, data: bytes, at: int, position: int) -> int:
        """Where the frame at `at` ends: by its header, else at the next place that has one."""
        length = frame_header_length(data, at, len(data), position + at)
        if length > 0:
            return min(at + length, len(data))
        for place in range(at + FRAME_HEADER + RECORD_HEADER, len(data) - FRAME_HEADER):
            if data[place] == 0x46 and frame_header_length(data, place, len(data), position + place) > 0:
                return place
        return len(data)

    def _mend_frame(self, data: bytes, at: int, stop: int, position: int, mended: bytearray) -> None:
        """Copy the frame's intact records to `mended`, holes between them, and a header before them."""
        places: list[int] = []
        place = at + FRAME_HEADER
        while place < stop:
            size = check_record(data, place, stop, position + place)
            if size > 0:
                mended[place : place + size] = data[place : place + size]
                self._stored_ms = record_stored_ms(data, place)
            else:
                if stop - place < RECORD_HEADER and places:  # too little for a hole of its own: the record before goes too
                    place = places.pop()
                size = self._next_record(data, place, stop, position) - place
                if size < RECORD_HEADER:
                    raise CorruptionError(f"position {position + place}: {size} bytes that no repair can pass over")
                put_plain(mended, place, HOLE, position + place, self._stored_ms, bytes(size - RECORD_HEADER))
                self.lost(position + place, position + place + size, "no intact record")
            places.append(place)
            place += size
        put_frame_header(mended, at, stop - at, position, position + at, len(places))

    def _next_record(self, data: bytes, place: int, stop: int, position: int) -> int:
        """The next place, at least a header behind `place`, where an intact record begins; `stop` if none does."""
        if stop - place <= RECORD_HEADER:
            return stop
        found = data.find(_MAGIC, place + RECORD_HEADER + AT_MAGIC, stop)
        while found >= 0:
            start = found - AT_MAGIC
            if check_record(data, start, stop, position + start) > 0:
                return start
            found = data.find(_MAGIC, found + 1, stop)
        return stop

    def _keep_copy(self, position: int, data: bytes) -> None:
        folder = f"{self.directory}/repair"
        self.files.makedirs(folder)
        handle = self.files.open(f"{folder}/{position:020d}.bin", create=True)
        try:
            self.files.pwrite(handle, data, 0)
            self.files.fdatasync(handle)
        finally:
            self.files.close(handle)
        self.files.fsync_dir(folder)
