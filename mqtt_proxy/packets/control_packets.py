"""Bodies of the packets that aren't hot: everything but PUBLISH and plain acknowledgements.

Each `_connect`, `_subscribe`, … takes a Reader at the body's first byte. What a server may receive and what a client
may receive are two tables, so a packet in the wrong direction is a Protocol Error before its body is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqtt_proxy.packets.properties import WILL, Properties, encode_properties, read_properties
from mqtt_proxy.packets.reason_codes import (
    ACK_REASONS,
    CLIENT_AUTH_REASONS,
    CLIENT_DISCONNECT_REASONS,
    CONNACK_REASONS,
    SERVER_AUTH_REASONS,
    SERVER_DISCONNECT_REASONS,
    SUBACK_REASONS,
    UNSUBACK_REASONS,
    MalformedPacket,
    ProtocolViolation,
    TopicNameInvalid,
    UnsupportedProtocolVersion,
)
from mqtt_proxy.packets.types import (
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Puback,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt_proxy.packets.wire import Reader, utf8_fault

FIRST = 0
"""The version to decode with as long as no CONNECT (or CONNACK) has told it."""

_FROM_CLIENT = frozenset((3, 4, 5, 6, 7, 8, 10, 12, 14))
_FROM_SERVER = frozenset((2, 3, 4, 5, 6, 7, 9, 11, 13))
_QOS1_FLAGS = frozenset((6, 8, 10))
"""PUBREL, SUBSCRIBE and UNSUBSCRIBE carry the flags 0010. [MQTT-2.1.3-1]"""


def name_of(packet_type: int) -> str:
    return PacketType(packet_type).name if 1 <= packet_type <= 15 else f"packet type {packet_type}"


def check_first_byte(first: int, version: int, from_client: bool) -> None:
    """Is a packet with this first byte legal here? Known before the rest of the packet has come.

    MalformedPacket for a reserved type or flags [MQTT-2.1.3-1], ProtocolViolation for the wrong time or direction.
    """
    packet_type = first >> 4
    flags = first & 15
    if packet_type == 0 or (packet_type == 15 and version in (V31, V311)):
        raise MalformedPacket(f"packet type {packet_type} is reserved")
    if packet_type == 3:
        if flags & 6 == 6:
            raise MalformedPacket("PUBLISH: QoS 3")  # [MQTT-3.3.1-4]
        if flags & 14 == 8:
            raise MalformedPacket("PUBLISH: DUP with QoS 0")  # [MQTT-3.3.1-2]
    elif packet_type in _QOS1_FLAGS:
        # MQTT 3.1 §3.6, §3.8, §3.10: these were QoS 1 messages that could be sent again, with DUP.
        if flags != 2 and not (version == V31 and flags == 10):
            raise MalformedPacket(f"{name_of(packet_type)}: flags {flags:04b}")
    elif flags:
        raise MalformedPacket(f"{name_of(packet_type)}: flags {flags:04b}")
    if version == FIRST:
        if packet_type != (1 if from_client else 2) and (from_client or packet_type != 15):
            raise ProtocolViolation(f"{name_of(packet_type)} before CONNECT")  # [MQTT-3.1.0-1]
    elif packet_type == 1 and from_client:
        raise ProtocolViolation("a second CONNECT")  # [MQTT-3.1.0-2]
    elif packet_type not in (_FROM_CLIENT if from_client else _FROM_SERVER):
        if not (version == V5 and (packet_type == 15 or (packet_type == 14 and not from_client))):
            raise ProtocolViolation(f"{name_of(packet_type)} from the {'client' if from_client else 'server'}")


def topic_name(topic: bytes, packet: str) -> bytes:
    """The topic name back, if it is one; levels and length are policy, not looked at."""
    fault = utf8_fault(topic)
    if fault is not None:
        raise MalformedPacket(f"{packet}: the topic {fault}")  # [MQTT-3.3.2-1]
    if b"+" in topic or b"#" in topic:
        raise TopicNameInvalid(f"{packet}: the topic has a wildcard")  # [MQTT-3.3.2-2]
    return topic


def _packet_id(reader: Reader) -> int:
    packet_id = reader.u16("packet identifier")
    if packet_id == 0:
        raise ProtocolViolation(f"{reader.packet}: packet identifier 0")  # [MQTT-2.2.1-3]
    return packet_id


def _reason(reader: Reader, allowed: frozenset[int]) -> int:
    reason = reader.u8("reason code")
    if reason not in allowed:
        raise ProtocolViolation(f"{reader.packet}: reason code 0x{reason:02X}")
    return reason


def _properties(reader: Reader, version: int, packet: int) -> Properties:
    return read_properties(reader, packet) if version == V5 else Properties()


def _form_of_311(reader: Reader) -> bool:
    """Whether what follows the protocol level reads as MQTT 3.1.1 has it, to the last byte."""
    try:
        flags = reader.u8("connect flags")
        reader.u16("keep alive")
        for _ in range(1 + 2 * (flags >> 2 & 1) + (flags >> 7) + (flags >> 6 & 1)):
            reader.binary("payload")
    except MalformedPacket:
        return False
    return not reader.more()


def _connect(reader: Reader, version: int, from_client: bool) -> Connect:
    name = reader.utf8("protocol name")
    level = reader.u8("protocol level")
    if (name, level) not in ((b"MQTT", V311), (b"MQTT", V5), (b"MQIsdp", V31)):
        form = V5 if level > V5 and not _form_of_311(reader) else level
        if name not in (b"MQTT", b"MQIsdp") and form != V5:
            raise reader.fault(f"protocol name {name[:16]!r}")  # 3.1.1 closes without a CONNACK [MQTT-3.1.4-1]
        raise UnsupportedProtocolVersion(f"CONNECT: protocol {name[:16]!r} level {level}", form)  # [MQTT-3.1.2-1] [MQTT-3.1.2-2]
    flags = reader.u8("connect flags")
    if flags & 1:
        raise reader.fault("reserved connect flag is set")  # [MQTT-3.1.2-3]
    has_will, will_qos, will_retain = bool(flags & 4), flags >> 3 & 3, bool(flags & 32)
    if will_qos == 3:
        raise reader.fault("will QoS 3")  # [MQTT-3.1.2-12]
    if not has_will and (will_qos or will_retain):
        raise reader.fault("will QoS or retain without a will")  # [MQTT-3.1.2-11] [MQTT-3.1.2-13]
    if flags & 192 == 64 and level != V5:
        raise reader.fault("password without a user name")  # MQTT 3.1.1 [MQTT-3.1.2-22]
    keep_alive = reader.u16("keep alive")
    properties = _properties(reader, level, PacketType.CONNECT)
    connect = Connect(level, reader.utf8("client identifier"), bool(flags & 2), keep_alive, properties=properties)
    if has_will:
        connect.will = _will(reader, level, will_qos, will_retain)
    # MQTT 3.1 §3.1: the remaining length decides; a flagged user name or password may be missing.
    if flags & 128 and (level != V31 or reader.more()):
        connect.username = reader.utf8("user name")
    if flags & 64 and (level != V31 or reader.more()):
        connect.password = reader.binary("password")
    return connect


def _will(reader: Reader, level: int, qos: int, retain: bool) -> Will:
    properties = _properties(reader, level, WILL)
    topic = topic_name(reader.utf8("will topic"), reader.packet)
    if not topic:
        raise ProtocolViolation(f"{reader.packet}: empty will topic")  # [MQTT-4.7.3-1]
    will = Will(topic, reader.binary("will payload"), qos, retain)
    if properties.will_delay is not None:
        will.delay_s = properties.will_delay
    if properties.message_expiry is not None:
        will.expiry_s = properties.message_expiry
    properties.will_delay = properties.message_expiry = None
    will.properties = encode_properties(properties)
    return will


def _connack(reader: Reader, version: int, from_client: bool) -> Connack:
    flags = reader.u8("acknowledge flags")
    if flags & 254:
        raise reader.fault("reserved acknowledge flags are set")  # [MQTT-3.2.2-1]
    if version == FIRST:
        version = V5 if reader.end > 2 else V311
    reason = _reason(reader, CONNACK_REASONS if version == V5 else frozenset(range(6)))
    if flags and reason:
        raise ProtocolViolation("CONNACK: session present with a refusal")  # [MQTT-3.2.2-6]
    return Connack(bool(flags), reason, _properties(reader, version, PacketType.CONNACK))


def _acknowledgement(kind: PacketType) -> Callable[[Reader, int, bool], Puback | int]:
    def read(reader: Reader, version: int, from_client: bool) -> Puback | int:
        packet_id = _packet_id(reader)
        if version != V5 or not reader.more():
            return kind << 16 | packet_id
        reason = _reason(reader, ACK_REASONS[kind])
        if not reader.more() or (reason == 0 and reader.data[reader.at :] == b"\0"):
            reader.at = reader.end
            return kind << 16 | packet_id if reason == 0 else Puback(kind, packet_id, reason)
        return Puback(kind, packet_id, reason, read_properties(reader, kind))

    return read


def _subscribe(reader: Reader, version: int, from_client: bool) -> Subscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, version, PacketType.SUBSCRIBE)
    filters = []
    while reader.more():
        topic_filter = _filter(reader)
        options = reader.u8("subscription options")
        if options & (0xC0 if version == V5 else 0xFC):
            raise reader.fault("reserved subscription options are set")  # [MQTT-3.8.3-5]; 3.1.1 [MQTT-3-8.3-4]
        qos, no_local, retain_handling = options & 3, bool(options & 4), options >> 4 & 3
        if qos == 3:
            raise (ProtocolViolation if version == V5 else MalformedPacket)(f"{reader.packet}: QoS 3")
        if retain_handling == 3:
            raise ProtocolViolation(f"{reader.packet}: retain handling 3")
        if no_local and topic_filter.startswith(b"$share/"):
            raise ProtocolViolation(f"{reader.packet}: No Local on a shared subscription")  # [MQTT-3.8.3-4]
        filters.append(SubscriptionRequest(topic_filter, qos, no_local, bool(options & 8), retain_handling))
    if not filters:
        raise ProtocolViolation(f"{reader.packet}: no filter")  # [MQTT-3.8.3-2]
    return Subscribe(packet_id, filters, properties)


def _filter(reader: Reader) -> bytes:
    """The filter's text; whether its wildcards stand right is answered filter by filter, in the SUBACK."""
    topic_filter = reader.utf8("topic filter")
    if not topic_filter:
        raise ProtocolViolation(f"{reader.packet}: empty filter")  # [MQTT-4.7.3-1]
    return topic_filter


