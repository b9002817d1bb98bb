from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_proxy.topics.light_queue_names import WIRE_NAME_MAX, QueueKind, parse_wire_name, wire_name

kinds = st.sampled_from(QueueKind)
NAMES = st.binary(max_size=80) | st.lists(st.sampled_from([b"/", b"_", b"+", b"a", b"_5f", b"__", b"_u", b"A"]), max_size=60).map(b"".join)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"", "f"),
        (b"plain-Name1", "fplain-Name1"),
        (b"a/b", "fa__b"),
        (b"a/+/#", "fa___p___h"),
        (b"$SYS/x.y", "f_sSYS__x_oy"),
        (b"_", "f_u"),
        (b"\x00\xff", "f_00_ff"),
        ("é".encode(), "f_c3_a9"),
        (b"x" * 63, "f" + "x" * 63),
        (b"x" * 64, "F" + "x" * 30 + "-4df2d6bee2af56f6f849f72cb42670f3"),
    ],
)
def test_names_for_ever(name: bytes, expected: str) -> None:
    """These stand on disk and in RocketMQ: a change here is a change of format."""
    assert wire_name(QueueKind.FILTER, name) == expected


@given(kinds, NAMES)
def test_alphabet_length_and_back(kind: QueueKind, name: bytes) -> None:
    wire = wire_name(kind, name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire)
    known, back = parse_wire_name(wire)
    assert known is kind
    assert back == (name if wire[0].islower() else None)
    assert wire[0].islower() or len(name) > 20


@given(kinds, NAMES, kinds, NAMES)
def test_injective(kind: QueueKind, name: bytes, other_kind: QueueKind, other: bytes) -> None:
    assert (wire_name(kind, name) == wire_name(other_kind, other)) is (kind is other_kind and name == other)


def test_long_names_differ_by_hash() -> None:
    one, two = wire_name(QueueKind.FILTER, b"x" * 100), wire_name(QueueKind.FILTER, b"x" * 101)
    assert len(one) == len(two) == WIRE_NAME_MAX
    assert one != two


@pytest.mark.parametrize("text", ["", "zabc", "fa/b", "f_", "f_zz", "f_5F", "f_61", "f_2f", "f" * 65, "fé"])
def test_no_wire_names(text: str) -> None:
    """Neither foreign characters nor a second spelling of a name."""
    with pytest.raises(ValueError):
        parse_wire_name(text)
