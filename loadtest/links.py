"""TLS and WebSocket under a client: the same two calls as a bare socket, `receive` and `transmit`, plus a handshake."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
from typing import Protocol

from loadtest.address import Address
from loadtest.socket_io import AGAIN, BROKEN
from loadtest.units import UsageError

DONE = 0
WANT_READ = 1
WANT_WRITE = 2
FRAME_MAX = 1 << 28


class LinkError(Exception):
    """The handshake failed; the text says why."""


class Link(Protocol):
    """Moves bytes over a socket that needs more than recv and send."""

    def handshake(self) -> int:
        """DONE, WANT_READ or WANT_WRITE. Raises LinkError."""

    def receive(self, buffer: bytearray, at: int, room: int) -> int: ...

    def transmit(self, buffer: bytearray, at: int, size: int) -> int: ...

    def pending(self) -> bool:
        """True when bytes wait above the socket, where no poll can see them."""

    def close(self) -> None: ...


def tls_context(ca: str | None, cert: str | None, key: str | None, insecure: bool) -> ssl.SSLContext:
    """Raises UsageError where a file is missing or wrong."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    for name, path in (("--ca", ca), ("--cert", cert), ("--key", key)):
        if path and not os.path.isfile(path):
            raise UsageError(f"{name} {path}: no such file")
    try:
        if ca:
            context.load_verify_locations(ca)
        if cert:
            context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as failure:
        raise UsageError(f"{'--cert' if cert else '--ca'} {cert or ca}: {failure.strerror or failure}") from None
    return context


class Plain:
    """A bare socket with the interface of a link: what a WebSocket stands on without TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def handshake(self) -> int:
        return DONE

    def receive(self, buffer: bytearray, at: int, room: int) -> int:
        try:
            return self.sock.recv_into(memoryview(buffer)[at : at + room])
        except (BlockingIOError, InterruptedError):
            return AGAIN
        except OSError:
            return BROKEN

    def transmit(self, buffer: bytearray, at: int, size: int) -> int:
        try:
            return self.sock.send(memoryview(buffer)[at : at + size])
        except (BlockingIOError, InterruptedError):
            return AGAIN
        except OSError:
            return BROKEN

    def pending(self) -> bool:
        return False

    def close(self) -> None:
        self.sock.close()


class Tls:
    """TLS over a non-blocking socket."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self.sock = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False, suppress_ragged_eofs=True)

    def handshake(self) -> int:
        try:
            self.sock.do_handshake()
            return DONE
        except ssl.SSLWantReadError:
            return WANT_READ
        except ssl.SSLWantWriteError:
            return WANT_WRITE
        except ssl.SSLCertVerificationError as failure:
            raise LinkError(f"certificate: {failure.verify_message}") from None
        except OSError as failure:
            raise LinkError(f"TLS: {getattr(failure, 'reason', None) or failure.strerror or failure}") from None

    def receive(self, buffer: bytearray, at: int, room: int) -> int:
        """Takes all that is there: records already decrypted raise no event of the socket."""
        got = 0
        view = memoryview(buffer)
        while got < room:
            try:
                read = self.sock.recv_into(view[at + got : at + room])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return got or AGAIN
            except OSError:
                return got or BROKEN
            if read == 0:
                return got
            got += read
        return got

    def transmit(self, buffer: bytearray, at: int, size: int) -> int:
        """OpenSSL wants the same bytes again after a full socket; the tail keeps them in front."""
        try:
            return self.sock.send(memoryview(buffer)[at : at + size])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return AGAIN
        except OSError:
            return BROKEN

    def pending(self) -> bool:
        return self.sock.pending() > 0

    def close(self) -> None:
        self.sock.close()


