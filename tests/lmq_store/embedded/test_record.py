"""Records and frames: what is written is read back, and no changed byte goes unseen."""

from __future__ import annotations

import struct
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmq_store.api.model import Message
from lmq_store.embedded import log_format
from lmq_store.embedded.record import (
    check_frame,
    check_record,
    crc_of,
    decode_message,
    encode_message,
    frame_records,
    frame_synced_end,
    put_frame_header,
    put_plain,
    record_payload,
    record_type,
)

u64 = st.integers(0, 2**64 - 1)
times = st.integers(0, 2**62)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = Message(draw(st.binary(max_size=80)), draw(st.binary(max_size=600)), draw(st.integers(0, 2)), draw(st.booleans()))
    message.client_id = draw(st.binary(max_size=30))
    message.properties = draw(st.binary(max_size=40))
    message.will = draw(st.booleans())
    message.dup = draw(st.booleans())
    message.packet_id = draw(st.integers(0, 65535))
    message.partition = draw(st.integers(0, 255))
    message.session_id = draw(u64)
    message.position = draw(st.integers(0, 2**62))
    message.stored_ms, message.born_ms, message.expires_ms = draw(times), draw(times), draw(times)
    return message


@given(st.binary(max_size=300))
def test_crc_is_the_one_of_zlib(data: bytes) -> None:
    assert crc_of(data) == zlib.crc32(data)


def test_crc_of_every_length() -> None:
    data = Random(1).randbytes(1_000)
    for length in range(len(data)):
        assert crc_of(data[:length]) == zlib.crc32(data[:length])


@given(messages(), st.integers(0, 2**32 - 1))
def test_a_message_comes_back_whole(message: Message, parent_id: int) -> None:
    record = encode_message(message, parent_id)
    assert check_record(record, 0, len(record), message.position) == len(record)
    found = decode_message(record, 0)
    skipped = {"route", "wire4", "wire5", "expiry_s", "topic_alias", "size"}
    for name in set(Message.__slots__ if hasattr(Message, "__slots__") else FIELDS) - skipped:
        assert getattr(found, name) == getattr(message, name), name
    assert found.size == len(record)


FIELDS = (
    "born_ms", "client_id", "dup", "expires_ms", "packet_id", "partition", "payload", "position", "properties", "qos", "retain",
    "session_id", "stored_ms", "topic", "will",
)  # fmt: skip


def test_every_changed_byte_is_seen() -> None:
    message = Message(b"a/b", b"payload", 1)
    message.position = 4711
    record = encode_message(message, 1)
    for at in range(len(record)):
        for bit in (1, 128):
            changed = bytearray(record)
            changed[at] ^= bit
            assert check_record(bytes(changed), 0, len(record), 4711) < 0, at
    assert check_record(record, 0, len(record), 4712) == log_format.BAD_POSITION
    assert all(check_record(record[:length], 0, length, 4711) == log_format.CUT_SHORT for length in range(len(record)))


def frame(*payloads: bytes, position: int = 1000, synced_end: int = 900) -> bytes:
    buf = bytearray(log_format.FRAME_HEADER)
    for payload in payloads:
        at = len(buf)
        buf.extend(bytes(log_format.RECORD_HEADER + len(payload)))
        put_plain(buf, at, log_format.TABLE_WRITES, position + at, 5, payload)
    put_frame_header(buf, 0, len(buf), synced_end, position, len(payloads))
    return bytes(buf)


def test_every_changed_byte_of_a_frame_is_seen() -> None:
    data = frame(b"one", b"", b"three")
    assert check_frame(data, 0, len(data), 1000) == len(data)
    assert (frame_records(data, 0), frame_synced_end(data, 0)) == (3, 900)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 64
        assert check_frame(bytes(changed), 0, len(data), 1000) < 0, at
    assert all(check_frame(data[:length], 0, length, 1000) == log_format.CUT_SHORT for length in range(len(data)))
    assert check_frame(b"xy" + data, 2, len(data) + 2, 1000) == len(data)


def test_a_plain_record_keeps_its_payload() -> None:
    data = frame(b"payload")
    assert record_type(data, log_format.FRAME_HEADER) == log_format.TABLE_WRITES
    assert record_payload(data, log_format.FRAME_HEADER) == b"payload"


def test_the_header_is_what_the_document_says() -> None:
    """The table in docs/formats.md, read as one struct."""
    message = Message(b"topic", b"payload", 2, True)
    message.client_id, message.properties, message.packet_id, message.session_id = b"client", b"props", 7, 9
    message.position, message.stored_ms, message.born_ms, message.expires_ms, message.partition = 11, 12, 13, 14, 3
    record = encode_message(message, 5)
    layout = struct.Struct("<IIHBBBBHQQQQIHHQQIHHII")
    assert layout.size == log_format.RECORD_HEADER
    assert layout.unpack_from(record) == (
        len(record), zlib.crc32(record[8:]), 0x4C52, 1, 1, 2 | 4 | 16, 0, 5, 11, 12, 13, 14, 5, 3, 7, 0, 9, 7, 6, 0, 5, 0,
    )  # fmt: skip
    assert record[88:] == b"topicpayloadclientprops"


@pytest.mark.parametrize("name", [name for name in dir(log_format) if name.startswith("AT_")])
def test_fields_lie_inside_the_header(name: str) -> None:
    assert 0 <= getattr(log_format, name) < log_format.RECORD_HEADER
