"""What only the in-process implementation promises: one call a turn, and a bound with a count."""

from __future__ import annotations

from collections.abc import Callable

from notify.api import Hints
from notify.in_process import InProcessNotify


def test_a_turns_hints_are_one_call() -> None:
    calls: list[Callable[[], None]] = []
    told: list[Hints] = []
    notify = InProcessNotify(calls.append)
    notify.subscribe(told.append)
    for offset in range(100):
        notify.publish({1: offset, 2: 100 - offset})
    assert len(calls) == 1
    calls.pop()()
    assert told == [{1: 99, 2: 100}]


def test_hints_under_way_are_bounded() -> None:
    calls: list[Callable[[], None]] = []
    told: list[Hints] = []
    notify = InProcessNotify(calls.append, queues_max=3)
    notify.subscribe(told.append)
    notify.publish({1: 1, 2: 1})
    notify.publish({2: 5, 3: 1, 4: 1, 5: 1})
    assert notify.dropped == 2
    calls.pop()()
    assert told == [{1: 1, 2: 5, 3: 1}]
    notify.publish({4: 2})
    calls.pop()()
    assert told[1] == {4: 2}
    assert notify.dropped == 2
