"""The packets that are not per message: CONNECT, SUBSCRIBE and the like, and what their answers say.

The harness has its own small codec, so that it shares no mistake with a broker under test.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"
LEVELS = {"3.1": 3, "3.1.1": 4, "5": 5}

CONNACK_REASONS = {
    1: "unacceptable protocol version", 2: "identifier rejected", 3: "server unavailable",
    4: "bad user name or password", 5: "not authorized",
}  # fmt: skip
REASONS = {
    0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error", 0x83: "implementation specific error",
    0x84: "unsupported protocol version", 0x85: "client identifier not valid", 0x86: "bad user name or password", 0x87: "not authorized",
    0x88: "server unavailable", 0x89: "server busy", 0x8A: "banned", 0x8B: "server shutting down", 0x8C: "bad authentication method",
    0x8D: "keep alive timeout", 0x8E: "session taken over", 0x8F: "topic filter invalid", 0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found", 0x93: "receive maximum exceeded", 0x94: "topic alias invalid", 0x95: "packet too large",
    0x96: "message rate too high", 0x97: "quota exceeded", 0x98: "administrative action", 0x99: "payload format invalid",
    0x9A: "retain not supported", 0x9B: "QoS not supported", 0x9C: "use another server", 0x9D: "server moved",
    0x9E: "shared subscriptions not supported", 0x9F: "connection rate exceeded", 0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported", 0xA2: "wildcard subscriptions not supported",
}  # fmt: skip


class BadFrame(Exception):
    """An answer that does not follow the specification."""


def length_of(number: int) -> bytes:
    """A variable byte integer [MQTT-1.5.5]."""
    out = bytearray()
    while True:
        out.append(number & 127 | (128 if number > 127 else 0))
        number >>= 7
        if not number:
            return bytes(out)


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def frame(first: int, body: bytes) -> bytes:
    return bytes([first]) + length_of(len(body)) + body


def user_properties(pairs: tuple[tuple[str, str], ...]) -> bytes:
    """The properties themselves, without the block's length."""
    return b"".join(b"\x26" + text(key.encode()) + text(value.encode()) for key, value in pairs)


def block(properties: bytes) -> bytes:
    return length_of(len(properties)) + properties


@dataclass(slots=True)
class ConnectOptions:
    """What CONNECT says, the same for all clients of a group."""

    version: int = 4
    clean: bool = True
    keep_alive: int = 60
    username: bytes | None = None
    password: bytes | None = None
    session_expiry: int = 0
    receive_maximum: int = 0
    user_properties: tuple[tuple[str, str], ...] = ()
    will: tuple[bytes, bytes, int, bool] | None = None
    """Topic, payload, QoS, retain."""


def connect(options: ConnectOptions, client_id: bytes, clean: bool | None = None) -> bytes:
    clean = options.clean if clean is None else clean
    flags = 2 if clean else 0
    tail = text(client_id)
    if options.will:
        topic, payload, qos, retain = options.will
        flags |= 4 | qos << 3 | (32 if retain else 0)
        tail += (b"\x00" if options.version == 5 else b"") + text(topic) + text(payload)
    if options.username is not None:
        flags |= 128
        tail += text(options.username)
    if options.password is not None:
        flags |= 64
        tail += text(options.password)
    body = text(b"MQIsdp" if options.version == 3 else b"MQTT") + bytes([options.version, flags]) + struct.pack(">H", options.keep_alive)
    if options.version == 5:
        properties = b""
        if options.session_expiry:
            properties += b"\x11" + struct.pack(">I", options.session_expiry)
        if options.receive_maximum:
            properties += b"\x21" + struct.pack(">H", options.receive_maximum)
        body += block(properties + user_properties(options.user_properties))
    return frame(0x10, body + tail)


def subscribe(packet_id: int, filters: list[bytes], qos: int, version: int) -> bytes:
    body = struct.pack(">H", packet_id) + (b"\x00" if version == 5 else b"")
    return frame(0x82, body + b"".join(text(topic_filter) + bytes([qos]) for topic_filter in filters))


def publish0(topic: bytes, payload: bytes, version: int, retain: bool = False) -> bytes:
    return frame(0x31 if retain else 0x30, text(topic) + (b"\x00" if version == 5 else b"") + payload)


@dataclass(slots=True)
class Connack:
    session_present: bool
    reason: int
    receive_maximum: int = 65535
    maximum_qos: int = 2
    keep_alive: int | None = None
    properties: dict[int, object] = field(default_factory=dict)


_SIZES = {
    0x01: 1, 0x02: 4, 0x11: 4, 0x13: 2, 0x17: 1, 0x18: 4, 0x19: 1, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1,
    0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip
"""Bytes of the properties of fixed size."""


def properties_of(body: bytes, at: int) -> tuple[dict[int, object], int]:
    """Property id → last value, and the position after the block. Raises BadFrame."""
    length = shift = 0
    while True:
        if at >= len(body) or shift > 21:
            raise BadFrame("property length")
        length |= (body[at] & 127) << shift
        shift += 7
        at += 1
        if body[at - 1] < 128:
            break
    end = at + length
    if end > len(body):
        raise BadFrame("properties longer than the packet")
    found: dict[int, object] = {}
    while at < end:
        key = body[at]
        at += 1
        if key in _SIZES:
            found[key] = int.from_bytes(body[at : at + _SIZES[key]], "big")
            at += _SIZES[key]
        elif key in (0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x26):
            for _ in range(2 if key == 0x26 else 1):
                size = int.from_bytes(body[at : at + 2], "big")
                found[key] = body[at + 2 : at + 2 + size]
                at += 2 + size
        else:
            raise BadFrame(f"unknown property 0x{key:02X}")
    if at != end:
        raise BadFrame("property longer than its block")
    return found, at


def connack(body: bytes, version: int) -> Connack:
    """Raises BadFrame when it is not a CONNACK's body."""
    if len(body) < 2 or body[0] > 1:
        raise BadFrame("CONNACK")
    answer = Connack(bool(body[0]), body[1])
    if version == 5 and len(body) > 2:
        answer.properties, _ = properties_of(body, 2)
        for key, name in ((0x21, "receive_maximum"), (0x24, "maximum_qos"), (0x13, "keep_alive")):
            if key in answer.properties:
                setattr(answer, name, answer.properties[key])
    return answer


def suback(body: bytes, version: int) -> tuple[int, bytes]:
    """Packet id and the codes. Raises BadFrame."""
    if len(body) < 3:
        raise BadFrame("SUBACK")
    at = 2
    if version == 5:
        _, at = properties_of(body, 2)
    return int.from_bytes(body[:2], "big"), body[at:]


def reason_text(reason: int, version: int) -> str:
    """`0x87 not authorized`; CONNACK codes of MQTT 3 have their own numbers."""
    if version != 5 and reason in CONNACK_REASONS:
        return f"{reason} {CONNACK_REASONS[reason]}"
    return f"0x{reason:02X} {REASONS.get(reason, 'unknown reason')}"
