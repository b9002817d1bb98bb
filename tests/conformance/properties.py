"""MQTT 5.0 properties in bytes, both ways: any that a test wants out, only what a server may send in.

Written from table 2-4 of the specification and apart from `mqtt_proxy.packets`, so that an error in one can't hide in the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PropertyValue = int | bytes | tuple[bytes, bytes]
Properties = Sequence[tuple[str, PropertyValue]]

# name -> (identifier, kind); kinds: byte, u16, u32, varint, utf8, binary, pair
TABLE: Mapping[str, tuple[int, str]] = {
    "payload_format": (0x01, "byte"),
    "message_expiry": (0x02, "u32"),
    "content_type": (0x03, "utf8"),
    "response_topic": (0x08, "utf8"),
    "correlation_data": (0x09, "binary"),
    "subscription_identifier": (0x0B, "varint"),
    "session_expiry": (0x11, "u32"),
    "assigned_client_id": (0x12, "utf8"),
    "server_keep_alive": (0x13, "u16"),
    "authentication_method": (0x15, "utf8"),
    "authentication_data": (0x16, "binary"),
    "request_problem_information": (0x17, "byte"),
    "will_delay": (0x18, "u32"),
    "request_response_information": (0x19, "byte"),
    "response_information": (0x1A, "utf8"),
    "server_reference": (0x1C, "utf8"),
    "reason_string": (0x1F, "utf8"),
    "receive_maximum": (0x21, "u16"),
    "topic_alias_maximum": (0x22, "u16"),
    "topic_alias": (0x23, "u16"),
    "maximum_qos": (0x24, "byte"),
    "retain_available": (0x25, "byte"),
    "user_property": (0x26, "pair"),
    "maximum_packet_size": (0x27, "u32"),
    "wildcard_available": (0x28, "byte"),
    "subscription_ids_available": (0x29, "byte"),
    "shared_available": (0x2A, "byte"),
}
NAMES = {identifier: name for name, (identifier, _) in TABLE.items()}

_TEXTS = {"reason_string", "user_property"}
# What a server may put on each packet type (table 2-4); a DISCONNECT from a server has no Session Expiry Interval [MQTT-3.14.2-2].
FROM_SERVER: Mapping[int, frozenset[str]] = {
    2: frozenset(
        {
            "session_expiry", "assigned_client_id", "server_keep_alive", "authentication_method", "authentication_data",
            "response_information", "server_reference", "receive_maximum", "topic_alias_maximum", "maximum_qos", "retain_available",
            "maximum_packet_size", "wildcard_available", "subscription_ids_available", "shared_available",
        }
        | _TEXTS
    ),
    3: frozenset(
        {
            "payload_format", "message_expiry", "content_type", "response_topic", "correlation_data", "subscription_identifier",
            "topic_alias", "user_property",
        }
    ),
    14: frozenset({"server_reference"} | _TEXTS),
    15: frozenset({"authentication_method", "authentication_data"} | _TEXTS),
    **{kind: frozenset(_TEXTS) for kind in (4, 5, 6, 7, 9, 11)},
}


def varint(number: int) -> bytes:
    """Variable Byte Integer of fewest bytes [MQTT-1.5.5-1]."""
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def text(value: bytes | str) -> bytes:
    """Two bytes of length, then the bytes, whatever they are: tests send bad UTF-8 too."""
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def encode_value(kind: str, value: PropertyValue) -> bytes:
    if isinstance(value, tuple):
        return text(value[0]) + text(value[1])
    if isinstance(value, bytes):
        return text(value)
    return varint(value) if kind == "varint" else value.to_bytes({"byte": 1, "u16": 2, "u32": 4}[kind], "big")


def encode(properties: Properties) -> bytes:
    """The properties in the order given, with their length before them."""
    body = b"".join(bytes([TABLE[name][0]]) + encode_value(TABLE[name][1], value) for name, value in properties)
    return varint(len(body)) + body


class Cursor:
    """Reads a packet's body from front to back; every read past its end is a failed test."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.raw) - self.at

    def take(self, count: int) -> bytes:
        assert self.left >= count, f"the server's packet is {count - self.left} bytes short: {self.raw.hex()}"
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        start, value, shift = self.at, 0, 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            assert shift < 28, "a Variable Byte Integer has at most 4 bytes"
        assert self.raw[start : self.at] == varint(value), "[MQTT-1.5.5-1] the server must use the fewest bytes"
        return value

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def utf8(self) -> bytes:
        raw = self.binary()
        assert "\0" not in raw.decode(), "[MQTT-1.5.4-2] no U+0000 from the server"
        return raw

    def properties(self, packet_type: int) -> list[tuple[str, PropertyValue]]:
        """Decodes a property block, held against what a server may send on such a packet."""
        inner = Cursor(self.take(self.varint()))
        found: list[tuple[str, PropertyValue]] = []
        while inner.left:
            name = NAMES[inner.varint()]
            found.append((name, inner.property_value(TABLE[name][1])))
            assert name in FROM_SERVER[packet_type], f"{name} must not stand on packet type {packet_type}"
        once = [name for name, _ in found if name not in ("user_property", "subscription_identifier")]
        assert len(once) == len(set(once)), f"a property stands twice: {once}"
        return found

    def property_value(self, kind: str) -> PropertyValue:
        if kind == "pair":
            return self.utf8(), self.utf8()
        if kind == "utf8":
            return self.utf8()
        if kind == "binary":
            return self.binary()
        return self.varint() if kind == "varint" else self.number({"byte": 1, "u16": 2, "u32": 4}[kind])