def _suback(reader: Reader, version: int, from_client: bool) -> Suback:
    packet_id = _packet_id(reader)
    properties = _properties(reader, version, PacketType.SUBACK)
    allowed = SUBACK_REASONS if version == V5 else frozenset((0, 1, 2, 128))  # 3.1.1 [MQTT-3.9.3-2]
    reasons = []
    while reader.more():
        reasons.append(_reason(reader, allowed))
    return Suback(packet_id, reasons, properties)


def _unsubscribe(reader: Reader, version: int, from_client: bool) -> Unsubscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, version, PacketType.UNSUBSCRIBE)
    filters = []
    while reader.more():
        filters.append(_filter(reader))
    if not filters:
        raise ProtocolViolation(f"{reader.packet}: no filter")  # [MQTT-3.10.3-2]
    return Unsubscribe(packet_id, filters, properties)


def _unsuback(reader: Reader, version: int, from_client: bool) -> Unsuback:
    packet_id = _packet_id(reader)
    properties = _properties(reader, version, PacketType.UNSUBACK)
    reasons = []
    while version == V5 and reader.more():
        reasons.append(_reason(reader, UNSUBACK_REASONS))
    return Unsuback(packet_id, reasons, properties)


def _ping(packet_type: int) -> Callable[[Reader, int, bool], int]:
    return lambda reader, version, from_client: packet_type << 16


