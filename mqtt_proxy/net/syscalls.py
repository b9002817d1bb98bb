"""Socket calls that answer with a number and never raise: bytes moved, 0 at the end, or minus errno.

This is the pure variant. Compiled modules take the same names from libc_sockets.pxd, which calls libc without making
Python objects: with one message in flight per connection these calls are most of the time a message costs.
"""

from __future__ import annotations

import os
import socket
import struct
from time import monotonic

__all__ = ["accept", "address_text", "end_sending", "monotonic", "receive", "reset_at_close", "transmit"]

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def receive(fd: int, buffer: bytearray, at: int, room: int) -> int:
    """Read what is there into `buffer[at:at + room]`: count, 0 when the peer has ended its side, or -errno."""
    try:
        with memoryview(buffer) as view:
            return os.readv(fd, [view[at : at + room]])
    except OSError as error:
        return -(error.errno or 5)


def transmit(fd: int, data: bytes | bytearray, at: int) -> int:
    """Send `data[at:]` as far as the socket takes it: count, or -errno (EAGAIN when it is full)."""
    try:
        with memoryview(data) as view:
            return os.write(fd, view[at:])
    except OSError as error:
        return -(error.errno or 5)


def accept(fd: int) -> tuple[int, str]:
    """One waiting connection, non-blocking: (descriptor, `host:port` of the peer), or (-errno, "")."""
    listening = socket.socket(fileno=fd)
    try:
        accepted, address = listening.accept()
    except OSError as error:
        return -(error.errno or 5), ""
    finally:
        listening.detach()
    accepted.setblocking(False)
    return accepted.detach(), address_text(address)


def end_sending(fd: int) -> bool:
    """Tell the peer that nothing follows; what was sent still arrives. False where the connection is gone."""
    try:
        with socket.socket(fileno=os.dup(fd)) as own:
            own.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True


def reset_at_close(fd: int) -> None:
    """Let the close drop what the kernel still holds, and reset the peer."""
    try:
        with socket.socket(fileno=os.dup(fd)) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    except OSError:
        pass  # the peer has reset it already


def address_text(address: object) -> str:
    """`127.0.0.1:1883`, `[::1]:1883`, or `unix` for a Unix socket."""
    if isinstance(address, tuple):
        host, port = str(address[0]), int(address[1])
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unix"
