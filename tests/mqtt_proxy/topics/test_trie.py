"""The trie against a dictionary and `rules.matches`."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_proxy.topics.rules import matches, valid_filter
from mqtt_proxy.topics.trie import CHAIN_MAX, LEVELS_MAX, FilterTrie, filter_matches

pytestmark = pytest.mark.hot

WORDS = [b"a", b"b", b"$a", b"", b"long-level-name"]
level = st.sampled_from(WORDS)
names = st.lists(level, min_size=1, max_size=5).map(b"/".join).filter(bool)
parts = st.lists(level | st.just(b"+"), max_size=5)
filters = st.builds(lambda some, tail: b"/".join([*some, *tail]), parts, st.sampled_from([[], [b"#"]])).filter(
    lambda text: bool(text) and valid_filter(text)
)


def agree(trie: FilterTrie, model: dict[bytes, Any], topics: list[bytes]) -> None:
    assert len(trie) == len(model)
    assert dict(trie.items()) == model
    assert sorted(trie) == sorted(model)
    for topic_filter, value in model.items():
        assert trie.get(topic_filter) == value
    for topic in topics:
        expected = sorted(value for topic_filter, value in model.items() if matches(topic_filter, topic))
        assert sorted(trie.match(topic)) == expected


@given(st.lists(st.tuples(st.booleans(), filters)), st.lists(names, max_size=8))
def test_against_the_model(steps: list[tuple[bool, bytes]], topics: list[bytes]) -> None:
    trie = FilterTrie()
    model: dict[bytes, int] = {}
    for number, (add, topic_filter) in enumerate(steps):
        if add:
            trie.insert(topic_filter, number)
            model[topic_filter] = number
        else:
            assert trie.remove(topic_filter) == model.pop(topic_filter, None)
    agree(trie, model, topics + list(model))
    for topic_filter in list(model):
        assert trie.remove(topic_filter) == model.pop(topic_filter)
    root = trie.root
    assert (root.child, root.children, root.plus, root.rest) == (None, None, None, None)


@given(filters, names)
def test_one_filter_against_one_name(topic_filter: bytes, topic: bytes) -> None:
    assert filter_matches(topic_filter, topic) is matches(topic_filter, topic)


def test_all_small_filters_at_once() -> None:
    parts = [b"a", b"$a", b"", b"+", b"#"]
    small = [b"/".join(some) for depth in (1, 2, 3) for some in product(parts, repeat=depth)]
    model = {some: some for some in small if some and valid_filter(some)}
    trie = FilterTrie()
    for some in model:
        trie.insert(some, some)
    topics = [b"/".join(some) for depth in (1, 2, 3, 4) for some in product([b"a", b"$a", b"", b"x"], repeat=depth)]
    agree(trie, model, [topic for topic in topics if topic])
    for number, some in enumerate(list(model)):
        if number % 2:
            assert trie.remove(some) == model.pop(some)
    agree(trie, model, [topic for topic in topics if topic])


def test_chain_becomes_a_dictionary_and_empties() -> None:
    for children in range(1, CHAIN_MAX + 4):
        trie = FilterTrie()
        model = {b"root/%d/x" % number: number for number in range(children)}
        for topic_filter, value in model.items():
            trie.insert(topic_filter, value)
        agree(trie, model, list(model))
        for topic_filter in list(model)[1::2] + list(model)[0::2]:
            assert trie.remove(topic_filter) == model.pop(topic_filter)
            agree(trie, model, [topic_filter])


def test_nothing_there() -> None:
    trie = FilterTrie()
    for topic_filter in (b"a", b"a/b", b"#", b"+", b"a/#"):
        assert trie.get(topic_filter) is None
        assert trie.remove(topic_filter) is None
    assert trie.match(b"a") == []
    trie.insert(b"a/b/c", 1)
    for topic_filter in (b"a", b"a/b", b"a/b/c/d", b"a/+/c", b"a/b/#"):
        assert trie.get(topic_filter) is None
        assert trie.remove(topic_filter) is None
    assert len(trie) == 1


def test_replaced() -> None:
    trie = FilterTrie()
    for topic_filter in (b"a/b/c", b"a", b"#", b"a/#", b"+/b"):
        trie.insert(topic_filter, 1)
        before = len(trie)
        trie.insert(topic_filter, 2)
        assert len(trie) == before
        assert trie.get(topic_filter) == 2


def test_clear() -> None:
    trie = FilterTrie()
    trie.insert(b"a/#", 1)
    trie.clear()
    assert len(trie) == 0
    assert list(trie) == []
    assert trie.match(b"a") == []


def test_deep() -> None:
    """As deep as is allowed, split at every level; deeper is refused, a deeper name is only a miss."""
    deepest = b"/".join([b"x"] * LEVELS_MAX)
    trie = FilterTrie()
    trie.insert(deepest, 1)
    trie.insert(deepest[:-1] + b"y", 2)
    assert trie.match(deepest) == [1]
    assert trie.match(deepest + b"/x" * 10_000) == []
    with pytest.raises(ValueError, match="512"):
        trie.insert(deepest + b"/x", 3)
    assert len(trie) == 2


def test_values_may_be_anything_but_none() -> None:
    trie = FilterTrie()
    values: list[Any] = [0, "", [], object()]
    for number, value in enumerate(values):
        trie.insert(b"%d" % number, value)
    assert [trie.get(b"%d" % number) for number in range(4)] == values
    assert trie.match(b"0") == [0]
