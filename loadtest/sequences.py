"""Which numbers of which publisher were seen: nine bytes per cell while all goes well, exact when it doesn't.

A *cell* is one (subscription, publisher). As long as its numbers come 0, 1, 2, … it is one counter; the first number out of
turn gives it a `Scattered` set (a bitmap above the full prefix), which goes away again once all holes are filled.
"""

from __future__ import annotations

from array import array

NEW = 0
REPEAT = 1
LATE = 2
"""New, but a higher number of the same publisher had come before it."""

FAR = 1 << 22
"""A number this far above the full prefix is kept apart, so that an invented one cannot claim memory."""


class Scattered:
    """A set of numbers: all below `base`, those of the bitmap from `base`, and the `far` ones."""

    __slots__ = ("base", "bits", "count", "far", "start", "top")

    def __init__(self, base: int) -> None:
        self.base = base
        self.start = base & -8
        """The number that bit 0 of `bits` stands for."""
        self.bits = bytearray(64)
        self.count = base
        self.top = base
        """One above the highest number seen."""
        self.far: set[int] = set()

    def has(self, number: int) -> bool:
        if number < self.base:
            return True
        place = number - self.start
        if place >= 8 * len(self.bits):
            return number in self.far
        return bool(self.bits[place >> 3] >> (place & 7) & 1)

    def add(self, number: int) -> int:
        """NEW, LATE or REPEAT."""
        if number < self.base:
            return REPEAT
        place = number - self.start
        if place >= FAR:
            if number in self.far:
                return REPEAT
            self.far.add(number)
        else:
            byte = place >> 3
            mask = 1 << (place & 7)
            if byte >= len(self.bits):
                self._grow(byte)
            if self.bits[byte] & mask:
                return REPEAT
            self.bits[byte] = self.bits[byte] | mask
        self.count += 1
        if number >= self.top:
            self.top = number + 1
            verdict = NEW
        else:
            verdict = LATE
        if number == self.base:
            self._advance()
        return verdict

    def _grow(self, byte: int) -> None:
        self.bits.extend(bytes(max(byte + 1 - len(self.bits), len(self.bits))))

    def _advance(self) -> None:
        """Move the full prefix up over the bits that are set, and drop what lies well below it."""
        size = len(self.bits)
        place = self.base - self.start
        while place < 8 * size:
            if place & 7 == 0 and self.bits[place >> 3] == 255:
                place += 8
            elif self.bits[place >> 3] >> (place & 7) & 1:
                place += 1
            else:
                break
        self.base = self.start + place
        if place >= 65536:
            del self.bits[: place >> 3]
            self.start += place & -8
        if len(self.bits) < 64:
            self.bits.extend(bytes(64))
        if self.far:
            self._adopt()

    def _adopt(self) -> None:
        """Far numbers that came into the bitmap's reach move into it."""
        near = [number for number in self.far if number - self.start < FAR]
        for number in sorted(near):
            self.far.discard(number)
            place = number - self.start
            if place >> 3 >= len(self.bits):
                self._grow(place >> 3)
            self.bits[place >> 3] = self.bits[place >> 3] | 1 << (place & 7)
        if near and self.has(self.base):
            self._advance()

    def complete(self) -> bool:
        """True when no hole is left: one counter says it all."""
        return self.base == self.top

    def numbers(self) -> tuple[int, int, bytes, tuple[int, ...]]:
        """A picture to send: prefix, number of bit 0, bits, far numbers."""
        return (self.base, self.start, bytes(self.bits), tuple(self.far))


class SequenceTable:
    """The sets of all cells, by cell number."""

    __slots__ = ("next_numbers", "scattered", "slow")

    def __init__(self, cells: int) -> None:
        self.next_numbers = memoryview(array("Q", bytes(8 * max(1, cells))))
        """Per cell: one above the last number, while everything below has been seen."""
        self.slow = memoryview(bytearray(max(1, cells)))
        self.scattered: dict[int, Scattered] = {}

    def add(self, cell: int, number: int) -> int:
        """NEW, LATE or REPEAT."""
        if self.slow[cell] == 0:
            if number == self.next_numbers[cell]:
                self.next_numbers[cell] += 1
                return 0
            if number < self.next_numbers[cell]:
                return 1
        return self._add_scattered(cell, number)

    def _add_scattered(self, cell: int, number: int) -> int:
        kept = self.scattered.get(cell)
        if kept is None:
            kept = self.scattered[cell] = Scattered(self.next_numbers[cell])
            self.slow[cell] = 1
        verdict = kept.add(number)
        if kept.complete():
            self.next_numbers[cell] = kept.base
            self.slow[cell] = 0
            del self.scattered[cell]
        return verdict

    def has(self, cell: int, number: int) -> bool:
        if self.slow[cell]:
            return self.scattered[cell].has(number)
        return number < self.next_numbers[cell]

    def count(self, cell: int) -> int:
        """How many different numbers the cell has seen."""
        if self.slow[cell]:
            return self.scattered[cell].count
        return self.next_numbers[cell]

    def top(self, cell: int) -> int:
        """One above the highest number seen."""
        if self.slow[cell]:
            return self.scattered[cell].top
        return self.next_numbers[cell]

    def picture(self) -> tuple[bytes, dict[int, tuple[int, int, bytes, tuple[int, ...]]]]:
        """What `SeenNumbers` reads: all counters, and the scattered sets."""
        return bytes(self.next_numbers), {cell: kept.numbers() for cell, kept in self.scattered.items()}


class SeenNumbers:
    """A table's picture on the reporting side: sets as plain integers used as bitmaps, so that they merge with `|`."""

    def __init__(self, picture: tuple[bytes, dict[int, tuple[int, int, bytes, tuple[int, ...]]]]) -> None:
        self.next_numbers = array("Q")
        self.next_numbers.frombytes(picture[0])
        self.scattered = picture[1]

    def contiguous(self, cell: int) -> int | None:
        """The count where the set is exactly 0 … count-1, else None."""
        return None if cell in self.scattered else self.next_numbers[cell]

    def bits(self, cell: int) -> int:
        """The set as an integer: bit n is set when number n was seen."""
        held = self.scattered.get(cell)
        if held is None:
            return (1 << self.next_numbers[cell]) - 1
        base, start, raw, far = held
        whole = ((1 << base) - 1) | int.from_bytes(raw, "little") << start
        for number in far:
            whole |= 1 << number if number < 1 << 34 else 0
        return whole
