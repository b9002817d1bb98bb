"""Records and frames of the commit log, byte for byte as docs/formats.md has them. Pure: bytes in, bytes out.

Sizes and positions are bytes, times milliseconds since the epoch. All numbers are little-endian. Compiled from this file;
the branches under `cython.compiled` are the same work at C speed.
"""

from __future__ import annotations

import zlib

import cython

from lmq_store.api.model import Message
from lmq_store.embedded.log_format import (
    AT_BORN_MS,
    AT_CLIENT_LENGTH,
    AT_CRC,
    AT_EXPIRES_MS,
    AT_FLAGS,
    AT_MAGIC,
    AT_PACKET_ID,
    AT_PARENT_ID,
    AT_PARENT_OFFSET,
    AT_PARTITION,
    AT_PAYLOAD_LENGTH,
    AT_POSITION,
    AT_PROPERTIES_LENGTH,
    AT_QUEUE_COUNT,
    AT_SESSION_ID,
    AT_STORED_MS,
    AT_TOPIC_LENGTH,
    AT_TYPE,
    AT_VERSION,
    BAD_CRC,
    BAD_LENGTHS,
    BAD_MAGIC,
    BAD_POSITION,
    CUT_SHORT,
    DISPATCH,
    DUP_BIT,
    ENTRY,
    FRAME_HEADER,
    FRAME_MAGIC,
    MESSAGE,
    PROPERTIES_BIT,
    QOS_BITS,
    QUEUE_ENTRY,
    RECORD_HEADER,
    RECORD_MAGIC,
    RECORD_VERSION,
    RETAIN_BIT,
    WILL_BIT,
)

if not cython.compiled:
    crc_tables = [0]
use_clmul = False
"""Set where the processor multiplies without carries: the CRC then costs a tenth (record.pxd)."""


def put_u16(buf: bytearray, at: int, value: int) -> None:
    if cython.compiled:
        buf[at] = value & 255
        buf[at + 1] = value >> 8
    else:
        buf[at : at + 2] = value.to_bytes(2, "little")


def put_u32(buf: bytearray, at: int, value: int) -> None:
    if cython.compiled:
        copy(buf + at, cython.address(value), 4)  # type: ignore[name-defined, operator]  # noqa: F821
    else:
        buf[at : at + 4] = value.to_bytes(4, "little")


def put_u64(buf: bytearray, at: int, value: int) -> None:
    if cython.compiled:
        copy(buf + at, cython.address(value), 8)  # type: ignore[name-defined, operator]  # noqa: F821
    else:
        buf[at : at + 8] = value.to_bytes(8, "little")


def get_u16(buf: bytes | bytearray, at: int) -> int:
    return buf[at] | buf[at + 1] << 8


def get_u32(buf: bytes | bytearray, at: int) -> int:
    if cython.compiled:
        value = 0
        copy(cython.address(value), buf + at, 4)  # type: ignore[name-defined, operator]  # noqa: F821
        return value
    return int.from_bytes(buf[at : at + 4], "little")


def get_u64(buf: bytes | bytearray, at: int) -> int:
    if cython.compiled:
        value = 0
        copy(cython.address(value), buf + at, 8)  # type: ignore[name-defined, operator]  # noqa: F821
        return value
    return int.from_bytes(buf[at : at + 8], "little")


def put_bytes(buf: bytearray, at: int, value: bytes, length: int) -> None:
    if cython.compiled:
        copy(buf + at, cython.cast("const unsigned char*", value), length)  # type: ignore[name-defined, operator]  # noqa: F821
    else:
        buf[at : at + length] = value


def _fill_crc_tables() -> None:
    """The 16 tables of slicing-by-16 for the polynomial of zlib (0xEDB88320)."""
    for index in range(256):
        value = index
        for _ in range(8):
            value = value >> 1 ^ 0xEDB88320 if value & 1 else value >> 1
        crc_tables[index] = value
    for index in range(256, 16 * 256):
        before: int = crc_tables[index - 256]
        crc_tables[index] = before >> 8 ^ crc_tables[before & 255]


if cython.compiled:
    _fill_crc_tables()
    use_clmul = has_clmul()  # type: ignore[name-defined]  # noqa: F821


def crc32(buf: bytes | bytearray, start: int, end: int) -> int:
    """CRC-32 (zlib's) of `buf[start:end]`."""
    if not cython.compiled:
        return zlib.crc32(memoryview(buf)[start:end])
    crc = 0
    crc = ~crc  # 32 bits, unsigned: the type is in the .pxd
    at = start
    if use_clmul and end - at >= 64:
        whole = (end - at) & ~15
        crc = clmul_crc(buf + at, whole, crc)  # type: ignore[name-defined, operator]  # noqa: F821
        at += whole
    while at + 16 <= end:
        a = get_u32(buf, at) ^ crc
        b = get_u32(buf, at + 4)
        c = get_u32(buf, at + 8)
        d = get_u32(buf, at + 12)
        crc = (
            crc_tables[3840 + (a & 255)] ^ crc_tables[3584 + (a >> 8 & 255)]
            ^ crc_tables[3328 + (a >> 16 & 255)] ^ crc_tables[3072 + (a >> 24)]
            ^ crc_tables[2816 + (b & 255)] ^ crc_tables[2560 + (b >> 8 & 255)]
            ^ crc_tables[2304 + (b >> 16 & 255)] ^ crc_tables[2048 + (b >> 24)]
            ^ crc_tables[1792 + (c & 255)] ^ crc_tables[1536 + (c >> 8 & 255)]
            ^ crc_tables[1280 + (c >> 16 & 255)] ^ crc_tables[1024 + (c >> 24)]
            ^ crc_tables[768 + (d & 255)] ^ crc_tables[512 + (d >> 8 & 255)]
            ^ crc_tables[256 + (d >> 16 & 255)] ^ crc_tables[d >> 24]
        )  # fmt: skip
        at += 16
    while at < end:
        crc = crc >> 8 ^ crc_tables[(crc ^ buf[at]) & 255]
        at += 1
    return ~crc


def crc_of(data: bytes) -> int:
    """CRC-32 of a whole byte string."""
    return crc32(data, 0, len(data))


def message_size(message: Message, queue_count: int) -> int:
    """Length of the record of `message` with so many light queues."""
    return (
        RECORD_HEADER
        + len(message.topic)
        + len(message.payload)
        + len(message.client_id)
        + len(message.properties)
        + QUEUE_ENTRY * queue_count
    )


def put_message(buf: bytearray, at: int, message: Message, parent_id: int, parent_offset: int, queue_count: int) -> int:
    """Write the message's record at `at` but for its queue list and CRC; returns where the queue list begins.

    Needs `position`, `size`, `stored_ms` set. Finish with `put_queue` for each queue, then `seal_record`.
    """
    topic = message.topic
    payload = message.payload
    client_id = message.client_id
    properties = message.properties
    topic_length = len(topic)
    payload_length = len(payload)
    client_length = len(client_id)
    properties_length = len(properties)
    flags = message.qos
    if message.retain:
        flags |= RETAIN_BIT
    if message.will:
        flags |= WILL_BIT
    if properties_length:
        flags |= PROPERTIES_BIT
    if message.dup:
        flags |= DUP_BIT
    put_u32(buf, at, message.size)
    put_u16(buf, at + AT_MAGIC, RECORD_MAGIC)
    buf[at + AT_VERSION] = RECORD_VERSION
    buf[at + AT_TYPE] = MESSAGE
    buf[at + AT_FLAGS] = flags
    buf[at + 13] = 0
    put_u16(buf, at + AT_TOPIC_LENGTH, topic_length)
    put_u64(buf, at + AT_POSITION, message.position)
    put_u64(buf, at + AT_STORED_MS, message.stored_ms)
    put_u64(buf, at + AT_BORN_MS, message.born_ms)
    put_u64(buf, at + AT_EXPIRES_MS, message.expires_ms)
    put_u32(buf, at + AT_PARENT_ID, parent_id)
    put_u16(buf, at + AT_PARTITION, message.partition)
    put_u16(buf, at + AT_PACKET_ID, message.packet_id)
    put_u64(buf, at + AT_PARENT_OFFSET, parent_offset)
    put_u64(buf, at + AT_SESSION_ID, message.session_id)
    put_u32(buf, at + AT_PAYLOAD_LENGTH, payload_length)
    put_u16(buf, at + AT_CLIENT_LENGTH, client_length)
    put_u16(buf, at + AT_QUEUE_COUNT, queue_count)
    put_u32(buf, at + AT_PROPERTIES_LENGTH, properties_length)
    put_u32(buf, at + 84, 0)
    at += RECORD_HEADER
    put_bytes(buf, at, topic, topic_length)
    at += topic_length
    put_bytes(buf, at, payload, payload_length)
    at += payload_length
    put_bytes(buf, at, client_id, client_length)
    at += client_length
    put_bytes(buf, at, properties, properties_length)
    return at + properties_length


def put_queue(buf: bytearray, at: int, queue_id: int, queue_offset: int) -> None:
    """One entry of a record's queue list."""
    put_u64(buf, at, queue_id)
    put_u64(buf, at + 8, queue_offset)


def seal_record(buf: bytearray, at: int, size: int) -> None:
    """Write the record's CRC: the record is complete."""
    put_u32(buf, at + AT_CRC, crc32(buf, at + AT_MAGIC, at + size))


def put_plain(buf: bytearray, at: int, record_type: int, position: int, stored_ms: int, payload: bytes) -> None:
    """Write a whole record that is no message: its payload means what its type says."""
    size = RECORD_HEADER + len(payload)
    put_bytes(buf, at, _ZEROS, RECORD_HEADER)
    put_u32(buf, at, size)
    put_u16(buf, at + AT_MAGIC, RECORD_MAGIC)
    buf[at + AT_VERSION] = RECORD_VERSION
    buf[at + AT_TYPE] = record_type
    put_u64(buf, at + AT_POSITION, position)
    put_u64(buf, at + AT_STORED_MS, stored_ms)
    put_u32(buf, at + AT_PAYLOAD_LENGTH, len(payload))
    put_bytes(buf, at + RECORD_HEADER, payload, len(payload))
    seal_record(buf, at, size)


def put_dispatch(buf: bytearray, at: int, position: int, size: int, message: Message, flags: int, queue_count: int) -> int:
    """Write a dispatch record for `message` but for its queue list and CRC; returns where the queue list begins."""
    put_bytes(buf, at, _ZEROS, RECORD_HEADER)
    put_u32(buf, at, size)
    put_u16(buf, at + AT_MAGIC, RECORD_MAGIC)
    buf[at + AT_VERSION] = RECORD_VERSION
    buf[at + AT_TYPE] = DISPATCH
    put_u64(buf, at + AT_POSITION, position)
    put_u64(buf, at + AT_STORED_MS, message.stored_ms)
    put_u32(buf, at + AT_PAYLOAD_LENGTH, ENTRY)
    put_u16(buf, at + AT_QUEUE_COUNT, queue_count)
    at += RECORD_HEADER
    put_u64(buf, at, message.position)
    put_u32(buf, at + 8, message.size)
    put_u32(buf, at + 12, flags)
    put_u64(buf, at + 16, message.stored_ms)
    return at + ENTRY


_ZEROS = bytes(RECORD_HEADER)


def encode_message(message: Message, parent_id: int) -> bytes:
    """The message's record without queues, alone: the form in which a retained message is kept."""
    size = message_size(message, 0)
    in_log = message.size
    message.size = size
    buf = bytearray(size)
    put_message(buf, 0, message, parent_id, 0, 0)
    message.size = in_log
    seal_record(buf, 0, size)
    return bytes(buf)


def put_frame_header(buf: bytearray, at: int, length: int, synced_end: int, position: int, records: int) -> None:
    """`length` counts the header. `synced_end` is what the writer knew to be durable."""
    put_u32(buf, at, FRAME_MAGIC)
    put_u32(buf, at + 4, length)
    put_u64(buf, at + 8, synced_end)
    put_u64(buf, at + 16, position)
    put_u32(buf, at + 24, records)
    put_u32(buf, at + 28, crc32(buf, at, at + 28))


def frame_header_length(buf: bytes, at: int, end: int, position: int) -> int:
    """Length of the frame that `buf[at:end]` begins with, its header checked; negative: a fault."""
    if at + FRAME_HEADER > end:
        return CUT_SHORT
    if get_u32(buf, at) != FRAME_MAGIC:
        return BAD_MAGIC
    if get_u32(buf, at + 28) != crc32(buf, at, at + 28):
        return BAD_CRC
    if get_u64(buf, at + 16) != position:
        return BAD_POSITION
    length: int = get_u32(buf, at + 4)
    return length if length >= FRAME_HEADER else BAD_LENGTHS


def frame_synced_end(buf: bytes, at: int) -> int:
    return get_u64(buf, at + 8)


def frame_records(buf: bytes, at: int) -> int:
    return get_u32(buf, at + 24)


def check_record(buf: bytes, at: int, end: int, position: int) -> int:
    """Length of the intact record at `buf[at:end]` that says it lies at `position`; negative: a fault."""
    if at + RECORD_HEADER > end:
        return CUT_SHORT
    if get_u16(buf, at + AT_MAGIC) != RECORD_MAGIC:
        return BAD_MAGIC
    size: int = get_u32(buf, at)
    lengths: int = (
        RECORD_HEADER
        + get_u16(buf, at + AT_TOPIC_LENGTH)
        + get_u32(buf, at + AT_PAYLOAD_LENGTH)
        + get_u16(buf, at + AT_CLIENT_LENGTH)
        + get_u32(buf, at + AT_PROPERTIES_LENGTH)
        + get_u16(buf, at + AT_QUEUE_COUNT) * QUEUE_ENTRY
    )
    if size != lengths:
        return BAD_LENGTHS
    if at + size > end:
        return CUT_SHORT
    if get_u32(buf, at + AT_CRC) != crc32(buf, at + AT_MAGIC, at + size):
        return BAD_CRC
    return size if get_u64(buf, at + AT_POSITION) == position else BAD_POSITION


def check_frame(buf: bytes, at: int, end: int, position: int) -> int:
    """Length of the frame at `buf[at:end]`, header and every record checked; negative: a fault."""
    length: int = frame_header_length(buf, at, end, position)
    if length < 0:
        return length
    if at + length > end:
        return CUT_SHORT
    stop = at + length
    place = at + FRAME_HEADER
    count = 0
    while place < stop:
        size: int = check_record(buf, place, stop, position + (place - at))
        if size < 0:
            return size
        place += size
        count += 1
    return length if count == get_u32(buf, at + 24) else BAD_LENGTHS


def record_size(buf: bytes, at: int) -> int:
    return get_u32(buf, at)


def record_type(buf: bytes, at: int) -> int:
    return buf[at + AT_TYPE]


def record_flags(buf: bytes, at: int) -> int:
    return buf[at + AT_FLAGS]


def record_payload(buf: bytes, at: int) -> bytes:
    """The payload of a record that is no message."""
    start = at + RECORD_HEADER + get_u16(buf, at + AT_TOPIC_LENGTH)
    return buf[start : start + get_u32(buf, at + AT_PAYLOAD_LENGTH)]


def record_stored_ms(buf: bytes, at: int) -> int:
    return get_u64(buf, at + AT_STORED_MS)


def record_parent(buf: bytes, at: int) -> tuple[int, int, int]:
    """(parent id, partition, offset in that parent queue) of a message record."""
    return get_u32(buf, at + AT_PARENT_ID), get_u16(buf, at + AT_PARTITION), get_u64(buf, at + AT_PARENT_OFFSET)


def record_queues(buf: bytes, at: int) -> list[tuple[int, int]]:
    """The light queues of a record: (queue id, queue offset) in the order in which they were dispatched."""
    count = get_u16(buf, at + AT_QUEUE_COUNT)
    place = at + get_u32(buf, at) - QUEUE_ENTRY * count
    found = []
    for _ in range(count):
        found.append((get_u64(buf, place), get_u64(buf, place + 8)))
        place += QUEUE_ENTRY
    return found


def decode_message(buf: bytes, at: int) -> Message:
    """The message of an intact record. No route; `dup` as it was received."""
    message = Message.__new__(Message)
    data = buf  # in C a pointer: slices of it are cheap
    flags = buf[at + AT_FLAGS]
    start = at + RECORD_HEADER
    stop = start + get_u16(buf, at + AT_TOPIC_LENGTH)
    message.topic = data[start:stop]
    start = stop
    stop = start + get_u32(buf, at + AT_PAYLOAD_LENGTH)
    message.payload = data[start:stop]
    start = stop
    stop = start + get_u16(buf, at + AT_CLIENT_LENGTH)
    message.client_id = data[start:stop]
    start = stop
    stop = start + get_u32(buf, at + AT_PROPERTIES_LENGTH)
    message.properties = data[start:stop]
    message.qos = flags & QOS_BITS
    message.retain = (flags & RETAIN_BIT) != 0
    message.will = (flags & WILL_BIT) != 0
    message.dup = (flags & DUP_BIT) != 0
    message.packet_id = get_u16(buf, at + AT_PACKET_ID)
    message.topic_alias = 0
    message.expiry_s = -1
    message.expires_ms = get_u64(buf, at + AT_EXPIRES_MS)
    message.born_ms = get_u64(buf, at + AT_BORN_MS)
    message.stored_ms = get_u64(buf, at + AT_STORED_MS)
    message.session_id = get_u64(buf, at + AT_SESSION_ID)
    message.partition = get_u16(buf, at + AT_PARTITION)
    message.position = get_u64(buf, at + AT_POSITION)
    message.size = get_u32(buf, at)
    message.route = None
    message.wire4 = None
    message.wire5 = None
    return message


def parent_queue_id(parent_id: int, partition: int) -> int:
    """The queue of one partition of a parent topic. Light queues count up from 1 and stay below 2**40."""
    return (1 << 40) + parent_id * 256 + partition

