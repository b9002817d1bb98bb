"""MetaStore as every engine keeps it: writes are seen at once, durable when `done` says so."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmq_store.api.ports import MetaStore, Table
from tests.lmq_store.contract.engines import Engine

KEYS = st.binary(max_size=3).map(lambda key: b"k" + key)


def rows(meta: MetaStore, table: Table, prefix: bytes = b"", start: bytes = b"") -> list[tuple[bytes, bytes]]:
    return list(meta.scan(table, prefix, start))


@pytest.mark.parametrize("table", list(Table))
def test_put_get_delete(engine: Engine, table: Table) -> None:
    meta = engine.meta
    meta.put(table, b"key", b"row")
    assert meta.get(table, b"key") == b"row"
    meta.put(table, b"key", b"")
    assert meta.get(table, b"key") == b"", "an empty row is a row"
    assert meta.get(table, b"ke") is None
    meta.delete(table, b"key")
    assert meta.get(table, b"key") is None
    assert all(not rows(meta, other) for other in Table)


def test_writes_are_seen_before_and_after_they_are_durable(engine: Engine) -> None:
    answers: list[object] = []
    for round_no in range(3):
        engine.meta.put(Table.SESSION, b"a%d" % round_no, b"row")
        engine.meta.commit(answers.append)
        assert len(rows(engine.meta, Table.SESSION)) == round_no + 1
    engine.settle()
    assert answers == [None] * 3
    assert [key for key, _ in rows(engine.meta, Table.SESSION)] == [b"a0", b"a1", b"a2"]


def test_scan_merges_old_and_new_rows_in_key_order(engine: Engine) -> None:
    meta = engine.meta
    for key in (b"b1", b"a1", b"b3", b"c"):
        meta.put(Table.FILTER, key, b"old")
    meta.commit(None)
    engine.settle()
    meta.put(Table.FILTER, b"b2", b"new")
    meta.put(Table.FILTER, b"b3", b"new")
    meta.delete(Table.FILTER, b"b1")
    assert rows(meta, Table.FILTER, b"b") == [(b"b2", b"new"), (b"b3", b"new")]
    assert rows(meta, Table.FILTER, b"", b"b3") == [(b"b3", b"new"), (b"c", b"old")]
    assert rows(meta, Table.FILTER, b"b", b"b21") == [(b"b3", b"new")]


def test_delete_prefix_takes_what_begins_so_and_nothing_else(engine: Engine) -> None:
    meta = engine.meta
    for key in (b"\x01", b"\x01\xff", b"\x01\xff\xff", b"\x02", b"\xff\xff", b"\xff\xffz"):
        meta.put(Table.JOURNAL, key, b"row")
    meta.put(Table.SNAPSHOT, b"\x01\xff", b"another table")
    meta.commit(None)
    engine.settle()
    meta.put(Table.JOURNAL, b"\x01\xff\x05", b"not durable yet")
    meta.delete_prefix(Table.JOURNAL, b"\x01\xff")
    meta.put(Table.JOURNAL, b"\x01\xff\x09", b"written after")
    left = [b"\x01", b"\x01\xff\x09", b"\x02", b"\xff\xff", b"\xff\xffz"]
    assert [key for key, _ in rows(meta, Table.JOURNAL)] == left
    meta.commit(None)
    engine.settle()
    assert [key for key, _ in rows(meta, Table.JOURNAL)] == left
    meta.delete_prefix(Table.JOURNAL, b"\xff\xff")
    meta.commit(None)
    engine.settle()
    assert [key for key, _ in rows(meta, Table.JOURNAL)] == left[:3]
    assert len(rows(meta, Table.SNAPSHOT)) == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.binary(max_size=20)),
            st.tuples(st.just("delete"), KEYS, st.just(b"")),
            st.tuples(st.just("delete_prefix"), KEYS, st.just(b"")),
            st.tuples(st.just("settle"), st.just(b""), st.just(b"")),
        ),
        max_size=25,
    )
)
def test_like_a_dict(engine: Engine, steps: list[tuple[str, bytes, bytes]]) -> None:
    meta, model = engine.meta, dict[bytes, bytes]()
    meta.delete_prefix(Table.COUNTER, b"")
    for step, key, row in steps:
        if step == "put":
            meta.put(Table.COUNTER, key, row)
            model[key] = row
        elif step == "delete":
            meta.delete(Table.COUNTER, key)
            model.pop(key, None)
        elif step == "delete_prefix":
            meta.delete_prefix(Table.COUNTER, key)
            model = {held: row for held, row in model.items() if not held.startswith(key)}
        else:
            meta.commit(None)
            engine.settle()
        assert rows(meta, Table.COUNTER) == sorted(model.items())
        if key:
            assert meta.get(Table.COUNTER, key) == model.get(key)


def test_committed_rows_are_there_after_opening_again(engine: Engine) -> None:
    for number in range(200):
        engine.meta.put(Table.SUBSCRIPTION, b"%03d" % number, b"row %d" % number)
    engine.meta.commit(None)
    engine.settle()
    engine.meta.delete_prefix(Table.SUBSCRIPTION, b"1")
    engine.meta.commit(None)
    engine.reopen()
    assert [key for key, _ in rows(engine.meta, Table.SUBSCRIPTION)] == [b"%03d" % number for number in range(100)]
    assert engine.meta.get(Table.SUBSCRIPTION, b"007") == b"row 7"


def test_a_large_row(engine: Engine) -> None:
    row = bytes(range(256)) * 4_000
    engine.meta.put(Table.RETAINED, b"t", row)
    engine.meta.commit(None)
    engine.reopen()
    assert engine.meta.get(Table.RETAINED, b"t") == row
