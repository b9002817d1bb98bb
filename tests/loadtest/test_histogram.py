"""Three digits everywhere, exact merges, the standard encoding."""

from __future__ import annotations

import random

import pytest

from loadtest.histogram import Histogram, decoded, merged


@pytest.mark.hot
def test_three_digits_at_every_size() -> None:
    for value in (0, 1, 999, 2047, 2048, 123_456, 7_654_321, 98_765_432_100, 4_000_000_000_000):
        one = Histogram()
        one.record(value)
        assert abs(one.percentile(50) - value) <= value / 1000
        assert one.maximum == one.minimum == value


@pytest.mark.hot
def test_percentiles_agree_with_sorting() -> None:
    dice = random.Random(3)
    values = [int(dice.lognormvariate(12, 1.5)) for _ in range(20_000)]
    one = Histogram()
    for value in values:
        one.record(value)
    values.sort()
    for percent in (50, 90, 95, 99, 99.9, 99.99, 100):
        true = values[max(0, -(-int(percent * len(values)) // 100) - 1)]
        assert one.percentile(percent) == pytest.approx(true, rel=0.0021)
    figures = one.in_microseconds()
    assert figures is not None
    assert figures["n"] == 20_000
    assert figures["mean"] == pytest.approx(sum(values) / len(values) / 1e3, rel=1e-3)


@pytest.mark.hot
def test_merging_is_exact_and_what_is_empty_is_null() -> None:
    dice = random.Random(4)
    whole, parts = Histogram(), [Histogram() for _ in range(3)]
    for _ in range(5000):
        value = dice.randrange(10**9)
        whole.record(value)
        dice.choice(parts).record(value)
    again = merged(part.sparse() for part in parts)
    assert again.sparse()[2:] == whole.sparse()[2:]
    assert Histogram().in_microseconds() is None
    whole.clear()
    assert whole.sparse() == Histogram().sparse()


def test_the_encoding_comes_back() -> None:
    dice = random.Random(5)
    one = Histogram()
    for _ in range(3000):
        one.record(dice.randrange(1, 10**10))
    back = decoded(one.encoded())
    assert back.number == one.number
    for percent in (1, 50, 99, 99.9):
        assert back.percentile(percent) == one.percentile(percent)
    assert one.encoded().startswith("HIST")  # as every HdrHistogram V2 text does
    with pytest.raises(ValueError):
        decoded("AAAAAAAAAAA=")
