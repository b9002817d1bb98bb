"""Reads a log's segments in order, read-only, and says where they are not what was written.

For the tools (check, dump, stat): it opens nothing for writing, takes no lock and believes nothing that it has not
checked, so it works beside a running server: the log is append-only, and a frame that is being written is just not there
yet. docs/formats.md, "The log".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from lmq_store.embedded.files import Files
from lmq_store.embedded.log_format import CUT_SHORT, FAULTS, FRAME_HEADER, FRAME_MAGIC
from lmq_store.embedded.record import check_frame, check_record, frame_header_length, frame_synced_end
from lmq_store.embedded.segment import segment_base, segment_name

WINDOW = 1 << 20
"""Bytes read at once; a longer frame is read whole."""

_MAGIC_BYTES = FRAME_MAGIC.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One file of the log: `size` bytes from position `base` on. `missing` bytes lie before the next segment's base.

    The last one may have reserved space behind its last frame: zeros.
    """

    base: int
    path: str
    size: int
    missing: int = 0
    last: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """An intact frame: `data[at : at + length]`, at `position` of the log."""

    position: int
    data: bytes
    at: int
    length: int
    synced_end: int

    def records(self) -> Iterator[tuple[int, int]]:
        """(place in `data`, position) of each record."""
        place = self.at + FRAME_HEADER
        end = self.at + self.length
        while place < end:
            position = self.position + place - self.at
            size = check_record(self.data, place, end, position)
            yield place, position
            place += size


@dataclass(slots=True)
class Gap:
    """Bytes that are no intact frame. `torn` until a later frame says that they were synced once: then corruption."""

    position: int
    length: int
    fault: str
    torn: bool = True

    def __str__(self) -> str:
        kind = "unwritten or torn" if self.torn else "corrupt"
        return f"{self.length} {kind} bytes at position {self.position}: {self.fault}"


def segment_files(files: Files, log_directory: str) -> list[SegmentFile]:
    """The log's segments in order of their positions. What a file has reserved behind the next one's base is no part of it.

    Those that retention takes meanwhile are left out.
    """
    bases = sorted(base for name in files.listdir(log_directory) if (base := segment_base(name)) is not None)
    found = []
    for number, base in enumerate(bases):
        path = os.path.join(log_directory, segment_name(base))
        try:
            handle = files.open(path, read_only=True)
        except FileNotFoundError:  # retention took it since the listing
            continue
        size = files.size(handle)
        files.close(handle)
        room = bases[number + 1] - base if number + 1 < len(bases) else size
        found.append(SegmentFile(base, path, min(size, room), max(room - size, 0), number + 1 == len(bases)))
    return found


class LogWalk:
    """The frames of a log from a position on; what lies between them is collected in `gaps`."""

    def __init__(self, files: Files, log_directory: str) -> None:
        self.files = files
        self.segments = segment_files(files, log_directory)
        self.gaps: list[Gap] = []
        self.end = self.segments[0].base if self.segments else 0
        """Where the last intact frame read so far ends."""
        self.vanished = False
        """Retention took a segment while the log was read."""

    @property
    def start(self) -> int:
        """The lowest position that the log still has."""
        return self.segments[0].base if self.segments else 0

    def frames(self, position: int = 0) -> Iterator[Frame]:
        """Every intact frame that ends after `position`."""
        for number, segment in enumerate(self.segments):
            last = number + 1 == len(self.segments)
            if last or self.segments[number + 1].base > position:
                yield from self._segment_frames(segment, position)

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`, of one segment; b"" where the log has none."""
        for segment in self.segments:
            if segment.base <= position < segment.base + segment.size:
                try:
                    handle = self.files.open(segment.path, read_only=True)
                except FileNotFoundError:
                    return b""
                try:
                    return self.files.pread(handle, min(length, segment.base + segment.size - position), position - segment.base)
                finally:
                    self.files.close(handle)
        return b""

    def _segment_frames(self, segment: SegmentFile, position: int) -> Iterator[Frame]:
        try:
            handle = self.files.open(segment.path, read_only=True)
        except FileNotFoundError:
            self.vanished = True
            return
        try:
            window = _Window(self.files, handle, segment)
            at = 0
            while at < segment.size:
                length = window.intact_frame(at, position)
                if length < 0:
                    at = self._pass_over(window, at, FAULTS[length])
                    continue
                if segment.base + at + length > position:
                    frame = Frame(segment.base + at, window.data, at - window.start, length, window.synced_end(at))
                    self._was_synced(frame.synced_end)
                    yield frame
                at += length
                self.end = segment.base + at
            if segment.missing:
                self.gaps.append(Gap(segment.base + segment.size, segment.missing, "not in the file, which is cut"))
        finally:
            self.files.close(handle)

    def _pass_over(self, window: _Window, at: int, fault: str) -> int:
        """Find where the log goes on after the place `at` that is no frame; reserved space behind the last one is no gap."""
        beyond, only_zeros = window.find_frame(at)
        if window.intact_frame_now(at):  # a server was just writing it
            return at
        if not (only_zeros and window.segment.last and beyond == window.segment.size):
            self.gaps.append(Gap(window.segment.base + at, beyond - at, fault))
        return beyond

    def _was_synced(self, synced_end: int) -> None:
        for gap in self.gaps:
            if gap.position < synced_end:
                gap.torn = False


class _Window:
    """A part of one segment in memory; places are relative to the segment's start."""

    def __init__(self, files: Files, handle: int, segment: SegmentFile) -> None:
        self.files = files
        self.handle = handle
        self.segment = segment
        self.start = 0
        self.data = b""

    def intact_frame(self, at: int, position: int) -> int:
        """Length of the intact frame at `at`, or a negative fault. Frames below `position` are only stepped over."""
        base = self.segment.base
        self._load(at, FRAME_HEADER)
        length = frame_header_length(self.data, at - self.start, len(self.data), base + at)
        if length < 0:
            return length
        if at + length > self.segment.size:
            return CUT_SHORT
        if base + at + length <= position:
            return length
        self._load(at, length)
        return check_frame(self.data, at - self.start, len(self.data), base + at)

    def intact_frame_now(self, at: int) -> bool:
        """Whether there is an intact frame at `at`, read anew."""
        self.data = b""
        return self.intact_frame(at, 0) > 0

    def synced_end(self, at: int) -> int:
        return frame_synced_end(self.data, at - self.start)

    def find_frame(self, at: int) -> tuple[int, bool]:
        """(the next place after `at` with an intact frame, or the segment's end; whether only zeros lie between)."""
        only_zeros = True
        place = at
        while place < self.segment.size:
            self._load(place, min(WINDOW, self.segment.size - place))
            if place >= self.start + len(self.data):  # a server gave back the space that the file had reserved
                break
            found = self.data.find(_MAGIC_BYTES, place - self.start + (1 if place == at else 0))
            # The magic number may lie across two windows: the last three bytes are looked at again.
            beyond = self.start + found if found >= 0 else max(place + 1, self.start + len(self.data) - 3)
            if self.start + len(self.data) >= self.segment.size and found < 0:
                beyond = self.segment.size
            only_zeros = only_zeros and not any(self.data[place - self.start : beyond - self.start])
            if found >= 0 and self.intact_frame(beyond, 0) > 0:
                return beyond, only_zeros
            place = beyond + 1 if found >= 0 else beyond
            only_zeros = only_zeros and found < 0
        return self.segment.size, only_zeros

    def _load(self, at: int, length: int) -> None:
        if at < self.start or at + length > self.start + len(self.data):
            self.data = self.files.pread(self.handle, max(length, WINDOW), at)
            self.start = at
