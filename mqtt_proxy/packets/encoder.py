"""Packets to bytes. PUBLISH and acknowledgements are hot and compiled; the rest is plain.

A fan-out encodes a message once (`wire4`, `wire5`), then copies the frame for each subscriber with header and packet
identifier patched (`append_publish1`). MQTT 5.0 §3.
"""

from __future__ import annotations

import cython

from lmq_store.api.model import Message
from mqtt_proxy.packets.properties import Properties, property_block
from mqtt_proxy.packets.reason_codes import connack_311
from mqtt_proxy.packets.types import V5, V31, Connect, PacketType, Subscribe, Unsubscribe
from mqtt_proxy.packets.wire import binary, varint

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"


def varint_size(value: int) -> int:
    """Bytes that a Variable Byte Integer takes."""
    if value < 128:
        return 1
    if value < 16_384:
        return 2
    return 3 if value < 2_097_152 else 4


def put_varint(p: bytearray, at: int, value: int) -> int:
    """Write a Variable Byte Integer; returns the position after it."""
    while value >= 128:
        p[at] = value & 127 | 128
        value >>= 7
        at += 1
    p[at] = value
    return at + 1


def put_bytes(p: bytearray, at: int, data: bytes) -> int:
    """Write the bytes; returns the position after them."""
    size = len(data)
    if cython.compiled:
        memcpy(p + at, as_chars(data), size)  # type: ignore[name-defined, operator]  # noqa: F821
    else:
        p[at : at + size] = data
    return at + size


def body_size(message: Message, header: int, properties: bytes | None) -> int:
    """The Remaining Length of the PUBLISH that `put_frame` writes."""
    size = 2 + len(message.topic) + len(message.payload)
    if header & 6:
        size += 2
    if properties is not None:
        size += varint_size(len(properties)) + len(properties)
    return size


def put_frame(p: bytearray, at: int, size: int, message: Message, header: int, packet_id: int, properties: bytes | None) -> None:
    """Write a PUBLISH of Remaining Length `size`; the QoS bits of `header` say whether it has a packet id."""
    p[at] = header
    at = put_varint(p, at + 1, size)
    length = len(message.topic)
    p[at] = length >> 8
    p[at + 1] = length & 255
    at = put_bytes(p, at + 2, message.topic)
    if header & 6:
        p[at] = packet_id >> 8
        p[at + 1] = packet_id & 255
        at += 2
    if properties is not None:
        at = put_bytes(p, put_varint(p, at, len(properties)), properties)
    put_bytes(p, at, message.payload)


def frame(message: Message, header: int, packet_id: int, properties: bytes | None) -> bytes:
    """A PUBLISH with this first byte; `properties` is None in MQTT 3.x."""
    size = body_size(message, header, properties)
    whole = 1 + varint_size(size) + size
    if cython.compiled:
        out: bytes = new_bytes(cython.NULL, whole)  # type: ignore[name-defined]  # noqa: F821
        put_frame(out, 0, size, message, header, packet_id, properties)  # type: ignore[arg-type]
        return out
    else:
        buffer = bytearray(whole)
        put_frame(buffer, 0, size, message, header, packet_id, properties)
        return bytes(buffer)


def append_publish(out: bytearray, message: Message, version: int, header: int, packet_id: int) -> None:
    """Append the message as it was published, but for the first byte and packet id: the cheapest way to one subscriber.

    Without expiry, subscription identifiers or alias: for what needs those there is `publish`.
    """
    properties = message.properties if version == V5 else None
    size = body_size(message, header, properties)
    at = len(out)
    whole = 1 + varint_size(size) + size
    if cython.compiled:
        grow(out, at + whole)  # type: ignore[name-defined]  # noqa: F821
    else:
        out += bytes(whole)
    put_frame(out, at, size, message, header, packet_id, properties)


