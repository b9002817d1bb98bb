"""The encoder writes the table's bytes, caches frames, and patches copies of them."""

from __future__ import annotations

from typing import Any

import pytest

from lmq_store.api.model import Message
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.reason_codes import ReasonCode, connack_311
from mqtt_proxy.packets.types import V5, V31, V311, Auth, Connack, Connect, Disconnect, Puback, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt_proxy.packets.wire import varint

from .table import CASES, Case, Publish, decode_all, raw

pytestmark = pytest.mark.hot


def message_of(packet: Publish) -> Message:
    message = Message(packet.topic, packet.payload, packet.qos, packet.retain)
    message.properties = packet.properties
    return message


def encode(packet: Any, version: int) -> bytes:
    match packet:
        case int():
            return {12: encoder.PINGREQ, 13: encoder.PINGRESP}.get(packet >> 16) or encoder.ack(packet >> 16, packet & 0xFFFF)
        case Publish():
            return encoder.publish(
                message_of(packet), version, packet.qos, packet.retain, packet.dup, packet.packet_id,
                topic_alias=packet.topic_alias, expiry_s=packet.expiry_s,
            )  # fmt: skip
        case Connect():
            return encoder.connect(packet)
        case Connack():
            return encoder.connack(version or V311, packet.session_present, packet.reason, packet.properties)
        case Puback():
            properties = None if packet.properties == Properties() else packet.properties
            return encoder.ack_reason(packet.kind, packet.packet_id, packet.reason, version, properties)
        case Subscribe():
            return encoder.subscribe(packet, version)
        case Suback():
            return encoder.suback(version, packet.packet_id, packet.reasons, packet.properties)
        case Unsubscribe():
            return encoder.unsubscribe(packet, version)
        case Unsuback():
            return encoder.unsuback(version, packet.packet_id, packet.reasons, packet.properties)
        case Disconnect():
            properties = None if packet.properties == Properties() else packet.properties
            return encoder.disconnect(version, packet.reason, properties)
        case Auth():
            return encoder.auth(packet.reason, packet.properties)
    raise AssertionError(packet)


@pytest.mark.parametrize("case", [case for case in CASES if case.canonical], ids=lambda case: case.name)
def test_writes_the_bytes_of_the_table(case: Case) -> None:
    encoded = encode(case.packet, case.version)
    if isinstance(case.packet, Publish | Connect | Connack | Puback | Auth):  # properties may stand in another order
        assert len(encoded) == len(case.data)
        assert decode_all(encoded, case.version, case.from_client) == [case.packet]
    else:
        assert encoded == case.data


MESSAGE = Publish(b"a/b", b"payload", properties=raw("03 0001 't'"))


@pytest.mark.parametrize("payload", [b"", b"x", b"y" * 117, b"y" * 118, b"z" * 20_000, b"w" * 2_100_000], ids=len)
@pytest.mark.parametrize("version", [V31, V311, V5])
def test_frames_of_every_size(version: int, payload: bytes) -> None:
    """The remaining length takes one to four bytes; all ways to write a frame agree."""
    message = Message(b"a/b", payload, 1)
    message.properties = b"" if len(payload) % 2 else raw("03 0001 't'")
    wire = (encoder.wire5 if version == V5 else encoder.wire4)(message)
    assert wire == encoder.publish(message, version, 1, False, False, 0)
    assert (encoder.wire5 if version == V5 else encoder.wire4)(message) is wire
    id_at = encoder.id_offset(wire, 3)
    assert wire[id_at - 5 : id_at + 2] == b"\0\x03a/b\0\0"
    for header, qos, retain, dup in ((0x32, 1, False, False), (0x3A, 1, False, True), (0x35, 2, True, False), (0x33, 1, True, False)):
        for packet_id in (1, 255, 256, 65535):
            out = bytearray(b"before")
            encoder.append_publish1(out, wire, packet_id, id_at, header)
            expected = encoder.publish(message, version, qos, retain, dup, packet_id)
            assert out == b"before" + expected
            direct = bytearray(b"before")
            encoder.append_publish(direct, message, version, header, packet_id)
            assert direct == out
    found = decode_all(encoder.publish(message, version, 1, False, False, 7), version, False, 3_000_000)
    properties = message.properties if version == V5 else b""
    assert found == [Publish(b"a/b", payload, 1, packet_id=7, properties=properties)]
    q0 = (encoder.wire5_q0 if version == V5 else encoder.wire4_q0)(message)
    assert q0 == encoder.publish(message, version, 0, False, False, 0)
    assert decode_all(q0, version, False, 3_000_000) == [Publish(b"a/b", payload, properties=properties)]


