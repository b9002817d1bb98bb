"""Packets that a client may send, each right, and each wrong in one way; whole tables, for the tests that cut and mix them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import wire
from .covers import V5, V311
from .properties import text
from .wire import PINGREQ, Type, frame

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82


@dataclass(frozen=True)
class Sample:
    """Bytes for a connection that has its CONNACK; `reasons` are what MQTT 5.0 allows as an answer, none for a right packet."""

    case: str
    version: int
    raw: bytes
    reasons: tuple[int, ...] = ()
    answer: Type | None = None

    def __str__(self) -> str:
        return f"{self.case}, {'5.0' if self.version == V5 else '3.1.1'}"


def right_packets() -> Iterator[Sample]:
    for version in (V311, V5):
        more: list[tuple[str, bytes | tuple[bytes, bytes] | int]] = []
        if version == V5:
            more = [("user_property", (b"key", b"value"))]
        yield Sample("PUBLISH QoS 1", version, wire.publish("s/t", b"x", version=version, qos=1, packet_id=1), answer=Type.PUBACK)
        yield Sample("PUBLISH QoS 2", version, wire.publish("s/t", b"x", version=version, qos=2, packet_id=2), answer=Type.PUBREC)
        long = wire.publish("s/t", b"x" * 140, version=version, qos=1, packet_id=3, properties=more)
        yield Sample("long PUBLISH", version, long, answer=Type.PUBACK)
        yield Sample("PUBREL", version, wire.ack(Type.PUBREL, 4), answer=Type.PUBCOMP)
        subscribe = wire.subscribe(5, [("s/a", 0), ("s/b", 1)], version=version, properties=more)
        yield Sample("SUBSCRIBE", version, subscribe, answer=Type.SUBACK)
        yield Sample("UNSUBSCRIBE", version, wire.unsubscribe(6, ["s/c"], version=version, properties=more), answer=Type.UNSUBACK)
        yield Sample("PUBACK", version, wire.ack(Type.PUBACK, 7))
        yield Sample("PUBCOMP", version, wire.ack(Type.PUBCOMP, 8))
        yield Sample("PUBLISH QoS 0", version, wire.publish("s/t", b"x", version=version))
        yield Sample("PINGREQ", version, PINGREQ, answer=Type.PINGRESP)
    yield Sample("PUBACK with properties", V5, wire.ack(Type.PUBACK, 9, 0, [("reason_string", b"why")]))
    yield Sample("PUBREC", V5, wire.ack(Type.PUBREC, 10, 0, [("user_property", (b"k", b"v"))]), answer=Type.PUBREL)


def _length(case: str, first: int, encoded: bytes) -> Iterator[Sample]:
    for version in (V311, V5):
        yield Sample(case, version, bytes([first]) + encoded, (MALFORMED, PROTOCOL_ERROR))


def _bodies(kind: Type) -> bytes:
    """A body that the packet type would take."""
    return {
        Type.PUBACK: b"\0\1",
        Type.PUBREC: b"\0\1",
        Type.PUBREL: b"\0\1",
        Type.PUBCOMP: b"\0\1",
        Type.SUBSCRIBE: b"\0\1" + text("a") + b"\0",
        Type.UNSUBSCRIBE: b"\0\1" + text("a"),
    }.get(kind, b"")


def wrong_headers() -> Iterator[Sample]:
    """Reserved flags, reserved types, and types that only a server sends."""
    for version in (V311, V5):
        for kind in (4, 5, 6, 7, 8, 10, 12, 14):
            right = wire.FLAGS.get(Type(kind), 0)
            body = _bodies(Type(kind))
            if version == V5 and kind in (8, 10):
                body = body[:2] + b"\0" + body[2:]
            for flags in {0, 1, 2, 4, 8, 15} - {right}:
                yield Sample(f"{Type(kind).name} with flags {flags}", version, frame(kind << 4 | flags, body), (MALFORMED,))
        yield Sample("type 0", version, b"\0\0", (MALFORMED, PROTOCOL_ERROR))
        yield Sample("type 0 with flags", version, b"\x0f\0", (MALFORMED, PROTOCOL_ERROR))
        for kind in (Type.CONNACK, Type.SUBACK, Type.UNSUBACK, Type.PINGRESP):
            body = b"" if kind == Type.PINGRESP else b"\0\0\0" if version == V5 else b"\0\0"
            yield Sample(f"{kind.name} from a client", version, frame(kind << 4, body), (MALFORMED, PROTOCOL_ERROR))
    yield Sample("AUTH in 3.1.1", V311, b"\xf0\0")
    for flags in (1, 2, 8, 15):
        yield Sample(f"AUTH with flags {flags}", V5, bytes([0xF0 | flags, 0]), (MALFORMED,))


def wrong_bodies() -> Iterator[Sample]:
    """Too short, too long, or with lengths inside that don't fit."""
    for version in (V311, V5):
        block = b"\0" if version == V5 else b""
        both = (MALFORMED, PROTOCOL_ERROR)
        for kind in (Type.PUBACK, Type.PUBREC, Type.PUBREL, Type.PUBCOMP):
            first = kind << 4 | wire.FLAGS.get(kind, 0)
            yield Sample(f"empty {kind.name}", version, frame(first, b""), both)
            yield Sample(f"{kind.name} of one byte", version, frame(first, b"\0"), both)
            yield Sample(f"{kind.name} with id 0", version, frame(first, b"\0\0"), both)
        yield Sample("PINGREQ with a body", version, frame(0xC0, b"\0"), both)
        yield Sample("empty PUBLISH", version, frame(0x30, b""), both)
        yield Sample("PUBLISH with a cut topic", version, frame(0x30, b"\0\5ab"), both)
        yield Sample("PUBLISH without its id", version, frame(0x32, text("a")), both)
        yield Sample("PUBLISH with half an id", version, frame(0x32, text("a") + b"\1"), both)
        yield Sample("empty SUBSCRIBE", version, frame(0x82, b""), both)
        yield Sample("SUBSCRIBE with half a length", version, frame(0x82, b"\0\1" + block + b"\0"), both)
        yield Sample("SUBSCRIBE with a second filter cut", version, frame(0x82, b"\0\1" + block + text("a") + b"\0\0\4b"), both)
        yield Sample("empty UNSUBSCRIBE", version, frame(0xA2, b""), both)
        yield Sample("UNSUBSCRIBE with a second filter cut", version, frame(0xA2, b"\0\1" + block + text("a") + b"\0\4b"), both)
        yield Sample("CONNECT again", version, wire.connect("again", version), (PROTOCOL_ERROR,))
    yield Sample("DISCONNECT with a body", V311, b"\xe0\1\0")
    yield Sample("PUBACK with a reason", V311, b"\x40\3\0\1\0")
    yield Sample("PUBREL with a reason", V311, b"\x62\3\0\1\0")
    yield from _wrong_bodies_5()


