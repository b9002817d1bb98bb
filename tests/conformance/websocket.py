"""MQTT over WebSocket (section 6), frame by frame: just enough of RFC 6455 to send frames that a library would refuse to."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from contextlib import suppress

from .client import PATIENCE_S, Address, Client

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(payload: bytes, opcode: int = BINARY, *, final: bool = True, masked: bool = True) -> bytes:
    """One frame, masked as a client's frames must be."""
    size = len(payload)
    bit = 0x80 if masked else 0
    if size < 126:
        length = bytes([bit | size])
    else:
        length = bytes([bit | 126]) + size.to_bytes(2, "big") if size < 65536 else bytes([bit | 127]) + size.to_bytes(8, "big")
    head = bytes([(0x80 if final else 0) | opcode]) + length
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[i & 3] for i, byte in enumerate(payload))


class WebSocketClient(Client):
    """A Client whose packets travel in binary frames; `send` makes one frame, `send_raw` writes bytes as they are."""

    def __init__(self, stream: socket.socket, version: int = 5) -> None:
        super().__init__(stream, version)
        self.raw = bytearray()
        self.response = b""
        self.pongs: list[bytes] = []

    @classmethod
    def open(cls, address: Address, version: int = 5, *, path: str = "/mqtt", protocols: str | None = "mqtt") -> WebSocketClient:
        """Connects and sends the upgrade request; `response` is the server's answer up to its blank line."""
        stream = socket.create_connection(address, timeout=PATIENCE_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = cls(stream, version)
        key = base64.b64encode(os.urandom(16))
        offer = f"Sec-WebSocket-Protocol: {protocols}\r\n" if protocols is not None else ""
        request = f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{offer}"
        client.send_raw(f"{request}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n".encode())
        while b"\r\n\r\n" not in client.raw:
            chunk = stream.recv(4096)
            if not chunk:
                break
            client.raw += chunk
        head, _, rest = bytes(client.raw).partition(b"\r\n\r\n")
        client.response, client.raw = head, bytearray(rest)
        if client.upgraded:
            accept = base64.b64encode(hashlib.sha1(key + _ACCEPT_SUFFIX).digest()).decode()
            assert client.header("Sec-WebSocket-Accept") == accept
        return client

    @property
    def upgraded(self) -> bool:
        return self.response.startswith(b"HTTP/1.1 101")

    def header(self, name: str) -> str | None:
        for line in self.response.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.strip().lower() == name.lower():
                return value.strip()
        return None

    def send_raw(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.stream.sendall(data)

    def send(self, *packets: bytes) -> None:
        self.send_raw(frame(b"".join(packets)))

    def _receive(self) -> bytes:
        """The payload of the next data frame; b"" at the end. A frame that isn't binary fails the test [MQTT-6.0.0-1]."""
        while True:
            if (taken := self._take_frame()) is not None:
                opcode, payload = taken
                if opcode == CLOSE:
                    return b""
                if opcode == PONG:
                    self.pongs.append(payload)
                    continue
                assert opcode in (BINARY, CONTINUATION), f"[MQTT-6.0.0-1] opcode {opcode} from the server"
                if payload:
                    return payload
                continue
            chunk = self.stream.recv(65536)
            if not chunk:
                return b""
            self.raw += chunk

    def _take_frame(self) -> tuple[int, bytes] | None:
        raw = self.raw
        if len(raw) < 2:
            return None
        assert not raw[1] & 0x80, "a server masks nothing"
        size, at = raw[1] & 0x7F, 2
        if size >= 126:
            extra = 2 if size == 126 else 8
            if len(raw) < 2 + extra:
                return None
            size, at = int.from_bytes(raw[2 : 2 + extra], "big"), 2 + extra
        if len(raw) < at + size:
            return None
        taken = raw[0] & 15, bytes(raw[at : at + size])
        del raw[: at + size]
        return taken
