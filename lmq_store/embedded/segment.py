"""One file of the commit log: `DIR/log/<base position, 20 digits>.log`."""

from __future__ import annotations

from lmq_store.embedded.files import Files

SUFFIX = ".log"


def segment_name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def segment_base(name: str) -> int | None:
    """The base position in a segment's file name; None for other files."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if name.endswith(SUFFIX) and len(stem) == 20 and stem.isdigit() else None


class Segment:
    """Positions `base` up to `end`; the file may be longer (reserved space, zeros)."""

    __slots__ = ("allocated", "base", "end", "files", "handle", "path", "writable")

    def __init__(self, files: Files, directory: str, base: int, end: int) -> None:
        self.files = files
        self.path = f"{directory}/{segment_name(base)}"
        self.base = base
        self.end = end
        self.allocated = 0
        """File bytes that are reserved, while it is written to."""
        self.handle = -1
        self.writable = False

    def open(self, create: bool = False, read_only: bool = False) -> int:
        """The file's handle, opened where it is not yet."""
        if self.handle < 0 or (self.writable is False and not read_only):
            self.close()
            self.handle = self.files.open(self.path, create, read_only)
            self.writable = not read_only
        return self.handle

    def close(self) -> None:
        if self.handle >= 0:
            self.files.close(self.handle)
            self.handle = -1
            self.writable = False

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the segment's end."""
        length = min(length, self.end - position)
        if length <= 0:
            return b""
        return self.files.pread(self.handle if self.handle >= 0 else self.open(read_only=True), length, position - self.base)
