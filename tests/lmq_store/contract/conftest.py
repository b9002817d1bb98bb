"""Fixture `engine`: each contract test runs once for every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lmq_store.contract.engines import ENGINES, Engine, Topics


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = ENGINES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def topics(engine: Engine) -> Topics:
    return Topics(engine)