def test_publish_with_everything() -> None:
    data = encoder.publish(message_of(MESSAGE), V5, 2, True, True, 9, (1, 300), 5, False, 60, raw("26 0001 'k' 0001 'v'"))
    properties = MESSAGE.properties + raw("0b 01 0b ac02 26 0001 'k' 0001 'v'")
    assert decode_all(data, V5, False) == [Publish(b"", b"payload", 2, True, True, 9, properties, 5, 60)]


def test_nothing_of_mqtt5_goes_to_3_1_1() -> None:
    data = encoder.publish(message_of(MESSAGE), V311, 1, False, False, 9, (1,), 5, True, 60, raw("26 0001 'k' 0001 'v'"))
    assert data == raw("32 [0003 'a/b' 0009 'payload']")


def test_expiry_at_its_ends() -> None:
    for expiry_s in (0, 1, 2**31, 2**32 - 1):
        data = encoder.publish(Message(b"a", b""), V5, 0, False, False, 0, expiry_s=expiry_s)
        assert decode_all(data, V5, False) == [Publish(b"a", expiry_s=expiry_s)]


def test_append_ack() -> None:
    out = bytearray()
    for packet_type in (4, 5, 6, 7):
        for packet_id in (1, 256, 65535):
            encoder.append_ack(out, packet_type, packet_id)
    assert out == b"".join(encoder.ack(packet_type, packet_id) for packet_type in (4, 5, 6, 7) for packet_id in (1, 256, 65535))
    assert out[:4] == b"\x40\x02\x00\x01"
    assert encoder.ack(6, 1) == b"\x62\x02\x00\x01"


def test_connack_to_3_x() -> None:
    """[MQTT-3.2.2-6]: no return code fits, so nothing is sent."""
    assert encoder.connack(V311, True, 0) == b"\x20\x02\x01\x00"
    assert encoder.connack(V31, True, 0) == b"\x20\x02\x00\x00"
    expected = {0x84: 1, 0x85: 2, 0x88: 3, 0x89: 3, 0x86: 4, 0x87: 5, 0x8A: 5}
    for reason, code in expected.items():
        assert encoder.connack(V311, False, reason) == bytes((0x20, 2, 0, code))
    assert encoder.connack(V311, False, ReasonCode.MALFORMED_PACKET) == b""
    assert connack_311(ReasonCode.PACKET_TOO_LARGE) is None


def test_failures_in_a_3_1_1_suback() -> None:
    assert encoder.suback(V311, 1, [0, 1, 2, 0x87, 0x8F]) == raw("90 [0001 00 01 02 80 80]")


def test_reasons_are_not_for_3_x() -> None:
    assert encoder.ack_reason(4, 1, 0x87, V311) == encoder.ack(4, 1)
    assert encoder.disconnect(V311, 0x8B) == b"\xe0\x00"
    assert encoder.unsuback(V311, 1, [0, 0x11]) == raw("b0 02 0001")


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), (2_097_151, "ffff7f"), (2_097_152, "80808001"),
     (268_435_455, "ffffff7f")],
)  # fmt: skip
def test_varint(value: int, data: str) -> None:
    assert varint(value) == bytes.fromhex(data)
    assert encoder.varint_size(value) == len(data) // 2


def test_varint_out_of_range() -> None:
    for value in (-1, 268_435_456):
        with pytest.raises(ValueError, match="Variable Byte Integer"):
            varint(value)


def test_a_field_too_long() -> None:
    with pytest.raises(ValueError, match="65535"):
        encoder.connect(Connect(V311, b"c" * 65_536))
