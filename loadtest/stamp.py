"""The ledger's stamp in every payload: run, publisher, number, due time, and a checksum over the whole payload.

Binary payloads begin with 24 bytes, little-endian: run id u32 (its first byte is always 0x4C, 'L'), number u40 and publisher u24,
due time in ns of CLOCK_MONOTONIC u64, CRC-32 u32. In a JSON payload the same 24 bytes stand in hexadecimal as the first member:
`{"ledger":"<48 digits>"…`. The CRC is taken over everything but the stamp, then over the stamp's first 20 bytes; so whoever
sends the same filler again needs only the CRC of 20 bytes.
"""

from __future__ import annotations

import zlib
from array import array

import cython

STAMP = 24
JSON_LEAD = b'{"ledger":"'
JSON_HEAD = 11
JSON_STAMP = 59
"""Bytes up to the end of the hexadecimal stamp in a JSON payload."""
JSON_SMALLEST = 61
RUN_BYTE = 0x4C
PUBLISHERS_MAX = 1 << 24

GOOD = 0
FOREIGN = 1
CORRUPT = 2

POOL = 1 << 20
"""Bytes of the pool that random payloads are cut from."""


def _crc_table() -> memoryview:
    table = array("I")
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    return memoryview(table)


CRC_TABLE = _crc_table()


def crc20(b: bytearray, at: int, crc: int) -> int:
    """The CRC-32 of 20 bytes, continued from `crc`: the same value as `zlib.crc32(b[at:at+20], crc)`."""
    value = crc ^ 0xFFFFFFFF
    for index in range(20):
        value = CRC_TABLE[(value ^ b[at + index]) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def mix(number: int, salt: int) -> int:
    """32 well-spread bits of two numbers, the same everywhere (murmur3's finalizer)."""
    value = ((number & 0xFFFFFFFF) ^ ((number >> 32) * 0x9E3779B1) ^ (salt * 0x85EBCA6B)) & 0xFFFFFFFF
    value = value ^ (value >> 16)
    value = (value * 0x85EBCA6B) & 0xFFFFFFFF
    value = value ^ (value >> 13)
    value = (value * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)


def put_number(b: bytearray, at: int, value: int, size: int) -> None:
    """Little-endian, `size` bytes."""
    for index in range(size):
        b[at + index] = value >> (8 * index) & 0xFF


def get_number(b: bytearray, at: int, size: int) -> int:
    value = 0
    for index in range(size):
        # The loop variable is unsigned 64 bit when compiled, hence the shift in two steps.
        value |= shifted(b[at + index], 8 * index)
    return value


def shifted(value: int, by: int) -> int:
    return value << by


def put_stamp(b: bytearray, at: int, run: int, publisher: int, number: int, due: int, crc: int) -> None:
    """The 24 bytes; `crc` is the CRC of the rest of the payload."""
    put_number(b, at, run, 4)
    put_number(b, at + 4, number, 5)
    put_number(b, at + 9, publisher, 3)
    put_number(b, at + 12, due, 8)
    put_number(b, at + 20, crc20(b, at, crc), 4)


def put_hex(b: bytearray, at: int, raw: bytearray) -> None:
    for index in range(24):
        high = raw[index] >> 4
        low = raw[index] & 15
        b[at + 2 * index] = high + (48 if high < 10 else 87)
        b[at + 2 * index + 1] = low + (48 if low < 10 else 87)


def get_hex(b: bytearray, at: int, raw: bytearray) -> bool:
    """False when one of the 48 characters is no hexadecimal digit."""
    for index in range(48):
        byte = b[at + index]
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte <= 102:
            digit = byte - 87
        else:
            return False
        if index & 1:
            raw[index >> 1] = raw[index >> 1] | digit
        else:
            raw[index >> 1] = digit << 4
    return True


def all_zero(b: bytearray, at: int, size: int) -> bool:
    if not cython.compiled:
        return not any(b[at : at + size])
    bits = 0
    for index in range(at, at + size):  # without a way out, so that the C compiler takes many bytes at a time
        bits = bits | b[index]
    return bits == 0


class Stamp:
    """Reads stamps of one run: `read` leaves publisher, number and due in the attributes."""

    __slots__ = ("due", "number", "publisher", "publishers", "raw", "run", "zero_crcs")

    def __init__(self, run: int, publishers: int) -> None:
        self.run = run
        self.publishers = publishers
        self.publisher = 0
        self.number = 0
        self.due = 0
        self.raw = bytearray(24)
        self.zero_crcs: dict[int, int] = {}

    def read(self, frame: bytearray, at: int, size: int) -> int:
        """GOOD, FOREIGN or CORRUPT for the payload at frame[at : at+size]."""
        if size >= 61 and frame[at] == 0x7B and bytes(frame[at : at + 11]) == JSON_LEAD:
            return self._read_json(frame, at, size)
        if size < 24:
            return self._short(frame, at, size)
        self.number = get_number(frame, at + 4, 5)
        self.publisher = get_number(frame, at + 9, 3)
        self.due = get_number(frame, at + 12, 8)
        ours = get_number(frame, at, 4) == self.run
        crc = self._zero_crc(size - 24) if all_zero(frame, at + 24, size - 24) else zlib.crc32(memoryview(frame)[at + 24 : at + size])
        if crc20(frame, at, crc) == get_number(frame, at + 20, 4):
            if ours:
                return GOOD if self.publisher < self.publishers else CORRUPT
        elif ours:
            return CORRUPT
        return self._other_run(frame, at, size, crc)

    def _other_run(self, frame: bytearray, at: int, size: int, crc: int) -> int:
        """Damage to the run id alone is our own message, corrupted; anything else is another's."""
        self.raw[0:24] = frame[at : at + 24]
        put_number(self.raw, 0, self.run, 4)
        if crc20(self.raw, 0, crc) == get_number(self.raw, 20, 4):
            return CORRUPT
        if size >= 61 and get_hex(frame, at + 11, self.raw) and get_number(self.raw, 0, 4) == self.run:
            return CORRUPT  # a JSON payload of ours whose first bytes were damaged
        return FOREIGN

    def _short(self, frame: bytearray, at: int, size: int) -> int:
        """Too short for a stamp: a cut message of ours still begins with the run id."""
        if size >= 4 and get_number(frame, at, 4) == self.run:
            return CORRUPT
        return FOREIGN

    def _read_json(self, frame: bytearray, at: int, size: int) -> int:
        if not get_hex(frame, at + 11, self.raw):
            return CORRUPT
        self.number = get_number(self.raw, 4, 5)
        self.publisher = get_number(self.raw, 9, 3)
        self.due = get_number(self.raw, 12, 8)
        view = memoryview(frame)
        crc = zlib.crc32(view[at + 59 : at + size], zlib.crc32(view[at : at + 11]))
        good = crc20(self.raw, 0, crc) == get_number(self.raw, 20, 4)
        if get_number(self.raw, 0, 4) == self.run:
            return GOOD if good and self.publisher < self.publishers else CORRUPT
        put_number(self.raw, 0, self.run, 4)
        return CORRUPT if crc20(self.raw, 0, crc) == get_number(self.raw, 20, 4) else FOREIGN

    def _zero_crc(self, size: int) -> int:
        known = self.zero_crcs.get(size)
        if known is None:
            known = self.zero_crcs[size] = zlib.crc32(bytes(size))
        return known