class WebSocket:
    """MQTT over WebSocket: binary frames, masked as a client must [MQTT-6.0.0-1]; frames and packets need not align."""

    def __init__(self, below: Link, address: Address) -> None:
        self.below = below
        self.key = base64.b64encode(os.urandom(16)).decode()
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.hello = bytearray(
            (
                f"GET {address.path} HTTP/1.1\r\nHost: {host}:{address.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {self.key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
            ).encode()
        )
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.ready = bytearray()
        self.scratch = bytearray(65536)
        self.framed = 0
        """Bytes at the front of the caller's tail whose frame is partly out."""
        self.tls_done = False
        self.over = False

    def handshake(self) -> int:
        if not self.tls_done:
            state = self.below.handshake()
            if state != DONE:
                return state
            self.tls_done = True
        if self.hello:
            sent = self.below.transmit(self.hello, 0, len(self.hello))
            if sent == BROKEN:
                raise LinkError("WebSocket: connection lost")
            del self.hello[: max(sent, 0)]
            if self.hello:
                return WANT_WRITE
        got = self.below.receive(self.scratch, 0, len(self.scratch))
        if got == 0 or got == BROKEN:
            raise LinkError("WebSocket: connection closed during the handshake")
        if got > 0:
            self.inbox += self.scratch[:got]
        end = self.inbox.find(b"\r\n\r\n")
        if end < 0:
            if len(self.inbox) > 16384:
                raise LinkError("WebSocket: endless answer to the handshake")
            return WANT_READ
        status = bytes(self.inbox[:end]).split(b"\r\n", 1)[0].decode("latin-1")
        if " 101" not in status:
            raise LinkError(f"WebSocket: refused: {status[:80]}")
        del self.inbox[: end + 4]
        self._unwrap()
        return DONE

    def receive(self, buffer: bytearray, at: int, room: int) -> int:
        if not self.ready and not self.over:
            got = self.below.receive(self.scratch, 0, len(self.scratch))
            if got == AGAIN:
                return AGAIN
            if got <= 0:
                return got
            self.inbox += self.scratch[:got]
            if not self._unwrap():
                return BROKEN
        if not self.ready:
            return 0 if self.over else AGAIN
        taken = min(room, len(self.ready))
        buffer[at : at + taken] = self.ready[:taken]
        del self.ready[:taken]
        return taken

    def _unwrap(self) -> bool:
        """Moves the payloads of whole frames to `ready`; False when the server breaks the protocol."""
        at = 0
        while len(self.inbox) - at >= 2:
            opcode, size = self.inbox[at] & 15, self.inbox[at + 1] & 127
            head = 2
            if size >= 126:
                head = 4 if size == 126 else 10
                if len(self.inbox) - at < head:
                    break
                size = int.from_bytes(self.inbox[at + 2 : at + head], "big")
            if self.inbox[at + 1] & 128 or size > FRAME_MAX:
                return False
            if len(self.inbox) - at < head + size:
                break
            body = self.inbox[at + head : at + head + size]
            at += head + size
            if opcode in (0, 2):
                self.ready += body
            elif opcode == 8:
                self.over = True
            elif opcode == 9:
                self.outbox += self._wrapped(bytes(body), 0x8A)
        del self.inbox[:at]
        return True

    def _wrapped(self, body: bytes, first: int = 0x82) -> bytes:
        """The mask is zero: it hides nothing here, and XOR with it costs nothing."""
        size = len(body)
        if size < 126:
            return bytes([first, 128 | size]) + bytes(4) + body
        if size < 65536:
            return bytes([first, 128 | 126]) + struct.pack(">H", size) + bytes(4) + body
        return bytes([first, 128 | 127]) + struct.pack(">Q", size) + bytes(4) + body

    def transmit(self, buffer: bytearray, at: int, size: int) -> int:
        """Takes all or nothing: bytes are taken when the whole frame around them is out."""
        if self.outbox and not self._drain():
            return BROKEN
        if self.outbox:
            return AGAIN
        taken = self.framed or size
        if not self.framed:
            self.outbox += self._wrapped(bytes(buffer[at : at + size]))
            if not self._drain():
                return BROKEN
            if self.outbox:
                self.framed = size
                return AGAIN
        self.framed = 0
        return taken

    def _drain(self) -> bool:
        sent = self.below.transmit(self.outbox, 0, len(self.outbox))
        if sent == BROKEN:
            return False
        if sent > 0:
            del self.outbox[:sent]
        return True

    def pending(self) -> bool:
        return bool(self.ready) or self.over or self.below.pending()

    def close(self) -> None:
        self.below.close()


def link_for(sock: socket.socket, address: Address, context: ssl.SSLContext | None) -> Link | None:
    """What the address needs above the socket; None for plain MQTT over TCP."""
    link: Link | None = None
    if address.tls:
        assert context is not None
        link = Tls(sock, context, address.host)
    if address.websocket:
        link = WebSocket(link or Plain(sock), address)
    return link
