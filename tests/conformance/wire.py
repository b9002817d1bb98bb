"""Control packets in bytes, built freely and read strictly.

The builders make any packet, right or wrong; `read_packet` takes only what a server may send and fails the test on anything else:
wrong flags, wrong length, reason codes and properties that the specification doesn't list for that packet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from .properties import Cursor, Properties, PropertyValue, encode, text, varint


class Type(IntEnum):
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"
# The header flags that the specification fixes for each type [MQTT-2.1.3-1]; PUBLISH has none fixed.
FLAGS = {Type.PUBREL: 2, Type.SUBSCRIBE: 2, Type.UNSUBSCRIBE: 2}

_CONNECT_5 = {
    0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
}  # fmt: skip
_DISCONNECT_FROM_SERVER = {
    0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C,
    0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
}  # fmt: skip
_RECEIVED = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
REASONS_5 = {
    Type.CONNACK: _CONNECT_5,
    Type.PUBACK: _RECEIVED,
    Type.PUBREC: _RECEIVED,
    Type.PUBREL: {0x00, 0x92},
    Type.PUBCOMP: {0x00, 0x92},
    Type.SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    Type.UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    Type.DISCONNECT: _DISCONNECT_FROM_SERVER,
    Type.AUTH: {0x00, 0x18},
}


def frame(header: int, body: bytes) -> bytes:
    """Fixed header and body; `header` is the whole first byte."""
    return bytes([header]) + varint(len(body)) + body


@dataclass(frozen=True)
class Will:
    topic: str | bytes
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


def connect(
    client_id: str | bytes,
    version: int = 5,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    will: Will | None = None,
    username: str | bytes | None = None,
    password: bytes | None = None,
    properties: Properties = (),
    protocol: bytes | None = None,
    level: int | None = None,
    flags: int | None = None,
    payload: bytes | None = None,
    header: int = 0x10,
) -> bytes:
    """CONNECT; the last five replace what would follow from the others."""
    bits = (0x02 if clean else 0) | (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    fields = text(client_id)
    if will is not None:
        bits |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        fields += (encode(will.properties) if version == 5 else b"") + text(will.topic) + text(will.payload)
    fields += text(username) if username is not None else b""
    fields += text(password) if password is not None else b""
    name = protocol if protocol is not None else b"MQIsdp" if version == 3 else b"MQTT"
    start = text(name) + bytes([version if level is None else level, bits if flags is None else flags]) + keep_alive.to_bytes(2, "big")
    return frame(header, start + (encode(properties) if version == 5 else b"") + (fields if payload is None else payload))


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    version: int = 5,
    qos: int = 0,
    packet_id: int | None = None,
    retain: bool = False,
    dup: bool = False,
    properties: Properties = (),
    header: int | None = None,
) -> bytes:
    """PUBLISH; a packet id stands in it when `packet_id` is given, whatever the QoS."""
    first = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    body = text(topic) + (packet_id.to_bytes(2, "big") if packet_id is not None else b"")
    return frame(first if header is None else header, body + (encode(properties) if version == 5 else b"") + payload)


def ack(kind: int, packet_id: int, reason: int | None = None, properties: Properties | None = None) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as short as its arguments allow."""
    tail = (b"" if reason is None else bytes([reason])) + (b"" if properties is None else encode(properties))
    return frame(kind << 4 | FLAGS.get(Type(kind), 0), packet_id.to_bytes(2, "big") + tail)


def options(qos: int = 0, *, no_local: bool = False, retain_as_published: bool = False, retain_handling: int = 0) -> int:
    """Subscription Options byte of MQTT 5.0; of MQTT 3.1.1 where only the QoS is given."""
    return qos | (4 if no_local else 0) | (8 if retain_as_published else 0) | retain_handling << 4


def subscribe(packet_id: int, filters: Iterable[tuple[str | bytes, int]], *, version: int = 5, properties: Properties = ()) -> bytes:
    body = packet_id.to_bytes(2, "big") + (encode(properties) if version == 5 else b"")
    return frame(0x82, body + b"".join(text(name) + bytes([option]) for name, option in filters))


def unsubscribe(packet_id: int, filters: Iterable[str | bytes], *, version: int = 5, properties: Properties = ()) -> bytes:
    body = packet_id.to_bytes(2, "big") + (encode(properties) if version == 5 else b"")
    return frame(0xA2, body + b"".join(text(name) for name in filters))


def disconnect(reason: int = 0, properties: Properties = ()) -> bytes:
    """DISCONNECT of MQTT 5.0 with reason and properties; MQTT 3.1.1 has the constant DISCONNECT."""
    return frame(0xE0, bytes([reason]) + encode(properties))


def auth(reason: int, properties: Properties = ()) -> bytes:
    return frame(0xF0, bytes([reason]) + encode(properties))


