"""The rule tree against a naive model: topics are enumerated and matched one by one."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtt_proxy.policy.rule_tree import DENY, READ, WRITE, RuleNode, RuleSet

NAMES = [b"a", b"b", b"", b"$a", b"zz"]
"""Levels of the enumerated topics; no rule names `zz`, which so stands for all other levels."""
DEPTH = 4
TOPICS = [b"/".join(levels) for depth in range(1, DEPTH + 1) for levels in product(NAMES, repeat=depth)]

level = st.sampled_from([b"a", b"b", b"", b"$a", b"+", b"%u", b"%c"])
plain_level = st.sampled_from([b"a", b"b", b"", b"$a", b"+"])


def filters_of(levels: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda parts, tail: b"/".join(parts + tail) if parts or tail else b"#",
        st.lists(levels, max_size=DEPTH - 2),
        st.sampled_from([[], [b"#"]]),
    )


rules = st.lists(st.tuples(st.sampled_from([READ, WRITE, READ | WRITE, DENY]), filters_of(level)), max_size=6)
names = st.sampled_from([b"a", b"b", b"+", b"a/b", b"$a", None])


def naive_matches(topic_filter: bytes, topic: bytes) -> bool:
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    if topic.startswith(b"$") and wanted[0] in (b"+", b"#"):
        return False
    for at, part in enumerate(wanted):
        if part == b"#":
            return at <= len(levels)
        if at >= len(levels) or part not in (b"+", levels[at]):
            return False
    return len(wanted) == len(levels)


def substituted(rule_filter: bytes, user: bytes | None, client_id: bytes | None) -> bytes | None:
    levels = []
    for at, part in enumerate(rule_filter.split(b"/")):
        if part not in (b"%u", b"%c"):
            levels.append(part)
            continue
        name = user if part == b"%u" else client_id
        if not name or set(name) & set(b"+#/") or (at == 0 and name.startswith(b"$")):
            return None
        levels.append(name)
    return b"/".join(levels)


@settings(max_examples=300, deadline=None)
@given(rules, filters_of(plain_level), names, names)
@example([(READ, b"a"), (READ, b"a/+/#")], b"a/#", None, None)
@example([(DENY, b"%u/#")], b"#", b"$a", None)
@example([(READ, b"#")], b"$a/#", None, None)
def test_tree_agrees_with_matching_one_by_one(
    given_rules: list[tuple[int, bytes]], topic_filter: bytes, user: bytes | None, client_id: bytes | None
) -> None:
    patterns, other = RuleNode(), RuleNode()
    plain: list[tuple[int, bytes]] = []
    for at, (access, rule_filter) in enumerate(given_rules):
        (patterns if at % 2 else other).add(rule_filter, access, pattern=True)
        done = substituted(rule_filter, user, client_id)
        if done is not None:
            plain.append((access, done))
    tree = RuleSet((patterns, other), user, client_id)
    access_of: dict[bytes, int] = {}
    for topic in TOPICS:
        access = 0
        for right, rule_filter in plain:
            if naive_matches(rule_filter, topic):
                access |= right
        access_of[topic] = access
        assert tree.access(topic) == access, topic
    selected = [topic for topic in TOPICS if naive_matches(topic_filter, topic)]
    for right in (READ, WRITE, DENY):
        assert tree.covers(topic_filter, right) == all(access_of[topic] & right for topic in selected)
        if any(access_of[topic] & right for topic in selected):
            assert tree.touches(topic_filter, right)


@settings(max_examples=100, deadline=None)
@given(rules, filters_of(plain_level))
def test_a_filter_is_touched_only_if_some_topic_is(given_rules: list[tuple[int, bytes]], topic_filter: bytes) -> None:
    tree_root = RuleNode()
    plain = [(access, rule_filter) for access, rule_filter in given_rules if b"%" not in rule_filter]
    for access, rule_filter in plain:
        tree_root.add(rule_filter, access, pattern=False)
    touched = any(
        naive_matches(topic_filter, topic) and naive_matches(rule_filter, topic)
        for access, rule_filter in plain
        if access & DENY
        for topic in TOPICS
    )
    assert RuleSet((tree_root,), None, None).touches(topic_filter, DENY) == touched