def _disconnect(reader: Reader, version: int, from_client: bool) -> Disconnect:
    if version != V5 or not reader.more():
        return Disconnect()
    reason = _reason(reader, CLIENT_DISCONNECT_REASONS if from_client else SERVER_DISCONNECT_REASONS)
    if not reader.more():
        return Disconnect(reason)
    properties = read_properties(reader, PacketType.DISCONNECT)
    if from_client and properties.server_reference is not None:
        raise ProtocolViolation(f"{reader.packet}: server reference from a client")
    if not from_client and properties.session_expiry is not None:
        raise ProtocolViolation(f"{reader.packet}: session expiry from a server")  # [MQTT-3.14.2-2]
    return Disconnect(reason, properties)


def _auth(reader: Reader, version: int, from_client: bool) -> Auth:
    if not reader.more():
        return Auth()
    reason = _reason(reader, CLIENT_AUTH_REASONS if from_client else SERVER_AUTH_REASONS)
    properties = read_properties(reader, PacketType.AUTH) if reader.more() else Properties()
    if properties.authentication_method is None:
        raise ProtocolViolation(f"{reader.packet}: no authentication method")  # MQTT 5.0 §3.15.2.2.2
    return Auth(reason, properties)


_BODIES: dict[int, Callable[[Reader, int, bool], object]] = {
    1: _connect,
    2: _connack,
    4: _acknowledgement(PacketType.PUBACK),
    5: _acknowledgement(PacketType.PUBREC),
    6: _acknowledgement(PacketType.PUBREL),
    7: _acknowledgement(PacketType.PUBCOMP),
    8: _subscribe,
    9: _suback,
    10: _unsubscribe,
    11: _unsuback,
    12: _ping(12),
    13: _ping(13),
    14: _disconnect,
    15: _auth,
}


def decode_body(packet_type: int, body: bytes, version: int, from_client: bool, max_properties: int) -> Any:
    """The packet whose first byte passed `check_first_byte`. Raises a ProtocolError of the kind the clause names."""
    reader = Reader(body, name_of(packet_type), max_properties=max_properties)
    packet = _BODIES[packet_type](reader, version, from_client)
    reader.finish()
    return packet
