"""Every packet of the table: whole, split at every byte, one after the other, and with rubbish behind."""

from __future__ import annotations

from typing import Any

import pytest

from mqtt_proxy.packets.decoder import KNOWN_TOPIC_BYTES, KNOWN_TOPICS_MAX, decode, frame_length, known_topic_count
from mqtt_proxy.packets.reason_codes import MalformedPacket, ProtocolError
from mqtt_proxy.packets.types import V5, V311

from .table import CASES, FIRST, LIMIT, Case, Publish, decode_all, plain, raw

pytestmark = pytest.mark.hot

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_whole(case: Case) -> None:
    assert decode_all(case.data, case.version, case.from_client) == [case.packet]


@each_case
def test_in_the_middle_of_a_buffer(case: Case) -> None:
    """Bytes before `start` and from `end` on aren't looked at."""
    buffer = bytearray(b"\xff\xff\xff" + case.data + b"\xff\xff")
    out: list[Any] = []
    assert decode(buffer, 3, 3 + len(case.data), case.version, LIMIT, out, case.from_client) == 3 + len(case.data)
    assert [plain(item) for item in out] == [case.packet]


@each_case
def test_split_at_every_byte(case: Case) -> None:
    """[MQTT-4.2-1]: a stream has no packet borders; an incomplete packet consumes nothing and is not judged yet."""
    for cut in range(len(case.data)):
        out: list[Any] = []
        assert decode(bytearray(case.data[:cut]), 0, cut, case.version, LIMIT, out, case.from_client) == 0
        assert out == []


@each_case
def test_frame_length(case: Case) -> None:
    whole = len(case.data)
    for cut in range(whole + 1):
        length = frame_length(bytearray(case.data[:cut]), 0, cut)
        assert length == whole if cut >= whole or length else length == 0
    assert frame_length(bytearray(b"xx" + case.data + b"yy"), 2, whole + 4) == whole


@each_case
def test_largest_size_is_exact(case: Case) -> None:
    """The whole packet counts, header and all. [MQTT-3.1.2-24]"""
    assert decode_all(case.data, case.version, case.from_client, len(case.data)) == [case.packet]
    with pytest.raises(ProtocolError) as caught:
        decode_all(case.data, case.version, case.from_client, len(case.data) - 1)
    assert caught.value.reason == 0x95


def test_a_stream_of_all_packets_byte_by_byte() -> None:
    """Each version and direction as one stream, grown a byte at a time."""
    for version in (V311, V5):
        for side in (True, False):
            cases = [case for case in CASES if (case.version, case.from_client) == (version, side)]
            buffer = bytearray()
            found: list[Any] = []
            for byte in b"".join(case.data for case in cases):
                buffer.append(byte)
                del buffer[: decode(buffer, 0, len(buffer), version, LIMIT, found, side)]
            assert buffer == b""
            assert [plain(item) for item in found] == [case.packet for case in cases]


def test_connect_ends_the_call() -> None:
    """The version is new from there on, so the caller decodes the rest."""
    connect = raw("10 0d 0004 'MQTT' 04 02 000a 0001 'c'")
    buffer = bytearray(connect + b"\xc0\x00")
    out: list[Any] = []
    at = decode(buffer, 0, len(buffer), FIRST, LIMIT, out)
    assert at == len(connect)
    assert len(out) == 1
    assert decode(buffer, at, len(buffer), V311, LIMIT, out) == len(buffer)
    assert out[1] == 12 << 16


def test_what_came_before_a_bad_packet_is_kept() -> None:
    data = raw("30 05 0001 'a' 'hi' 40 02 0001 36 00")
    out: list[Any] = []
    with pytest.raises(MalformedPacket):
        decode(bytearray(data), 0, len(data), V311, LIMIT, out)
    assert [plain(item) for item in out] == [Publish(b"a", b"hi"), 4 << 16 | 1]


def test_a_claim_too_large_is_refused_before_its_bytes_come() -> None:
    for claim in ("30 ffffff7f", "10 ffffff7f", "30 808040"):
        data = raw(claim)
        with pytest.raises(ProtocolError) as caught:
            decode(bytearray(data), 0, len(data), FIRST if claim[0] == "1" else V5, LIMIT, [])
        assert caught.value.reason == 0x95


def test_what_is_remembered_of_topics_is_bounded() -> None:
    long = "ö".encode() * (KNOWN_TOPIC_BYTES // 2 + 1)
    size = len(long) + 2
    before = known_topic_count()
    assert decode_all(bytes((0x30, size & 127 | 128, size >> 7)) + len(long).to_bytes(2, "big") + long, V311) == [Publish(long)]
    assert known_topic_count() == before
    highest = 0
    for number in range(KNOWN_TOPICS_MAX + 100):
        topic = "ö%d".encode() % number
        decode(bytearray(bytes((0x30, len(topic) + 2, 0, len(topic))) + topic), 0, len(topic) + 4, V311, LIMIT, [])
        highest = max(highest, known_topic_count())
    assert highest == KNOWN_TOPICS_MAX


def test_payload_and_topic_are_copies() -> None:
    """The buffer is used again for the next read."""
    data = bytearray(raw("30 05 0001 'a' 'hi'"))
    out: list[Any] = []
    decode(data, 0, len(data), V311, LIMIT, out)
    data[:] = bytes(len(data))
    assert plain(out[0]) == Publish(b"a", b"hi")
    assert type(out[0].payload) is bytes
