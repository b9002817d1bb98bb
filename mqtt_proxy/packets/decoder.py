"""Bytes of a stream to packets: frames, PUBLISH and plain acknowledgements here, the rest in `control_packets`.

Compiled (decoder.pxd gives the C types); the loop touches each byte of a header once and copies payload and topic once.
MQTT 5.0 §2.1, §3.3.
"""

from __future__ import annotations

import cython

from lmq_store.api.model import Message
from mqtt_proxy.packets.control_packets import check_first_byte, decode_body, name_of, topic_name
from mqtt_proxy.packets.reason_codes import (
    MalformedPacket,
    PacketTooLarge,
    ProtocolViolation,
    QuotaExceeded,
    TopicAliasInvalid,
    TopicNameInvalid,
)
from mqtt_proxy.packets.wire import PROPERTIES_MAX, utf8_fault

KNOWN_TOPICS_MAX = 65_536
"""Topic names beyond ASCII that are remembered as valid; at that number all are forgotten."""

KNOWN_TOPIC_BYTES = 256
"""Longer names are checked each time, so that what is remembered stays below 25 MB."""

known_topics: set[bytes] = set()
"""Valid topic names that had to be decoded to know it."""


def decode(
    buffer: bytearray,
    start: int,
    end: int,
    version: int,
    max_packet: int,
    out: list[object],
    from_client: bool = True,
    max_properties: int = PROPERTIES_MAX,
) -> int:
    """Append every complete packet in `buffer[start:end]` to `out`; returns the position of the first byte not consumed.

    Appended are: a `Message` for PUBLISH; `packet_type << 16 | packet_id` for PUBACK, PUBREC, PUBREL and PUBCOMP without
    a reason or properties; `12 << 16` and `13 << 16` for pings; objects of `types` for the rest.
    Version 0 stands for "not known yet": only CONNECT (a client's view: CONNACK, AUTH) is legal, and it ends the call.
    More than `max_properties` in one packet raise QuotaExceeded.
    Raises a ProtocolError at the first bad packet, as soon as its fixed header shows it; the ones before are in `out`.
    """
    p = buffer
    at = start
    while at < end:
        first = p[at]
        kind = first >> 4
        flags = first & 15
        if version == 0 or kind < 3 or kind > 7:
            check_first_byte(first, version, from_client)
        elif kind == 3:
            if flags & 6 == 6 or flags & 14 == 8:
                check_first_byte(first, version, from_client)
        elif flags != (2 if kind == 6 else 0):
            check_first_byte(first, version, from_client)
        body = at + 1
        if body >= end:
            break
        digit = p[body]
        body += 1
        length = digit & 127
        if digit >= 128:
            shift = 7
            while digit >= 128:
                if shift > 21:
                    raise MalformedPacket(f"{name_of(kind)}: remaining length is longer than 4 bytes")
                if body >= end:
                    return at
                digit = p[body]
                body += 1
                length |= (digit & 127) << shift
                shift += 7
            if digit == 0 and version == 5:
                raise MalformedPacket(f"{name_of(kind)}: remaining length is not in its shortest form")  # [MQTT-1.5.5-1]
        stop = body + length
        if stop - at > max_packet:
            raise PacketTooLarge(f"{name_of(kind)} of {stop - at} bytes, {max_packet} are allowed")  # [MQTT-3.1.2-24]
        if stop > end:
            break
        if kind == 3:
            out.append(publish(p, first, body, stop, version, from_client, max_properties))
        elif length == 2 and 4 <= kind <= 7:
            packet_id = p[body] << 8 | p[body + 1]
            if packet_id == 0:
                raise ProtocolViolation(f"{name_of(kind)}: packet identifier 0")  # [MQTT-2.2.1-3]
            out.append(kind << 16 | packet_id)
        else:
            packet = decode_body(kind, piece(p, body, stop), version, from_client, max_properties)
            if version == 0 and kind == 1 and digit == 0 and body - at > 2 and packet.version == 5:
                raise MalformedPacket("CONNECT: remaining length is not in its shortest form")  # [MQTT-1.5.5-1]
            out.append(packet)
            if version == 0:
                return stop
        at = stop
    return at


