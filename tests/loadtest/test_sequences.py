"""Sets of numbers: one counter while all goes well, exact whatever comes."""

from __future__ import annotations

import random

import pytest

from loadtest.sequences import LATE, NEW, REPEAT, SeenNumbers, SequenceTable


@pytest.mark.hot
@pytest.mark.parametrize("span", [1, 3, 40, 3000])
def test_agrees_with_a_set(span: int) -> None:
    dice = random.Random(span)
    table = SequenceTable(2)
    seen: set[int] = set()
    at = 0
    for _ in range(20_000):
        number = max(0, at + dice.randrange(-span, span + 1))
        at += dice.random() < 0.7
        if dice.random() < 0.0005:
            at += 5000
        expected = REPEAT if number in seen else LATE if seen and number < max(seen) else NEW
        seen.add(number)
        assert table.add(1, number) == expected
    assert table.count(1) == len(seen)
    assert table.top(1) == max(seen) + 1
    for number in range(0, max(seen) + 10, 7):
        assert table.has(1, number) == (number in seen)
    bits = SeenNumbers(table.picture()).bits(1)
    assert bits == sum(1 << number for number in seen)
    assert table.count(0) == 0


@pytest.mark.hot
def test_in_order_costs_one_counter_and_holes_close() -> None:
    table = SequenceTable(1)
    for number in range(1000):
        assert table.add(0, number) == NEW
    assert not table.scattered
    for number in (1002, 1001, 1000):
        table.add(0, number)
    assert not table.scattered
    assert SeenNumbers(table.picture()).contiguous(0) == 1003


@pytest.mark.hot
def test_a_number_far_away_claims_no_memory() -> None:
    table = SequenceTable(1)
    assert table.add(0, 1 << 39) == NEW
    assert table.add(0, 1 << 39) == REPEAT
    assert len(table.scattered[0].bits) < 1000
    assert table.add(0, 0) == LATE
