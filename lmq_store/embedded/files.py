"""All file access of the store, behind one small port, so that tests can cut the power, tear writes and fail syncs.

Paths are strings, file handles are ints that only the `Files` that gave them understands (for `OsFiles`: file
descriptors). Every method raises OSError with the kernel's errno where the system call failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

Buffer = bytes | bytearray | memoryview

_WRITE_AT_MOST = 1 << 30
"""Linux transfers at most 0x7ffff000 bytes a call; half of that keeps the arithmetic obvious."""


class Files(Protocol):
    """What the store asks of a file system."""

    def open(self, path: str, create: bool = False, read_only: bool = False) -> int:
        """A handle; `create` makes an empty file where there is none. Its name is durable only after `fsync_dir`."""
        ...

    def close(self, handle: int) -> None: ...

    def pwrite(self, handle: int, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`. On an error any part of it may have been written."""
        ...

    def pread(self, handle: int, length: int, at: int) -> bytes:
        """Up to `length` bytes from byte `at`: shorter only where the file ends."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Everything written to the file before, and its length, is durable on return. After an error nothing is."""
        ...

    def fallocate(self, handle: int, at: int, length: int) -> None:
        """Reserve space; the file reads as zeros there and is at least `at + length` long."""
        ...

    def truncate(self, handle: int, length: int) -> None: ...

    def size(self, handle: int) -> int: ...

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` in one step; durable after `fsync_dir`."""
        ...

    def unlink(self, path: str) -> None: ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def makedirs(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None:
        """Names created, renamed and removed in the directory before are durable on return."""
        ...

    def free_bytes(self, path: str) -> int:
        """What an unprivileged process can still write to the file system of `path`."""
        ...


class OsFiles:
    """`Files` on the operating system: a handle is a file descriptor."""

    def open(self, path: str, create: bool = False, read_only: bool = False) -> int:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o640)

    def close(self, handle: int) -> None:
        os.close(handle)

    def pwrite(self, handle: int, data: Buffer, at: int) -> None:
        done = os.pwrite(handle, data, at) if len(data) <= _WRITE_AT_MOST else 0
        if done == len(data):
            return
        rest = memoryview(data)
        while done < len(data):
            done += os.pwrite(handle, rest[done : done + _WRITE_AT_MOST], at + done)

    def pread(self, handle: int, length: int, at: int) -> bytes:
        data = os.pread(handle, length, at)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:  # a signal or the 2 GiB limit of one call can shorten a read that is not at the end
            data = os.pread(handle, length - got, at + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def fdatasync(self, handle: int) -> None:
        _FDATASYNC(handle)

    def fallocate(self, handle: int, at: int, length: int) -> None:
        posix_fallocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
        if posix_fallocate is not None:
            posix_fallocate(handle, at, length)
        elif self.size(handle) < at + length:
            os.ftruncate(handle, at + length)

    def truncate(self, handle: int, length: int) -> None:
        os.ftruncate(handle, length)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def fsync_dir(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


_FDATASYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync; fsync is what it offers in its place."""