def frame_length(buffer: bytearray, start: int, end: int) -> int:
    """The whole length in bytes of the packet that begins at `start`; 0 while its fixed header is incomplete."""
    p = buffer
    length = 0
    shift = 0
    at = start + 1
    while at < end:
        digit = p[at]
        at += 1
        length |= (digit & 127) << shift
        if digit < 128:
            return at - start + length
        shift += 7
        if shift > 21:
            raise MalformedPacket("remaining length is longer than 4 bytes")
    return 0


def piece(p: bytearray, start: int, stop: int) -> bytes:
    """A copy of the bytes from `start` to `stop`."""
    if cython.compiled:
        return p[start:stop]  # type: ignore[return-value]
    else:
        return bytes(p[start:stop])


def publish(p: bytearray, first: int, start: int, stop: int, version: int, from_client: bool, max_properties: int) -> Message:
    """The PUBLISH whose body lies between `start` and `stop`."""
    at = start + 2
    if at > stop:
        raise MalformedPacket("PUBLISH: ends inside the topic")
    topic_end = at + (p[start] << 8 | p[start + 1])
    if topic_end > stop:
        raise MalformedPacket("PUBLISH: ends inside the topic")
    topic = piece(p, at, topic_end)
    if not is_plain_ascii(topic, topic_end - at) and topic not in known_topics:
        check_topic(topic)
    qos = first >> 1 & 3
    at = topic_end
    packet_id = 0
    if qos:
        at += 2
        if at > stop:
            raise MalformedPacket("PUBLISH: ends inside the packet identifier")
        packet_id = p[topic_end] << 8 | p[topic_end + 1]
        if packet_id == 0:
            raise ProtocolViolation("PUBLISH: packet identifier 0")  # [MQTT-2.2.1-3]
    if cython.compiled:
        message = Message.__new__(Message)  # all zero; only what differs is set
        message.topic = topic
        message.qos = qos
        message.retain = (first & 1) != 0
        message.properties = b""
        message.client_id = b""
        message.expiry_s = -1
        message.position = -1
    else:
        message = Message(topic, b"", qos, bool(first & 1))
    message.dup = (first & 8) != 0
    message.packet_id = packet_id
    if version == 5:
        at = publish_properties(p, at, stop, message, from_client, max_properties)
    if topic_end == start + 2 and message.topic_alias == 0:
        raise ProtocolViolation("PUBLISH: empty topic without a topic alias")  # [MQTT-4.7.3-1]
    message.payload = piece(p, at, stop)
    return message


def check_topic(topic: bytes) -> None:
    """Look closely at a topic, and remember that it is valid. Raises MalformedPacket or TopicNameInvalid."""
    topic_name(topic, "PUBLISH")
    if len(topic) <= KNOWN_TOPIC_BYTES:
        if len(known_topics) >= KNOWN_TOPICS_MAX:
            known_topics.clear()
        known_topics.add(topic)


def is_plain_ascii(p: bytes, size: int) -> bool:
    """True for a topic name that needs no closer look. An empty one is for the caller to judge."""
    for at in range(size):
        digit = p[at]
        if digit == 0 or digit > 127 or digit == 35 or digit == 43:  # U+0000, not ASCII, "#", "+"
            return False
    return True


def known_topic_count() -> int:
    """How many topic names are remembered as valid, at most KNOWN_TOPICS_MAX."""
    return len(known_topics)