def publish(
    message: Message,
    version: int,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    subscription_ids: tuple[int, ...] = (),
    topic_alias: int = 0,
    send_topic: bool = True,
    expiry_s: int = -1,
    extra: bytes = b"",
) -> bytes:
    """The message as a PUBLISH with everything a subscriber may be due; `extra` is more properties, already encoded.

    `send_topic=False` leaves the topic empty, for an alias that the receiver knows. MQTT 3.x gets no properties.
    """
    header = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    if version != V5:
        return frame(message, header, packet_id, None)
    properties = message.properties
    if expiry_s >= 0:
        properties += b"\x02" + expiry_s.to_bytes(4, "big")
    for subscription_id in subscription_ids:
        properties += b"\x0b" + varint(subscription_id)  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]
    if topic_alias:
        properties += b"\x23" + topic_alias.to_bytes(2, "big")
    properties += extra
    if send_topic:
        return frame(message, header, packet_id, properties)
    return frame(Message(b"", message.payload), header, packet_id, properties)


def wire4(message: Message) -> bytes:
    """The frame for MQTT 3.x with QoS 1, retain 0, DUP 0, packet id 0; made once per message."""
    wire = message.wire4
    if wire is None:
        wire = frame(message, 0x32, 0, None)
        message.wire4 = wire
    return wire


def wire5(message: Message) -> bytes:
    """The frame for MQTT 5 with QoS 1, retain 0, DUP 0, packet id 0 and no expiry; made once per message."""
    wire = message.wire5
    if wire is None:
        wire = frame(message, 0x32, 0, message.properties)
        message.wire5 = wire
    return wire


def wire4_q0(message: Message) -> bytes:
    """The QoS 0 frame for MQTT 3.x (no packet id); not kept: the caller joins and keeps it per run."""
    return frame(message, 0x30, 0, None)


def wire5_q0(message: Message) -> bytes:
    """The QoS 0 frame for MQTT 5 (no packet id, no expiry); not kept."""
    return frame(message, 0x30, 0, message.properties)


def id_offset(wire: bytes, topic_length: int) -> int:
    """Where the packet id stands in a `wire4` or `wire5` frame."""
    return wire_id_at(wire, topic_length)


def wire_id_at(p: bytes, topic_length: int) -> int:
    at = 1
    while p[at] >= 128:
        at += 1
    return at + 3 + topic_length


def append_publish1(out: bytearray, wire: bytes, packet_id: int, id_at: int, header: int) -> None:
    """Append a `wire4` or `wire5` frame with its first byte and packet id replaced (QoS 1 and 2 headers only)."""
    at = len(out)
    if cython.compiled:
        grow(out, at + len(wire))  # type: ignore[name-defined]  # noqa: F821
        put_publish1(out, at, wire, packet_id, id_at, header)
    else:
        out += wire
        out[at] = header
        out[at + id_at] = packet_id >> 8
        out[at + id_at + 1] = packet_id & 255


def put_publish1(p: bytearray, at: int, wire: bytes, packet_id: int, id_at: int, header: int) -> None:
    put_bytes(p, at, wire)
    p[at] = header
    p[at + id_at] = packet_id >> 8
    p[at + id_at + 1] = packet_id & 255


def ack_header(packet_type: int) -> int:
    """The first byte of an acknowledgement; PUBREL alone has flags. [MQTT-3.6.1-1]"""
    return packet_type << 4 | (2 if packet_type == 6 else 0)


