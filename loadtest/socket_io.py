"""Bytes between buffers and non-blocking file descriptors: one system call each, no object per call when compiled."""

from __future__ import annotations

import os

import cython

AGAIN = -1
"""The socket has nothing to read, or takes nothing now."""
BROKEN = -2
"""The connection is gone (reset, broken pipe, bad descriptor)."""


def receive(fd: int, buffer: bytearray, at: int, room: int) -> int:
    """Reads up to `room` bytes to buffer[at:]; the number read, 0 at the end of the stream, AGAIN or BROKEN."""
    if cython.compiled:
        got: int = recv(fd, address(buffer, at), room, 0)  # type: ignore[name-defined]  # noqa: F821
        if got < 0:
            return -1 if errno == EAGAIN or errno == EINTR else -2  # type: ignore[name-defined]  # noqa: F821, SIM109
        return got
    try:
        return os.readv(fd, [memoryview(buffer)[at : at + room]])
    except (BlockingIOError, InterruptedError):
        return AGAIN
    except OSError:
        return BROKEN


def transmit(fd: int, buffer: bytearray, at: int, size: int) -> int:
    """Writes buffer[at : at+size]; the number of bytes taken, AGAIN or BROKEN."""
    if cython.compiled:
        sent: int = send(fd, address(buffer, at), size, MSG_NOSIGNAL)  # type: ignore[name-defined]  # noqa: F821
        if sent < 0:
            return -1 if errno == EAGAIN or errno == EINTR else -2  # type: ignore[name-defined]  # noqa: F821, SIM109
        return sent
    try:
        return os.write(fd, memoryview(buffer)[at : at + size])
    except (BlockingIOError, InterruptedError):
        return AGAIN
    except OSError:
        return BROKEN


def copy(target: bytearray, at: int, source: bytes | bytearray, start: int, size: int) -> None:
    """target[at : at+size] = source[start : start+size]; the caller answers for the bounds."""
    if cython.compiled:
        memcpy(address(target, at), address(source, start), size)  # type: ignore[name-defined]  # noqa: F821
    else:
        target[at : at + size] = source[start : start + size]


def clear(target: bytearray, at: int, size: int) -> None:
    """Zeros to target[at : at+size]."""
    if cython.compiled:
        memset(address(target, at), 0, size)  # type: ignore[name-defined]  # noqa: F821
    else:
        target[at : at + size] = bytes(size)
