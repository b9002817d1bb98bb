"""Ties a test to the normative statements that it shows; docs/conformance.md is the same relation read the other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

V31, V311, V5 = 3, 4, 5

TestFunction = TypeVar("TestFunction", bound=Callable[..., None])

both_versions = pytest.mark.parametrize("version", [pytest.param(V311, id="3.1.1"), pytest.param(V5, id="5.0")])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])


def covers(v3: str = "", v5: str = "") -> Callable[[TestFunction], TestFunction]:
    """Says that the test fails when one of these statements is broken.

    Numbers stand without their `MQTT-`, with spaces between: v3 for those of MQTT 3.1.1, v5 for those of MQTT 5.0. Both must be
    literals: the table's test reads them from the source.
    """
    numbers = [f"3.1.1:MQTT-{n}" for n in v3.split()] + [f"5.0:MQTT-{n}" for n in v5.split()]

    def mark(test: TestFunction) -> TestFunction:
        marked: TestFunction = pytest.mark.covers(*numbers)(test)
        return marked

    return mark
