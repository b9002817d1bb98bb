"""Stamps in every kind of payload; any damage is noticed, and strangers are told from cripples."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from loadtest import payload
from loadtest.payload import Payload, rest_of_object
from loadtest.stamp import CORRUPT, FOREIGN, GOOD, Stamp, mix

RUN = 0x1234564C


def made(kind: int, size: int, number: int = 77, lines: list[bytes] | None = None) -> bytearray:
    maker = Payload(kind, RUN, size, size, 5, lines)
    length = maker.size_of(3, number)
    out = bytearray(length + 10)
    maker.write(out, 10, length, 3, number, 123_456_789)
    return out


KINDS = [
    (payload.ZERO, 24, None), (payload.ZERO, 256, None), (payload.RANDOM, 100, None), (payload.JSON, 61, None), (payload.JSON, 70, None),
    (payload.JSON, 300, None), (payload.LINES, 0, [rest_of_object('{"t": 21.5, "n": "ä"}'.encode()), rest_of_object(b"{}")]),
]  # fmt: skip


@pytest.mark.hot
@pytest.mark.parametrize(("kind", "size", "lines"), KINDS)
def test_comes_back_and_every_flipped_bit_is_corrupt(kind: int, size: int, lines: list[bytes] | None) -> None:
    out = made(kind, size, lines=lines)
    stamp = Stamp(RUN, 10)
    assert stamp.read(out, 10, len(out) - 10) == GOOD
    assert (stamp.publisher, stamp.number, stamp.due) == (3, 77, 123_456_789)
    if kind in (payload.JSON, payload.LINES):
        assert "ledger" in json.loads(bytes(out[10:]))
    for place in range(10, len(out)):
        for bit in (0, 3, 7):
            damaged = bytearray(out)
            damaged[place] ^= 1 << bit
            assert stamp.read(damaged, 10, len(out) - 10) == CORRUPT, (place, bit)


@pytest.mark.hot
def test_strangers_are_foreign_and_cut_messages_corrupt() -> None:
    stamp = Stamp(RUN, 10)
    dice = random.Random(1)
    for size in (0, 3, 23, 24, 61, 200):
        assert stamp.read(bytearray(dice.randbytes(size)), 0, size) == FOREIGN
    assert stamp.read(bytearray(b'{"hello": "world", "this": "is a message of somebody else altogether"}'), 0, 70) == FOREIGN
    other = Stamp(RUN + 256, 10)
    out = made(payload.ZERO, 100)
    assert other.read(out, 10, 100) == FOREIGN
    for size in (4, 20, 50, 99):
        assert stamp.read(out, 10, size) == CORRUPT
    assert Stamp(RUN, 2).read(out, 10, 100) == CORRUPT  # publisher 3 of 2


@pytest.mark.hot
def test_the_checksum_is_the_documented_one() -> None:
    out = bytes(made(payload.RANDOM, 80))[10:]
    assert int.from_bytes(out[20:24], "little") == zlib.crc32(out[:20], zlib.crc32(out[24:]))
    assert mix(5, 7) == 0xB0336D29


@pytest.mark.hot
def test_the_same_number_makes_the_same_bytes_and_sizes_spread() -> None:
    assert made(payload.RANDOM, 200) == made(payload.RANDOM, 200)
    maker = Payload(payload.ZERO, RUN, 50, 60, 1)
    assert {maker.size_of(1, number) for number in range(500)} == set(range(50, 61))