@dataclass
class Packet:
    """One packet from the server; fields that its type doesn't have keep their defaults."""

    type: Type
    flags: int
    raw: bytes
    packet_id: int = 0
    topic: bytes = b""
    payload: bytes = b""
    session_present: bool = False
    reason: int = 0
    reasons: tuple[int, ...] = ()
    properties: list[tuple[str, PropertyValue]] = field(default_factory=list)

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    def every(self, name: str) -> list[PropertyValue]:
        return [value for key, value in self.properties if key == name]

    def number(self, name: str, default: int = 0) -> int:
        """The value of a numeric property that stands at most once."""
        found = [value for value in self.every(name) if isinstance(value, int)]
        return found[0] if found else default


def frame_size(buffer: bytes | bytearray) -> int:
    """Length of the first packet in the buffer, or 0 while that can't be known yet."""
    for at in range(1, min(len(buffer), 5)):
        if not buffer[at] & 0x80:
            cursor = Cursor(bytes(buffer[1 : at + 1]))
            return 1 + at + cursor.varint()
    assert len(buffer) < 5, f"the server's remaining length has more than 4 bytes: {bytes(buffer[:5]).hex()}"
    return 0


def read_packet(raw: bytes, version: int) -> Packet:
    """Decodes one whole packet from the server and checks all that can be checked without its context."""
    packet = Packet(Type(raw[0] >> 4), raw[0] & 15, raw)
    body = Cursor(raw)
    body.take(1)
    body.varint()
    if packet.type == Type.PUBLISH:
        _read_publish(packet, body, version)
    else:
        assert packet.flags == FLAGS.get(packet.type, 0), f"[MQTT-2.2.2-1] reserved header flags: {raw.hex()}"
        _READERS[packet.type](packet, body, version)
    assert body.left == 0, f"{body.left} bytes too many: {raw.hex()}"
    if version == 5 and packet.type in REASONS_5:
        for reason in packet.reasons or (packet.reason,):
            assert reason in REASONS_5[packet.type], f"reason {reason:#x} is not one of {packet.type.name}"
    return packet


def _read_publish(packet: Packet, body: Cursor, version: int) -> None:
    assert packet.qos < 3, "[MQTT-3.3.1-4] QoS 3"
    assert packet.qos or not packet.dup, "[MQTT-3.3.1-2] DUP with QoS 0"
    packet.topic = body.utf8()
    assert not set(packet.topic) & set(b"+#"), "[MQTT-3.3.2-2] wildcard in a Topic Name"
    if packet.qos:
        packet.packet_id = body.number(2)
        assert packet.packet_id, "[MQTT-2.2.1-4] packet identifier 0"
    packet.properties = body.properties(packet.type) if version == 5 else []
    alias = packet.every("topic_alias")
    assert alias != [0], "[MQTT-3.3.2-8] Topic Alias 0"
    assert packet.topic or alias, "[MQTT-4.7.3-1] empty Topic Name"
    packet.payload = body.take(body.left)


def _read_connack(packet: Packet, body: Cursor, version: int) -> None:
    flags = body.number(1)
    assert flags < 2, "[MQTT-3.2.2-1] reserved bits"
    packet.session_present, packet.reason = bool(flags), body.number(1)
    packet.properties = body.properties(packet.type) if version == 5 else []
    assert version == 5 or packet.reason <= 5, f"CONNACK return code {packet.reason}"
    assert not (packet.reason and flags), "[MQTT-3.2.2-6] session present beside a refusal"


def _read_ack(packet: Packet, body: Cursor, version: int) -> None:
    packet.packet_id = body.number(2)
    if version == 5 and body.left:
        packet.reason = body.number(1)
        packet.properties = body.properties(packet.type) if body.left else []


def _read_suback(packet: Packet, body: Cursor, version: int) -> None:
    packet.packet_id = body.number(2)
    packet.properties = body.properties(packet.type) if version == 5 else []
    packet.reasons = tuple(body.take(body.left))
    if version < 5:
        assert set(packet.reasons) <= {0, 1, 2, 0x80}, "[MQTT-3.9.3-2] reserved return code"


def _read_unsuback(packet: Packet, body: Cursor, version: int) -> None:
    packet.packet_id = body.number(2)
    if version == 5:
        packet.properties = body.properties(packet.type)
        packet.reasons = tuple(body.take(body.left))


def _read_pingresp(packet: Packet, body: Cursor, version: int) -> None:
    """Nothing follows the fixed header."""


def _read_reason(packet: Packet, body: Cursor, version: int) -> None:
    assert version == 5, f"a server of MQTT 3.1.1 sends no {packet.type.name}"
    if body.left:
        packet.reason = body.number(1)
        packet.properties = body.properties(packet.type) if body.left else []


_READERS = {
    Type.CONNACK: _read_connack,
    Type.PUBACK: _read_ack,
    Type.PUBREC: _read_ack,
    Type.PUBREL: _read_ack,
    Type.PUBCOMP: _read_ack,
    Type.SUBACK: _read_suback,
    Type.UNSUBACK: _read_unsuback,
    Type.PINGRESP: _read_pingresp,
    Type.DISCONNECT: _read_reason,
    Type.AUTH: _read_reason,
}
