"""The MQTT 5 properties: one table says which there are, their type, and which packets may carry them. MQTT 5.0 §2.2.2"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from mqtt_proxy.packets.reason_codes import ProtocolViolation, QuotaExceeded, TopicAliasInvalid, TopicNameInvalid
from mqtt_proxy.packets.wire import Reader, binary, varint

WILL = 0
"""In place of a packet type: the Will Properties inside a CONNECT."""


@dataclass(slots=True, repr=False)
class Properties:
    """One packet's properties; None is "absent". Strings are UTF-8 bytes, times are seconds."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: bytes | None = None
    response_topic: bytes | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: list[int] = field(default_factory=list)
    session_expiry: int | None = None
    assigned_client_id: bytes | None = None
    server_keep_alive: int | None = None
    authentication_method: bytes | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay: int | None = None
    request_response_information: int | None = None
    response_information: bytes | None = None
    server_reference: bytes | None = None
    reason_string: bytes | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: list[tuple[bytes, bytes]] = field(default_factory=list)
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None

    def __repr__(self) -> str:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return f"Properties({', '.join(f'{name}={value!r}' for name, value in values if value not in (None, []))})"


def _read_pair(reader: Reader, what: str) -> tuple[bytes, bytes]:
    return reader.utf8(what), reader.utf8(what)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A data type: how it is read, how it is written."""

    read: Callable[[Reader, str], Any]
    write: Callable[[Any], bytes]


_U8 = _Kind(Reader.u8, lambda value: value.to_bytes(1, "big"))
_U16 = _Kind(Reader.u16, lambda value: value.to_bytes(2, "big"))
_U32 = _Kind(Reader.u32, lambda value: value.to_bytes(4, "big"))
_VARINT = _Kind(Reader.varint, varint)
_TEXT = _Kind(Reader.utf8, binary)
_BINARY = _Kind(Reader.binary, binary)
_PAIR = _Kind(_read_pair, lambda pair: binary(pair[0]) + binary(pair[1]))


@dataclass(frozen=True, slots=True)
class _Property:
    """A row of the table: `packets` are the packet types (and WILL) that may carry it."""

    identifier: int
    name: str
    kind: _Kind
    packets: frozenset[int]
    repeats: frozenset[int] = frozenset()
    """Where it may stand more than once; its attribute is then a list."""
    lowest: int = 0
    highest: int = 2**32 - 1

    @property
    def text(self) -> str:
        return self.name.replace("_", " ")


def _row(identifier: int, name: str, kind: _Kind, *packets: int, lowest: int = 0, highest: int = 2**32 - 1) -> _Property:
    return _Property(identifier, name, kind, frozenset(packets), lowest=lowest, highest=highest)


_EVERYWHERE = frozenset((WILL, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15))

TABLE: dict[int, _Property] = {
    row.identifier: row
    for row in (
        _row(1, "payload_format", _U8, WILL, 3, highest=1),
        _row(2, "message_expiry", _U32, WILL, 3),
        _row(3, "content_type", _TEXT, WILL, 3),
        _row(8, "response_topic", _TEXT, WILL, 3),
        _row(9, "correlation_data", _BINARY, WILL, 3),
        _Property(11, "subscription_identifiers", _VARINT, frozenset((3, 8)), frozenset((3,)), lowest=1),
        _row(17, "session_expiry", _U32, 1, 2, 14),
        _row(18, "assigned_client_id", _TEXT, 2),
        _row(19, "server_keep_alive", _U16, 2),
        _row(21, "authentication_method", _TEXT, 1, 2, 15),
        _row(22, "authentication_data", _BINARY, 1, 2, 15),
        _row(23, "request_problem_information", _U8, 1, highest=1),
        _row(24, "will_delay", _U32, WILL),
        _row(25, "request_response_information", _U8, 1, highest=1),
        _row(26, "response_information", _TEXT, 2),
        _row(28, "server_reference", _TEXT, 2, 14),
        _row(31, "reason_string", _TEXT, 2, 4, 5, 6, 7, 9, 11, 14, 15),
        _row(33, "receive_maximum", _U16, 1, 2, lowest=1),
        _row(34, "topic_alias_maximum", _U16, 1, 2),
        _row(35, "topic_alias", _U16, 3, lowest=1),
        _row(36, "maximum_qos", _U8, 2, highest=1),
        _row(37, "retain_available", _U8, 2, highest=1),
        _Property(38, "user_properties", _PAIR, _EVERYWHERE, _EVERYWHERE),
        _row(39, "maximum_packet_size", _U32, 1, 2, lowest=1),
        _row(40, "wildcard_subscription_available", _U8, 2, highest=1),
        _row(41, "subscription_identifier_available", _U8, 2, highest=1),
        _row(42, "shared_subscription_available", _U8, 2, highest=1),
    )
}


def _value(reader: Reader, row: _Property) -> Any:
    what = row.text
    value = row.kind.read(reader, what)
    if not isinstance(value, int):
        return value
    if not row.lowest <= value <= row.highest:
        if row.name == "topic_alias":
            raise TopicAliasInvalid(f"{reader.packet}: topic alias 0")  # [MQTT-3.3.2-8]
        raise ProtocolViolation(f"{reader.packet}: {what} is {value}")
    return value


def read_properties(reader: Reader, packet: int) -> Properties:
    """The property block (length and all) at the reader's place, checked against the table for this packet type.

    MalformedPacket for an identifier that is unknown or not for this packet (MQTT 5.0 §2.2.2.2), ProtocolViolation
    for one that stands there twice or holds a forbidden value.
    """
    size = reader.varint("property length")
    if size == 0:
        return Properties()
    if size > reader.end - reader.at:
        raise reader.fault("the properties are longer than the packet")
    block = Reader(reader.data, reader.packet, reader.at, reader.at + size)
    reader.at += size
    properties = Properties()
    count = 0
    while block.more():
        count += 1
        if count > reader.max_properties:
            raise QuotaExceeded(f"{reader.packet}: more than {reader.max_properties} properties")
        row = TABLE.get(block.u8("property identifier"))
        if row is None or packet not in row.packets:
            raise block.fault(f"property {block.data[block.at - 1]} is not allowed here")
        value = _value(block, row)
        present = getattr(properties, row.name)
        if isinstance(present, list):
            if present and packet not in row.repeats:
                raise ProtocolViolation(f"{block.packet}: {row.text} twice")
            present.append(value)
        elif present is not None:
            raise ProtocolViolation(f"{block.packet}: {row.text} twice")
        else:
            setattr(properties, row.name, value)
    if properties.response_topic is not None and (b"+" in properties.response_topic or b"#" in properties.response_topic):
        raise TopicNameInvalid(f"{block.packet}: the response topic has a wildcard")  # [MQTT-3.3.2-14]
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation(f"{block.packet}: authentication data without a method")
    return properties


def decode_properties(block: bytes, packet: int) -> Properties:
    """A block without its length, such as `Message.properties` (packet type 3)."""
    return read_properties(Reader(varint(len(block)) + block, "properties"), packet)


def encode_properties(properties: Properties) -> bytes:
    """The block without its length, in order of identifiers; lists keep their order. [MQTT-3.3.2-18]"""
    out = []
    for row in TABLE.values():
        value = getattr(properties, row.name)
        if isinstance(value, list):
            out += [bytes((row.identifier,)) + row.kind.write(each) for each in value]
        elif value is not None:
            out.append(bytes((row.identifier,)) + row.kind.write(value))
    return b"".join(out)


def property_block(properties: Properties | None) -> bytes:
    """Length and block, as it stands in a packet."""
    if properties is None:
        return b"\0"
    block = encode_properties(properties)
    return varint(len(block)) + block