def _wrong_bodies_5() -> Iterator[Sample]:
    both = (MALFORMED, PROTOCOL_ERROR)
    for kind in (Type.PUBACK, Type.PUBREC, Type.PUBREL, Type.PUBCOMP):
        first = kind << 4 | wire.FLAGS.get(kind, 0)
        yield Sample(f"{kind.name} with an unknown reason", V5, frame(first, b"\0\1\x42"), both)
        yield Sample(f"{kind.name} with a property length too long", V5, frame(first, b"\0\1\0\5"), both)
        yield Sample(f"{kind.name} with bytes after its properties", V5, frame(first, b"\0\1\0\0\0"), both)
        yield Sample(f"{kind.name} with an unknown property", V5, frame(first, b"\0\1\0\2\x7f\0"), both)
        yield Sample(f"{kind.name} with a property of CONNECT", V5, wire.ack(kind, 1, 0, [("session_expiry", 1)]), both)
        yield Sample(f"{kind.name} with two reason strings", V5, wire.ack(kind, 1, 0, [("reason_string", b"")] * 2), both)
    blocks = {"no properties": b"", "property length cut": b"\x80", "property length too long": b"\x09\1\1", "property cut": b"\3\2\0\0"}
    for case, block in blocks.items():
        yield Sample(f"PUBLISH with {case}", V5, frame(0x30, text("a") + block), both)
    yield Sample("PUBLISH with an unknown property", V5, frame(0x30, text("a") + b"\2\x7f\0"), both)
    yield Sample("PUBLISH with a property length of 5 bytes", V5, frame(0x30, text("a") + b"\xff\xff\xff\xff\x01"), both)
    yield Sample("SUBSCRIBE without properties", V5, frame(0x82, b"\0\1"), both)
    yield Sample("UNSUBSCRIBE without properties", V5, frame(0xA2, b"\0\1"), both)
    yield Sample("DISCONNECT with an unknown reason", V5, b"\xe0\1\x42", both)
    yield Sample("DISCONNECT with a property length too long", V5, b"\xe0\2\0\5", both)
    yield Sample("DISCONNECT with a server's property", V5, wire.disconnect(0, [("server_reference", b"x")]), both)
    yield Sample("DISCONNECT with two expiries", V5, wire.disconnect(0, [("session_expiry", 0)] * 2), both)
    method = ("authentication_method", b"SCRAM-SHA-256")
    yield Sample("AUTH without a method in CONNECT", V5, wire.auth(0x19, [method]), (PROTOCOL_ERROR,))
    yield Sample("AUTH with an unknown reason", V5, wire.auth(0x42, [method]), both)
    yield Sample("AUTH without properties", V5, b"\xf0\0", both)


def wrong_lengths() -> Iterator[Sample]:
    """A remaining length of five bytes is malformed at the fourth [MQTT 2.2.3, 2.1.4]."""
    yield from _length("remaining length of 5 bytes", 0x30, b"\xff\xff\xff\xff\x01")
    yield from _length("remaining length without end", 0xC0, b"\x80\x80\x80\x80")


def wrong_packets() -> list[Sample]:
    return [*wrong_headers(), *wrong_bodies(), *wrong_lengths()]
