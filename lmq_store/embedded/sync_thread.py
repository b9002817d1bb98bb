"""The sync beside the loop: a thread that does nothing but fdatasync, one request at a time.

A request is two file descriptors (i64 each, -1: none) written to `request`; the answer, 8 bytes, is an errno or 0 and makes
`answer_fd` readable. Compiled, the thread holds the interpreter lock only to begin and end.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import threading
from collections.abc import Callable
from typing import Protocol

import cython

from lmq_store.embedded.files import Files

if not cython.compiled:

    def sync_until_closed(request_fd: int, answer_fd: int) -> None:
        """Serve requests until the other end of `request_fd` is closed."""
        while len(request := os.read(request_fd, 16)) == 16:
            earlier, handle = _REQUEST.unpack(request)
            os.write(answer_fd, _ANSWER.pack(sync_both(_FDATASYNC, earlier, handle)))


_REQUEST = struct.Struct("<qq")
_ANSWER = struct.Struct("<q")
_FDATASYNC = getattr(os, "fdatasync", os.fsync)


class Sync(Protocol):
    """Makes files durable and says so through `answer_fd`. Never more than one request at a time."""

    answer_fd: int

    def start(self, handle: int, earlier: int = -1) -> None:
        """Begin to sync the file `handle`, and `earlier` before it if there is one."""
        ...

    def now(self, handle: int, earlier: int = -1) -> int:
        """Sync in the caller; the errno, 0 for success. Only while nothing is under way."""
        ...

    def answer(self) -> int | None:
        """The errno of the request, 0 for success; None while it is under way."""
        ...

    def wait(self) -> None:
        """Block until there is an answer."""
        ...

    def close(self) -> None: ...


def sync_both(fdatasync: Callable[[int], None], earlier: int, handle: int) -> int:
    """Sync the files in order, -1 for none; the errno, 0 for success."""
    failed = 0
    for one in (earlier, handle):
        try:
            if one >= 0:
                fdatasync(one)
        except OSError as error:
            failed = error.errno or errno.EIO
    return failed


def read_answer(answer_fd: int) -> int | None:
    """The errno that a sync has written; None while it is under way."""
    try:
        found: int = _ANSWER.unpack(os.read(answer_fd, 8))[0]
    except BlockingIOError:
        return None
    return found


class SyncThread:
    """`Sync` in a thread, for real file descriptors."""

    def __init__(self) -> None:
        request_read, self._request_write = os.pipe()
        self.answer_fd, answer_write = os.pipe()
        os.set_blocking(self.answer_fd, False)
        self._fds = (request_read, answer_write)
        self._thread = threading.Thread(target=self._run, name="lmq-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        request_read, answer_write = self._fds
        sync_until_closed(request_read, answer_write)

    def start(self, handle: int, earlier: int = -1) -> None:
        os.write(self._request_write, _REQUEST.pack(earlier, handle))

    def now(self, handle: int, earlier: int = -1) -> int:
        return sync_both(_FDATASYNC, earlier, handle)

    def answer(self) -> int | None:
        return read_answer(self.answer_fd)

    def wait(self) -> None:
        select.select([self.answer_fd], [], [])

    def close(self) -> None:
        os.close(self._request_write)
        self._thread.join()
        for fd in (*self._fds, self.answer_fd):
            os.close(fd)


class SyncInline:
    """`Sync` at once, in the caller: for file layers that are not the operating system's."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.answer_fd, self._answer_write = os.pipe()
        os.set_blocking(self.answer_fd, False)

    def start(self, handle: int, earlier: int = -1) -> None:
        os.write(self._answer_write, _ANSWER.pack(self.now(handle, earlier)))

    def now(self, handle: int, earlier: int = -1) -> int:
        return sync_both(self._files.fdatasync, earlier, handle)

    def answer(self) -> int | None:
        return read_answer(self.answer_fd)

    def wait(self) -> None:
        """The answer is there since `start`."""

    def close(self) -> None:
        os.close(self.answer_fd)
        os.close(self._answer_write)
