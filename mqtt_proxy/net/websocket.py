"""MQTT over WebSocket: the HTTP upgrade, then binary frames as a plain stream of bytes.

Frames are not collected: what arrives of one is passed on, since packets may span frames [MQTT-6.0.0-2].
Sources: RFC 6455; MQTT 5.0 section 6. No extension is negotiated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqtt_proxy.net.layers import LayerEnded
from mqtt_proxy.net.unmask import unmask
from mqtt_proxy.net.upgrade import HttpError, answer_upgrade

if TYPE_CHECKING:
    from mqtt_proxy.net.link import Link
    from mqtt_proxy.net.listen_url import ListenerOptions

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, NOT_BINARY, BAD_TEXT, TOO_BIG = 1000, 1002, 1003, 1007, 1009
CONTROL_BYTES = 125
"""Most that a control frame may hold."""


class FrameError(Exception):
    """The peer broke a rule of RFC 6455; `code` is what its Close frame will say."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class WebSocketLayer:
    """One server-side WebSocket connection. The HTTP request head and a frame's head are all that it ever holds."""

    __slots__ = ("answers", "control", "finished", "fragmented", "head", "left", "mask", "opcode", "open", "options", "phase")

    def __init__(self, options: ListenerOptions) -> None:
        self.answers = bytearray()
        self.finished = False
        self.options = options
        self.open = False
        self.head = b""
        self.left = 0  # payload bytes of the current frame still to come
        self.opcode = -1  # of the current frame; -1 before its head is complete
        self.mask = b""
        self.phase = 0
        self.control = b""
        self.fragmented = False

    def receive(self, link: Link, data: bytes) -> bytes:
        try:
            if not self.open:
                rest = answer_upgrade(self.head + data, self.options, self.answers)
                if rest is None:
                    self.head += data
                    return b""
                self.open = True
                self.head = b""
                data = rest
        except HttpError as error:
            self.answers += error.response
            raise LayerEnded(f"no WebSocket: {error}") from None
        plain: list[bytearray] = []
        try:
            self._frames(data, plain)
        except FrameError as error:
            self._close(error.code, str(error).encode())
            raise LayerEnded(f"WebSocket: {error}", b"".join(plain)) from None
        except LayerEnded as end:
            end.data = b"".join(plain)
            raise
        return b"".join(plain)

    def _frames(self, data: bytes, plain: list[bytearray]) -> None:
        """Add the payload in `data`, as far as it goes, to `plain`."""
        at, end = 0, len(data)
        while True:
            if self.opcode < 0:
                taken = self._frame_head(data, at)
                if taken < 0:
                    return
                at += taken
            count = min(self.left, end - at)
            if count:
                payload = unmask(data[at : at + count], self.mask, self.phase)
                self.phase = (self.phase + count) & 3
                self.left -= count
                at += count
                if self.opcode < CLOSE:
                    plain.append(payload)
                else:
                    self.control += payload
            if self.left:
                return
            opcode, self.opcode = self.opcode, -1
            if opcode >= CLOSE:
                self._control(opcode)

    def _frame_head(self, data: bytes, at: int) -> int:
        """Begin the frame whose head is at `at`: bytes taken, or -1 while it is incomplete (its beginning is kept)."""
        kept = len(self.head)
        head = self.head + data[at : at + 14 - kept]
        size = len(head)
        if size < 2:
            self.head = head
            return -1
        opcode, length = head[0] & 0x0F, head[1] & 0x7F
        self._check(head[0] & 0x80 != 0, head[0] & 0x70, opcode, head[1] & 0x80, length)
        wide = 0 if length < 126 else 2 if length == 126 else 8
        if size < 6 + wide:
            self.head = head
            return -1
        if wide:
            length = int.from_bytes(head[2 : 2 + wide], "big")
            if length < (126 if wide == 2 else 65_536) or length >> 63:
                raise FrameError(PROTOCOL_ERROR, "length not in its shortest form")
            if length > self.options.ws_frame_bytes:
                raise FrameError(TOO_BIG, f"frame of more than {self.options.ws_frame_bytes} bytes")
        if opcode < CLOSE:
            self.fragmented = not head[0] & 0x80
        self.head = b""
        self.opcode, self.left, self.phase, self.control = opcode, length, 0, b""
        self.mask = head[2 + wide : 6 + wide]
        return 6 + wide - kept

    def _check(self, final: bool, reserved: int, opcode: int, masked: int, length: int) -> None:
        if reserved:
            raise FrameError(PROTOCOL_ERROR, "reserved bits set")
        if not masked:
            raise FrameError(PROTOCOL_ERROR, "frame from a client without a mask")
        if opcode >= CLOSE:
            if opcode > PONG:
                raise FrameError(PROTOCOL_ERROR, "unknown opcode")
            if not final or length > CONTROL_BYTES:
                raise FrameError(PROTOCOL_ERROR, "control frame fragmented or too long")
        elif opcode == TEXT:
            raise FrameError(NOT_BINARY, "MQTT goes in binary frames")  # [MQTT-6.0.0-1]
        elif opcode > BINARY:
            raise FrameError(PROTOCOL_ERROR, "unknown opcode")
        elif (opcode == CONTINUATION) != self.fragmented:
            raise FrameError(PROTOCOL_ERROR, "continuation frame out of place")

    def _control(self, opcode: int) -> None:
        payload, self.control = self.control, b""
        if opcode == PING:
            self.answers += frame(PONG, payload)
        elif opcode == CLOSE:
            self._close(_close_code(payload), b"")
            raise LayerEnded("closed by peer")

    def _close(self, code: int, why: bytes) -> None:
        if self.open:
            self.open = False
            self.answers += frame(CLOSE, (code.to_bytes(2, "big") + why) if code else b"")

    def send(self, data: bytes) -> bytes:
        return frame(BINARY, data) if self.open else b""

    def goodbye(self) -> bytes:
        if not self.open:
            return b""
        self.open = False
        return frame(CLOSE, NORMAL.to_bytes(2, "big"))


def _close_code(payload: bytes) -> int:
    """The code to answer a Close frame with: its own, or 0 for none."""
    if not payload:
        return 0
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise FrameError(PROTOCOL_ERROR, "no valid close code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(BAD_TEXT, "close reason is not UTF-8") from None
    return code


def frame(opcode: int, payload: bytes) -> bytes:
    """A whole frame, as a server sends it: unmasked."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 65_536:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload
