"""The layout of the commit log on disk, as numbers: docs/formats.md in code. Pure; the only place that knows where a field lies.

Every number on disk is little-endian; lengths are bytes.
"""

from __future__ import annotations

RECORD_HEADER = 88
RECORD_MAGIC = 0x4C52
RECORD_VERSION = 1
FRAME_HEADER = 32
FRAME_MAGIC = 0xF7A34C46
"""Larger than any record's size, so that the first four bytes tell a frame from a record."""
MAX_RECORD = 1 << 30
MAX_FRAME = 4 << 20
"""A frame is written once it is this long, whether or not a sync is under way. A longer record is a frame alone."""
MAX_QUEUES = 4096
"""Light queues of one record; those beyond it come in dispatch records behind it."""

MESSAGE = 1
DISPATCH = 2
TABLE_WRITES = 3
EPOCH = 4
HOLE = 5

QOS_BITS = 3
RETAIN_BIT = 4
WILL_BIT = 8
PROPERTIES_BIT = 16
DUP_BIT = 32

QUEUE_ENTRY = 16
"""A light queue in a record's list: queue id u64, queue offset u64."""

ENTRY = 24
"""An index entry: position u64, size u32, flags u8, reserved u8, reserved u16, stored_ms u64."""

# Fields of the record header (the name is the field, the value its byte).
AT_SIZE = 0
AT_CRC = 4
AT_MAGIC = 8
AT_VERSION = 10
AT_TYPE = 11
AT_FLAGS = 12
AT_TOPIC_LENGTH = 14
AT_POSITION = 16
AT_STORED_MS = 24
AT_BORN_MS = 32
AT_EXPIRES_MS = 40
AT_PARENT_ID = 48
AT_PARTITION = 52
AT_PACKET_ID = 54
AT_PARENT_OFFSET = 56
AT_SESSION_ID = 64
AT_PAYLOAD_LENGTH = 72
AT_CLIENT_LENGTH = 76
AT_QUEUE_COUNT = 78
AT_PROPERTIES_LENGTH = 80

# Why a record or frame is not what was written (the negative answers of record.check_record and check_frame).
CUT_SHORT = -1
BAD_MAGIC = -2
BAD_POSITION = -3
BAD_CRC = -4
BAD_LENGTHS = -5
FAULTS = {
    CUT_SHORT: "cut short",
    BAD_MAGIC: "no magic number",
    BAD_POSITION: "names another position",
    BAD_CRC: "checksum does not match",
    BAD_LENGTHS: "lengths do not add up",
}
