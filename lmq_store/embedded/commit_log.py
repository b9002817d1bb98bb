"""The commit log: segments that follow each other without a gap, so that a position is a place in one endless file.

A segment's first position is where the one before it ends. Frames never span segments. Writing goes to the file (the page
cache); who makes it durable is group_commit.py.
"""

from __future__ import annotations

from bisect import bisect_right

from lmq_store.api.errors import CorruptionError
from lmq_store.embedded.files import Buffer, Files
from lmq_store.embedded.segment import Segment, segment_base

ALLOCATE = 16 << 20
"""Space is reserved in steps of this: a file that only grows into reserved space has cheaper syncs, a new store stays small."""
OPEN_SEGMENTS = 64
"""Old segments that are kept open for reading."""


class CommitLog:
    """Appends frames at `end`; reads anywhere from `start` on."""

    def __init__(self, files: Files, directory: str, segment_bytes: int) -> None:
        self.files = files
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.end = 0
        self.unsynced: Segment | None = None
        """A segment that was completed since the last sync began: it has to be synced too."""
        self._opened: list[Segment] = []

    @property
    def start(self) -> int:
        """The lowest position that is still there."""
        return self.bases[0] if self.bases else self.end

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def load(self) -> None:
        """Find the segments of the folder. Their ends are taken from their neighbours; the last one's is its file's length."""
        bases = sorted(base for name in self.files.listdir(self.directory) if (base := segment_base(name)) is not None)
        for index, base in enumerate(bases):
            segment = Segment(self.files, self.directory, base, bases[index + 1] if index + 1 < len(bases) else base)
            self.segments.append(segment)
        self.bases = bases
        if self.segments:
            last = self.active
            last.end = last.base + self.files.size(last.open(read_only=True))
            self.end = last.end

    def create(self, base: int) -> None:
        """Begin a new segment at `base`; its name is durable on return. Raises OSError where the disk has no room."""
        segment = Segment(self.files, self.directory, base, base)
        handle = segment.open(create=True)
        try:
            self._allocate(segment, 1)
            self.files.fdatasync(handle)
            self.files.fsync_dir(self.directory)
        except OSError:
            segment.close()  # a full disk is tried again and again
            raise
        self.segments.append(segment)
        self.bases.append(base)
        self.end = base

    def check_lengths(self, start: int, end: int) -> None:
        """Look at the files of the segments from `start` to `end`, which are complete. Raises CorruptionError where one is too short."""
        for segment in self.segments:
            if segment.base < start or segment.end > end:
                continue
            is_open = segment.handle >= 0
            length = self.files.size(segment.handle if is_open else segment.open(read_only=True))
            if not is_open:
                segment.close()
            if length < segment.end - segment.base:
                raise CorruptionError(
                    f"{segment.path} is cut: it has {length} of {segment.end - segment.base} bytes; --repair keeps all that is readable"
                )

    def resume(self, end: int) -> None:
        """Go on writing at `end`: the last segment is cut there and its space reserved again. Durable on return."""
        last = self.active
        handle = last.open()
        self.files.truncate(handle, end - last.base)
        last.allocated = end - last.base
        self._allocate(last, last.allocated + 1)
        self.files.fdatasync(handle)
        last.end = end
        self.end = end

    def room(self) -> int:
        """Bytes that still fit into the active segment."""
        return self.active.base + self.segment_bytes - self.end

    def write(self, frame: Buffer) -> None:
        """Write the frame at `end`, in a new segment where it does not fit. On OSError the log's end has not moved."""
        if len(frame) > self.room() and self.end > self.active.base:
            self.roll()
        active = self.active
        at = self.end - active.base
        if at + len(frame) > active.allocated:
            self._allocate(active, at + len(frame))
        self.files.pwrite(active.handle, frame, at)
        self.end += len(frame)
        active.end = self.end

    def _allocate(self, segment: Segment, wanted: int) -> None:
        """Reserve space for `wanted` bytes of the file and some more. Raises OSError where the disk has no room."""
        step = max(segment.allocated + ALLOCATE, wanted)
        target = max(min(step, self.segment_bytes), wanted)
        self.files.fallocate(segment.handle, segment.allocated, target - segment.allocated)
        segment.allocated = target

    def roll(self) -> None:
        """Complete the active segment and begin the next one."""
        full = self.active
        self.create(self.end)
        if self.unsynced is not None:  # two rolls within one sync: rare, and then the wait is fair
            self.files.fdatasync(self.unsynced.handle)
        self.unsynced = full

    def trim_completed(self, segment: Segment) -> None:
        """Give back the space that a completed (and synced) segment had reserved."""
        self.files.truncate(segment.handle, segment.end - segment.base)
        self._remember(segment)

    def segment_at(self, position: int) -> Segment | None:
        """The segment that holds `position`."""
        index = bisect_right(self.bases, position) - 1
        if index < 0:
            return None
        segment = self.segments[index]
        return segment if position < segment.end else None

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`, not beyond the end of its segment; b"" where there is none."""
        segment = self.segment_at(position)
        if segment is None:
            return b""
        if segment.handle < 0:
            segment.open(read_only=True)
            self._remember(segment)
        return segment.read(position, length)

    def drop_first(self) -> Segment:
        """The oldest segment is no longer part of the log (retention); its file is still there."""
        segment = self.segments.pop(0)
        self.bases.pop(0)
        if segment in self._opened:
            self._opened.remove(segment)
        segment.close()
        return segment

    def remove_last(self) -> None:
        """Delete the newest segment: nothing in it was ever durable. Durable on return."""
        segment = self.segments.pop()
        self.bases.pop()
        segment.close()
        self.files.unlink(segment.path)
        self.files.fsync_dir(self.directory)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()

    def _remember(self, segment: Segment) -> None:
        self._opened.append(segment)
        if len(self._opened) > OPEN_SEGMENTS:
            oldest = self._opened.pop(0)
            if oldest is not self.active and oldest is not self.unsynced:
                oldest.close()
