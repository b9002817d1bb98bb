"""Random clients in the suite: short runs that shrink, and one longer; `make fuzz` is the long one."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.session_fuzz import fuzz_sessions

INPUTS = 12_000


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), inputs=st.integers(1, 500))
def test_any_beginning_leaves_nothing_behind(seed: int, inputs: int) -> None:
    """Shrinks to the fewest inputs of a seed that go wrong."""
    fuzz_sessions(inputs, seed)


@pytest.mark.parametrize("seed", [1, secrets.randbelow(1 << 32)], ids=["known", "new"])
def test_random_clients_leave_nothing_behind_and_break_nothing(seed: int) -> None:
    print(f"seed {seed}")
    assert fuzz_sessions(INPUTS, seed).inputs == INPUTS