def ack(packet_type: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP with success: 4 bytes, the same in every version."""
    return bytes((ack_header(packet_type), 2, packet_id >> 8, packet_id & 255))


def append_ack(out: bytearray, packet_type: int, packet_id: int) -> None:
    """Append what `ack` returns."""
    if cython.compiled:
        at = len(out)
        grow(out, at + 4)  # type: ignore[name-defined]  # noqa: F821
        put_ack(out, at, packet_type, packet_id)
    else:
        out += ack(packet_type, packet_id)


def put_ack(p: bytearray, at: int, packet_type: int, packet_id: int) -> None:
    p[at] = ack_header(packet_type)
    p[at + 1] = 2
    p[at + 2] = packet_id >> 8
    p[at + 3] = packet_id & 255


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


def ack_reason(packet_type: int, packet_id: int, reason: int, version: int, properties: Properties | None = None) -> bytes:
    """An acknowledgement with a reason; MQTT 3.x has none and gets the plain one."""
    if version != V5 or (reason == 0 and properties is None):
        return ack(packet_type, packet_id)
    body = packet_id.to_bytes(2, "big") + bytes((reason,))
    if properties is not None:
        body += property_block(properties)
    return _packet(ack_header(packet_type), body)


def connack(version: int, session_present: bool, reason: int, properties: Properties | None = None) -> bytes:
    """A CONNACK; empty where MQTT 3.x has no return code for the reason and the connection is just closed.

    `reason` is always the MQTT 5 code. [MQTT-3.2.2-6]
    """
    if version == V5:
        return _packet(0x20, bytes((session_present, reason)) + property_block(properties))
    return_code = connack_311(reason)
    if return_code is None:
        return b""
    return bytes((0x20, 2, session_present and version != V31, return_code))  # MQTT 3.1 §3.2: that byte is reserved


def suback(version: int, packet_id: int, reasons: list[int], properties: Properties | None = None) -> bytes:
    """A SUBACK, one reason per filter; failures become 0x80 in MQTT 3.x. [MQTT-3.9.3-2]"""
    head = packet_id.to_bytes(2, "big")
    if version == V5:
        return _packet(0x90, head + property_block(properties) + bytes(reasons))
    return _packet(0x90, head + bytes(min(reason, 0x80) for reason in reasons))


def unsuback(version: int, packet_id: int, reasons: list[int], properties: Properties | None = None) -> bytes:
    """An UNSUBACK; MQTT 3.x has no reasons."""
    head = packet_id.to_bytes(2, "big")
    return _packet(0xB0, head + property_block(properties) + bytes(reasons)) if version == V5 else _packet(0xB0, head)


def disconnect(version: int, reason: int, properties: Properties | None = None) -> bytes:
    """A DISCONNECT; MQTT 3.x knows only the client's, without a reason."""
    if version != V5 or (reason == 0 and properties is None):
        return b"\xe0\x00"
    if properties is None:
        return bytes((0xE0, 1, reason))
    return _packet(0xE0, bytes((reason,)) + property_block(properties))


def auth(reason: int, properties: Properties) -> bytes:
    """An AUTH (MQTT 5 only)."""
    return _packet(0xF0, bytes((reason,)) + property_block(properties))


def connect(packet: Connect) -> bytes:
    """A client's CONNECT."""
    flags = 2 if packet.clean_start else 0
    will = packet.will
    if will is not None:
        flags |= 4 | will.qos << 3 | (32 if will.retain else 0)
    if packet.username is not None:
        flags |= 128
    if packet.password is not None:
        flags |= 64
    body = binary(b"MQIsdp" if packet.version == V31 else b"MQTT") + bytes((packet.version, flags))
    body += packet.keep_alive.to_bytes(2, "big")
    if packet.version == V5:
        body += property_block(packet.properties)
    body += binary(packet.client_id)
    if will is not None:
        if packet.version == V5:
            block = will.properties
            if will.delay_s:
                block += b"\x18" + will.delay_s.to_bytes(4, "big")
            if will.expiry_s >= 0:
                block += b"\x02" + will.expiry_s.to_bytes(4, "big")
            body += varint(len(block)) + block
        body += binary(will.topic) + binary(will.payload)
    for text in (packet.username, packet.password):
        if text is not None:
            body += binary(text)
    return _packet(0x10, body)


def subscribe(packet: Subscribe, version: int) -> bytes:
    """A client's SUBSCRIBE; MQTT 3.x carries the QoS alone."""
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += property_block(packet.properties)
    for request in packet.filters:
        options = request.qos
        if version == V5:
            options |= request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
        body += binary(request.filter) + bytes((options,))
    return _packet(PacketType.SUBSCRIBE << 4 | 2, body)


def unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    """A client's UNSUBSCRIBE."""
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += property_block(packet.properties)
    body += b"".join(binary(topic_filter) for topic_filter in packet.filters)
    return _packet(PacketType.UNSUBSCRIBE << 4 | 2, body)
