"""Notify, as every implementation keeps it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from notify.api import Hints
from tests.notify.carriers import CARRIERS, Carrier


@pytest.fixture(params=list(CARRIERS))
def carrier(request: pytest.FixtureRequest) -> Iterator[Carrier]:
    made = CARRIERS[request.param]()
    yield made
    made.close()


def highest(calls: list[Hints]) -> dict[int, int]:
    """What a subscriber knows after the calls."""
    known: dict[int, int] = {}
    for hints in calls:
        for queue_id, max_offset in hints.items():
            known[queue_id] = max(known.get(queue_id, 0), max_offset)
    return known


def test_a_hint_reaches_every_subscriber(carrier: Carrier) -> None:
    first: list[Hints] = []
    second: list[Hints] = []
    carrier.notify.subscribe(first.append)
    carrier.notify.subscribe(second.append)
    carrier.notify.publish({7: 3, (1 << 40) + 256: 1 << 50})
    carrier.settle()
    assert highest(first) == highest(second) == {7: 3, (1 << 40) + 256: 1 << 50}


def test_the_highest_offset_stands(carrier: Carrier) -> None:
    calls: list[Hints] = []
    carrier.notify.subscribe(calls.append)
    for max_offset in (5, 9, 2):
        carrier.notify.publish({1: max_offset, 2: 10 - max_offset})
    carrier.settle()
    assert highest(calls) == {1: 9, 2: 8}


def test_nobody_is_called_from_within_publish(carrier: Carrier) -> None:
    calls: list[Hints] = []
    carrier.notify.subscribe(calls.append)
    carrier.notify.publish({1: 1})
    assert calls == []
    carrier.settle()
    assert highest(calls) == {1: 1}


def test_a_subscriber_may_publish(carrier: Carrier) -> None:
    calls: list[Hints] = []

    def go_on(hints: Hints) -> None:
        calls.append(hints)
        if hints.get(1, 9) < 3:
            carrier.notify.publish({1: hints[1] + 1})

    carrier.notify.subscribe(go_on)
    carrier.notify.publish({1: 1})
    carrier.settle()
    assert highest(calls) == {1: 3}


def test_a_subscription_ends(carrier: Carrier) -> None:
    calls: list[Hints] = []
    others: list[Hints] = []
    end = carrier.notify.subscribe(calls.append)
    carrier.notify.subscribe(others.append)
    end()
    end()
    carrier.notify.publish({1: 1})
    carrier.settle()
    assert calls == []
    assert highest(others) == {1: 1}


def test_one_subscribers_fault_stays_its_own(carrier: Carrier) -> None:
    calls: list[Hints] = []

    def fail(_: Hints) -> None:
        raise RuntimeError("a fault")

    carrier.notify.subscribe(fail)
    carrier.notify.subscribe(calls.append)
    carrier.notify.publish({1: 1})
    carrier.settle()
    carrier.notify.publish({1: 2})
    carrier.settle()
    assert highest(calls) == {1: 2}


def test_nothing_to_tell_is_fine(carrier: Carrier) -> None:
    carrier.notify.publish({})
    carrier.notify.publish({1: 1})  # and so is nobody to tell it to
    carrier.settle()
