"""The POP state machine against a naive model that keeps one plain record per offset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmq_store.api.errors import FormatError
from lmq_store.embedded.pop import PopState, decode_row, encode_row, handle_of

INVISIBLE_MS = 50

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("new"), st.integers(1, 5)),
        st.tuples(st.just("again"), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(0, 40)),
        st.tuples(st.just("give back"), st.integers(0, 40)),
        st.tuples(st.just("renew"), st.integers(0, 40)),
        st.tuples(st.just("wait"), st.integers(0, 120)),
        st.tuples(st.just("hole"), st.integers(1, 3)),
        st.tuples(st.just("settle"), st.integers(0, 12)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("give back all"), st.just(0)),
    ),
    max_size=60,
)


class Naive:
    """Each offset that was ever lent: [deliveries, deadline or None, done]."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int | bool | None]] = {}
        self.next_offset = 0

    def waiting(self) -> list[int]:
        return [at for at, (_, deadline, done) in sorted(self.offsets.items()) if not done and deadline is None]

    def committed(self) -> int:
        return min((at for at, held in self.offsets.items() if not held[2]), default=self.next_offset)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_like_the_naive_model(steps: list[tuple[str, int]]) -> None:
    state, naive, now_ms = PopState(0), Naive(), 1_000
    handles: list[tuple[int, int, int]] = []  # handle, offset, deliveries

    def lend(offset: int) -> None:
        (deliveries,) = state.lend([offset], now_ms + INVISIBLE_MS)
        handle = handle_of(offset, deliveries)
        held = naive.offsets.setdefault(offset, [0, None, False])
        held[0] = int(held[0] or 0) + 1
        held[1] = now_ms + INVISIBLE_MS
        assert deliveries == held[0]
        handles.append((handle, offset, deliveries))

    for step, number in steps:
        if step == "new":
            for _ in range(number):
                lend(naive.next_offset)
                naive.next_offset += 1
        elif step == "again":
            assert state.waiting(number) == naive.waiting()[:number]
            for offset in state.waiting(number):
                lend(offset)
        elif step == "hole":
            naive.next_offset += number
            state.skip_to(naive.next_offset)
        elif step == "wait":
            now_ms += number
            state.revive(now_ms)
            for held in naive.offsets.values():
                if held[1] is not None and int(held[1]) <= now_ms:
                    held[1] = None
        elif step == "settle":
            offset = max(0, naive.next_offset + number - 8)
            state.settle(offset)
            for passed_over in range(naive.next_offset, offset):
                naive.offsets[passed_over] = [0, None, False]
            naive.next_offset = max(naive.next_offset, offset + 1)
            if offset in naive.offsets:
                naive.offsets[offset][2] = True
        elif step == "restart":
            state = decode_row(encode_row(state))
        elif step == "give back all":
            state.give_back_all()
            for held in naive.offsets.values():
                held[1] = None
        elif handles:
            handle, offset, deliveries = handles[number % len(handles)]
            held = naive.offsets[offset]
            fresh = not held[2] and held[0] == deliveries
            if step == "ack":
                assert state.ack(handle) is fresh
                held[2] = held[2] or fresh
            elif step == "give back":
                assert state.change_invisible([handle], None) == (fresh and held[1] is not None)
                held[1] = None if fresh else held[1]
            else:
                lent = fresh and held[1] is not None
                assert state.change_invisible([handle], now_ms + INVISIBLE_MS) == lent
                held[1] = now_ms + INVISIBLE_MS if lent else held[1]
        assert state.committed_offset == naive.committed()
        assert state.next_offset == naive.next_offset
        assert sorted(state.unacked) == [at for at, held in sorted(naive.offsets.items()) if not held[2]]
        deadlines = [int(held[1]) for held in naive.offsets.values() if not held[2] and held[1] is not None]
        assert state.next_deadline_ms() == min(deadlines, default=None)
        assert state.waiting(100) == naive.waiting()


def test_a_group_that_keeps_up_for_ever_stays_small() -> None:
    state = PopState(0)
    for offset in range(0, 30_000, 3):
        state.lend([offset, offset + 1, offset + 2], 1_000)
        for one in (2, 0, 1):
            assert state.ack(handle_of(offset + one, 1))
    assert len(state._order) == 0 and len(state._heap) < 100 and state.committed_offset == 30_000


def test_renewing_for_ever_stays_small() -> None:
    state = PopState(0)
    handles = [handle_of(offset, state.lend([offset], 10)[0]) for offset in range(100)]
    for now_ms in range(1_000):
        for handle in handles:
            assert state.change_invisible([handle], now_ms + 10)
    assert len(state._heap) <= 4 * 100 + 65


def test_lending_what_is_lent_or_done_is_an_error() -> None:
    state = PopState(5)
    handle = handle_of(5, state.lend([5], 10)[0])
    with pytest.raises(ValueError, match="is lent"):
        state.lend([5], 10)
    state.ack(handle)
    with pytest.raises(ValueError, match="neither new nor waiting"):
        state.lend([5], 10)
    with pytest.raises(ValueError, match="neither new nor waiting"):
        state.lend([1], 10)


def test_a_damaged_row_is_refused() -> None:
    state = PopState(0)
    for offset in range(300):
        state.lend([offset], 1_000_000 + offset)
    row = encode_row(state)
    assert encode_row(decode_row(row)) == row
    for cut in range(len(row)):
        with pytest.raises(FormatError):
            decode_row(row[:cut])
    with pytest.raises(FormatError):
        decode_row(row + b"\0")
    with pytest.raises(FormatError, match="version 9"):
        decode_row(b"\x09" + row[1:])