def publish_properties(p: bytearray, start: int, stop: int, message: Message, from_client: bool, max_properties: int) -> int:
    """Check the property block and put it into the message, without alias and expiry; returns where the payload begins."""
    length = 0
    shift = 0
    at = start
    while True:
        if at >= stop:
            raise MalformedPacket("PUBLISH: ends inside the property length")
        digit = p[at]
        at += 1
        length |= (digit & 127) << shift
        if digit < 128:
            break
        shift += 7
        if shift > 21:
            raise MalformedPacket("PUBLISH: property length is longer than 4 bytes")
    if digit == 0 and shift:
        raise MalformedPacket("PUBLISH: property length is not in its shortest form")
    if length == 0:
        return at
    end = at + length
    if end > stop:
        raise MalformedPacket("PUBLISH: the properties are longer than the packet")
    kept = at  # start of the bytes that are still to be kept
    seen = 0
    block = b""
    count = 0
    while at < end:
        count += 1
        if count > max_properties:
            raise QuotaExceeded(f"PUBLISH: more than {max_properties} properties")
        identifier = p[at]
        if identifier == 38:
            at = after_text(p, after_text(p, at + 1, end), end)
            continue
        if identifier == 11:
            if from_client:
                raise ProtocolViolation("PUBLISH: subscription identifier from a client")  # [MQTT-3.3.4-6]
            at = after_subscription_identifier(p, at + 1, end)
            continue
        if identifier > 35:
            raise MalformedPacket(f"PUBLISH: property {identifier} is not allowed here")
        bit = 1
        bit <<= identifier
        if seen & bit:
            raise ProtocolViolation(f"PUBLISH: property {identifier} twice")
        seen |= bit
        if identifier == 1:
            if end - at < 2:
                raise MalformedPacket("PUBLISH: ends inside the payload format")
            if p[at + 1] > 1:
                raise ProtocolViolation("PUBLISH: payload format is neither 0 nor 1")
            at += 2
        elif identifier == 2:
            if end - at < 5:
                raise MalformedPacket("PUBLISH: ends inside the message expiry")
            expiry_s = p[at + 1]
            expiry_s = expiry_s << 24 | p[at + 2] << 16 | p[at + 3] << 8 | p[at + 4]
            message.expiry_s = expiry_s
            block += piece(p, kept, at)
            at += 5
            kept = at
        elif identifier == 35:
            if end - at < 3:
                raise MalformedPacket("PUBLISH: ends inside the topic alias")
            message.topic_alias = p[at + 1] << 8 | p[at + 2]
            if message.topic_alias == 0:
                raise TopicAliasInvalid("PUBLISH: topic alias 0")  # [MQTT-3.3.2-8]
            block += piece(p, kept, at)
            at += 3
            kept = at
        elif identifier == 3:
            at = after_text(p, at + 1, end)
        elif identifier == 8:
            scan = at + 3
            at = after_text(p, at + 1, end)
            while scan < at:
                if p[scan] == 35 or p[scan] == 43:
                    raise TopicNameInvalid("PUBLISH: the response topic has a wildcard")  # [MQTT-3.3.2-14]
                scan += 1
        elif identifier == 9:
            at = after_binary(p, at + 1, end)
        else:
            raise MalformedPacket(f"PUBLISH: property {identifier} is not allowed here")
    message.properties = block + piece(p, kept, end) if block else piece(p, kept, end)
    return end


def after_binary(p: bytearray, at: int, end: int) -> int:
    """The position after a field of two length bytes and its data."""
    if end - at < 2:
        raise MalformedPacket("PUBLISH: ends inside a property")
    stop = at + 2 + (p[at] << 8 | p[at + 1])
    if stop > end:
        raise MalformedPacket("PUBLISH: ends inside a property")
    return stop


def after_text(p: bytearray, at: int, end: int) -> int:
    """The position after a UTF-8 string, which is checked. [MQTT-1.5.4-1] [MQTT-1.5.4-2]"""
    stop = after_binary(p, at, end)
    at += 2
    if cython.compiled:
        while at < stop and 0 < p[at] < 128:
            at += 1
    if at < stop:
        check_text(piece(p, at, stop))
    return stop


def check_text(text: bytes) -> None:
    fault = utf8_fault(text)
    if fault is not None:
        raise MalformedPacket(f"PUBLISH: a property {fault}")


def after_subscription_identifier(p: bytearray, at: int, end: int) -> int:
    """The position after a Subscription Identifier, 1 to 268,435,455."""
    value = 0
    shift = 0
    while at < end and shift <= 21:
        digit = p[at]
        at += 1
        value |= (digit & 127) << shift
        if digit < 128:
            if value == 0:
                raise ProtocolViolation("PUBLISH: subscription identifier 0")
            return at
        shift += 7
    raise MalformedPacket("PUBLISH: ends inside the subscription identifier")
