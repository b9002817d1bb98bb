from __future__ import annotations

import pytest

from mqtt_proxy.observe.load_average import LoadAverage


def test_a_steady_rate_is_reached_and_forgotten_sooner_over_the_shorter_span() -> None:
    load = LoadAverage()
    counter = 0
    for _ in range(6 * 90):
        counter += 100
        load.update(counter, 10)
    assert load.per_minute == pytest.approx([600, 600, 600], rel=0.01)
    for _ in range(6):
        load.update(counter, 10)
    one, five, fifteen = load.per_minute
    assert one < 250 < five < fifteen < 600


def test_no_time_is_no_rate() -> None:
    load = LoadAverage()
    load.update(10, 0)
    assert load.per_minute == [0, 0, 0]
