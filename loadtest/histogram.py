"""Latency histograms in the HdrHistogram layout: three significant digits, exact merges, the standard encoding.

Values are nanoseconds from 0 to about 73 minutes (2**42); larger ones are counted at the top and keep their true `maximum`.
Source: HdrHistogram (sub-bucket layout with 2,048 sub-buckets, V2 compressed encoding).
"""

from __future__ import annotations

import base64
import struct
import zlib
from array import array
from collections.abc import Iterable

import cython

SUB_BUCKETS = 2048
HALF = 1024
MAGNITUDES = 32
"""Powers of two above the first sub-buckets: the highest exact value is 2**42 - 1 ns."""
LENGTH = (MAGNITUDES + 1) * HALF
HIGHEST = (1 << 42) - 1

_V2 = 0x1C849303
_V2_COMPRESSED = 0x1C849304

PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9), ("p9999", 99.99))


def bucket_index(value: int) -> int:
    """The slot of a value; slots grow with it, so that each spans less than a thousandth of it."""
    rest = value >> 11
    magnitude = 0
    while rest:
        rest >>= 1
        magnitude += 1
    return (magnitude << 10) + (value >> magnitude)


def value_at(index: int) -> int:
    """The highest value that falls into the slot: what percentiles report."""
    if index < SUB_BUCKETS:
        return index
    magnitude = (index >> 10) - 1
    sub_bucket = (index & (HALF - 1)) + HALF
    return ((sub_bucket + 1) << magnitude) - 1


class Histogram:
    """Counts of nanosecond values; merges are exact. 264 KiB each."""

    __slots__ = ("counts", "maximum", "minimum", "number", "total")

    def __init__(self) -> None:
        self.counts = memoryview(array("Q", bytes(8 * LENGTH)))
        self.number = 0
        self.total = 0.0
        self.minimum = 0
        self.maximum = 0

    def record(self, value: int, times: int = 1) -> None:
        """Count `value` ns; below zero counts as zero."""
        if value < 0:
            value = 0
        if self.number == 0 or value < self.minimum:
            self.minimum = value
        if value > self.maximum:
            self.maximum = value
        self.number += times
        self.total += value * times
        if value > 4398046511103:
            value = 4398046511103
        self.counts[bucket_index(value)] += times

    def clear(self) -> None:
        for index in range(LENGTH):
            self.counts[index] = 0
        self.number = 0
        self.total = 0.0
        self.minimum = 0
        self.maximum = 0

    def sparse(self) -> tuple[int, float, int, int, list[int]]:
        """A picture to send: number, total, minimum, maximum, and index, count in turn for what is not zero."""
        cells: list[int] = []
        for index in range(LENGTH):
            if self.counts[index]:
                cells.append(index)
                cells.append(self.counts[index])
        return (self.number, self.total, self.minimum, self.maximum, cells)

    def add_sparse(self, picture: tuple[int, float, int, int, list[int]]) -> None:
        number, total, minimum, maximum, cells = picture
        if not number:
            return
        if self.number == 0 or minimum < self.minimum:
            self.minimum = minimum
        self.maximum = max(self.maximum, maximum)
        self.number += number
        self.total += total
        for position in range(0, len(cells), 2):
            self.counts[cells[position]] += cells[position + 1]

    def percentile(self, percent: float) -> int:
        """The value that `percent` of all values do not exceed, in ns; 0 when empty."""
        if not self.number:
            return 0
        wanted = max(1, int(percent / 100.0 * self.number + 0.9999999))
        seen = 0
        for index in range(LENGTH):
            seen += self.counts[index]
            if seen >= wanted:
                return min(value_at(index), self.maximum)
        return self.maximum

    def share_above(self, limit: int) -> float:
        """The share of values above `limit` ns (to the slot's resolution); 0.0 when empty."""
        if not self.number:
            return 0.0
        above = 0
        for index in range(bucket_index(limit) + 1, LENGTH):
            above += self.counts[index]
        return above / self.number

    def encoded(self) -> str:
        """The standard V2 compressed encoding (base64), as other HdrHistogram tools read it."""
        body = bytearray()
        zeros = 0
        last = max((index for index in range(LENGTH) if self.counts[index]), default=-1)
        for index in range(last + 1):
            count = self.counts[index]
            if count == 0:
                zeros += 1
                continue
            if zeros:
                body += _zigzag(-zeros)
                zeros = 0
            body += _zigzag(count)
        head = struct.pack(">iiiiqqd", _V2, len(body), 0, 3, 1, HIGHEST, 1.0)
        packed = zlib.compress(head + bytes(body))
        return base64.b64encode(struct.pack(">ii", _V2_COMPRESSED, len(packed)) + packed).decode()

    def in_microseconds(self) -> dict[str, float | int] | None:
        """The figures of the report, in µs; None when nothing was measured."""
        if not self.number:
            return None
        figures: dict[str, float | int] = {
            "n": self.number,
            "min": round(self.minimum / 1e3, 1),
            "mean": round(self.total / self.number / 1e3, 1),
        }
        for name, percent in PERCENTILES:
            figures[name] = round(self.percentile(percent) / 1e3, 1)
        figures["max"] = round(self.maximum / 1e3, 1)
        return figures


def merged(pictures: Iterable[tuple[int, float, int, int, list[int]]]) -> Histogram:
    """One histogram out of several workers' pictures."""
    whole = Histogram()
    for picture in pictures:
        whole.add_sparse(picture)
    return whole


def decoded(text: str) -> Histogram:
    """The histogram that `encoded` wrote. Raises ValueError on another format."""
    raw = base64.b64decode(text)
    cookie, length = struct.unpack_from(">ii", raw)
    if cookie != _V2_COMPRESSED:
        raise ValueError("not a compressed V2 histogram")
    plain = zlib.decompress(raw[8 : 8 + length])
    cookie, size, _, digits, lowest, _, _ = struct.unpack_from(">iiiiqqd", plain)
    if cookie != _V2 or digits != 3 or lowest != 1:
        raise ValueError("not a V2 histogram of three digits from 1")
    whole = Histogram()
    at, index, end = 40, 0, 40 + size
    while at < end:
        number, at = _unzigzag(plain, at)
        if number < 0:
            index -= number
        else:
            whole.counts[index] += number
            value = value_at(index)
            whole.minimum = value if not whole.number else whole.minimum
            whole.maximum = value
            whole.number += number
            whole.total += float(value) * number
            index += 1
    return whole


def _zigzag(number: int) -> bytes:
    """A signed number as ZigZag LEB128, at most nine bytes (the ninth carries eight bits)."""
    value = (number << 1) ^ (number >> 63)
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while len(out) < 8 and value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _unzigzag(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(9):
        byte = raw[at + position]
        if position == 8:
            value |= byte << shift
            at += 9
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            at += position + 1
            break
    return (value >> 1) ^ -(value & 1), at


COMPILED: bool = cython.compiled
