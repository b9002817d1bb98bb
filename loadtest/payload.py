"""What publishers send: the stamp and a filler, made again from (publisher, number) whenever a message must go out again.

A backlog is therefore numbers, not bytes. Kinds: zeros, bytes of a seeded pool, JSON objects of a given size, and the JSON
objects of a file, one a line, with the ledger as their first member.
"""

from __future__ import annotations

import random
import zlib

import cython

from loadtest.stamp import JSON_LEAD, JSON_STAMP, POOL, STAMP, mix

if not cython.compiled:
    from loadtest.socket_io import clear, copy
    from loadtest.stamp import put_hex, put_stamp

ZERO = 0
RANDOM = 1
JSON = 2
LINES = 3
BARE = 4
"""Zeros without a ledger."""


class Payload:
    """The payloads of one group of publishers; sizes from `smallest` to `largest` bytes, drawn from the message's number."""

    __slots__ = ("crcs", "json_crc", "kind", "largest", "lines", "pool", "raw", "run", "seed", "smallest")

    def __init__(self, kind: int, run: int, smallest: int, largest: int, seed: int = 0, lines: list[bytes] | None = None) -> None:
        self.kind = kind
        self.run = run
        self.smallest = smallest
        self.largest = largest
        self.seed = seed
        self.lines = lines or []
        """LINES: each object's text after the opening brace."""
        self.pool = random.Random(seed).randbytes(POOL + largest) if kind == RANDOM else b""
        self.raw = bytearray(24)
        self.crcs: dict[int, int] = {}
        """Size or line number → CRC-32 of the payload without its stamp, where that does not depend on the message."""
        self.json_crc = zlib.crc32(JSON_LEAD)

    def size_of(self, publisher: int, number: int) -> int:
        if self.kind == LINES:
            return JSON_STAMP + 1 + len(self.lines[mix(number, publisher + self.seed) % len(self.lines)])
        if self.smallest == self.largest:
            return self.smallest
        return self.smallest + mix(number, publisher + self.seed) % (self.largest - self.smallest + 1)

    def write(self, out: bytearray, at: int, size: int, publisher: int, number: int, due: int) -> None:
        """Writes the payload of `size` bytes (as `size_of` says) to out[at:], which has room for it."""
        if self.kind == ZERO:
            clear(out, at + 24, size - 24)
            put_stamp(out, at, self.run, publisher, number, due, self._zero_crc(size - 24))
        elif self.kind == RANDOM:
            start = mix(number, publisher + self.seed + 1) % POOL
            copy(out, at + 24, self.pool, start, size - 24)
            crc = zlib.crc32(memoryview(self.pool)[start : start + size - 24])
            put_stamp(out, at, self.run, publisher, number, due, crc)
        elif self.kind == BARE:
            clear(out, at, size)
        else:
            self._write_json(out, at, size, publisher, number, due)

    def _zero_crc(self, size: int) -> int:
        known = self.crcs.get(size)
        if known is None:
            known = self.crcs[size] = zlib.crc32(bytes(size))
        return known

    def _write_json(self, out: bytearray, at: int, size: int, publisher: int, number: int, due: int) -> None:
        if self.kind == LINES:
            line = mix(number, publisher + self.seed) % len(self.lines)
            tail = b'"' + self.lines[line]
        else:
            line = size
            tail = padding(size - JSON_STAMP)
        crc = self.crcs.get(line)
        if crc is None:
            crc = self.crcs[line] = zlib.crc32(tail, self.json_crc)
        stamp = self.raw
        put_stamp(stamp, 0, self.run, publisher, number, due, crc)
        lead = JSON_LEAD
        copy(out, at, lead, 0, 11)
        put_hex(out, at + 11, stamp)
        copy(out, at + 59, tail, 0, len(tail))


def padding(size: int) -> bytes:
    """The rest of a JSON payload after the stamp's digits: `size` bytes that close the object."""
    if size < 12:
        return b'"' + b" " * (size - 2) + b"}"
    return b'","pad":"' + b"x" * (size - 11) + b'"}'


def rest_of_object(line: bytes) -> bytes:
    """A JSON object's text from after its brace, with a comma where it has members. Raises ValueError for anything else."""
    import json

    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()[1:]
    return text if text == b"}" else b"," + text


def smallest_size(kind: int) -> int:
    """The fewest bytes that hold the ledger in this kind of payload."""
    if kind == BARE:
        return 0
    return JSON_STAMP + 2 if kind == JSON else STAMP
