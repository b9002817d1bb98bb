"""All filters that match a topic name, in the time of its levels and not of the filters. MQTT 5.0 §4.7

A tree of levels, one node per filter where filters don't share a beginning: a node without children keeps the rest of
its filter as `tail`, and is split only when another filter needs the level. Few children form a chain, more a
dictionary. So a million different filters take 200 to 300 bytes each. Compiled (trie.pxd); nodes are then unknown to
Python's cycle collector, since a million tracked objects would make its full passes visible as pauses: `clear` a trie
whose values lead back to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cython

LEVELS_MAX = 512
"""Deepest filter: matching descends one call per level. The proxy's own limit on levels lies below."""

LEVELS_REMEMBERED = 16_384
"""Level names of which one object is shared by all nodes that have it; at that number all are forgotten."""

CHAIN_MAX = 4
"""Children of a node that are held as a chain; with more they move into a dictionary, five times the memory."""

known_levels: dict[bytes, bytes] = {}


@cython.final
@cython.no_gc
@cython.cclass
class Node:
    """One level of one or more filters. `value` is that of the filter that ends here (with a `tail`: after the tail)."""

    __slots__ = ("child", "children", "level", "plus", "rest", "sibling", "tail", "value")

    def __init__(self, level: bytes) -> None:
        self.level = level
        self.tail: bytes | None = None
        self.value: Any = None
        self.rest: Any = None  # the value of "…/#"
        self.plus: Node | None = None  # the child "+"
        self.child: Node | None = None  # the first of the other children, while they are few
        self.sibling: Node | None = None  # the next one of the chain that this node is in
        self.children: dict[bytes, Node] | None = None  # the other children, when they are many


class FilterTrie:
    """A map of valid topic filters to values (anything but None), with `match` for a topic name."""

    __slots__ = ("count", "root")

    def __init__(self) -> None:
        self.root = Node(b"")
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def clear(self) -> None:
        """Forget all filters."""
        self.root = Node(b"")
        self.count = 0

    def insert(self, topic_filter: bytes, value: Any) -> None:
        """Map the filter to the value; the one it had before is replaced. ValueError above 512 levels."""
        if topic_filter.count(b"/") >= LEVELS_MAX:
            raise ValueError(f"a filter has at most {LEVELS_MAX} levels, not {topic_filter.count(b'/') + 1}")
        node = self.root
        end = len(topic_filter)
        at = 0
        while True:
            stop = level_end(topic_filter, at, end)
            level = topic_filter[at:stop]
            if level == b"#":
                self.count += node.rest is None
                node.rest = value
                return
            child = node.plus if level == b"+" else child_named(node, level)
            at = stop + 1
            if child is None:
                attach(node, new_leaf(level, topic_filter[at:] if at <= end else None, value))
                self.count += 1
                return
            if child.tail is not None:
                if at <= end and topic_filter[at:] == child.tail:
                    child.value = value
                    return
                split(child)
            if at > end:
                self.count += child.value is None
                child.value = value
                return
            node = child

    def get(self, topic_filter: bytes) -> Any:
        """The filter's value, or None."""
        node = self.root
        end = len(topic_filter)
        at = 0
        while True:
            stop = level_end(topic_filter, at, end)
            level = topic_filter[at:stop]
            if level == b"#":
                return node.rest
            child = node.plus if level == b"+" else child_named(node, level)
            if child is None:
                return None
            at = stop + 1
            if child.tail is not None:
                return child.value if at <= end and topic_filter[at:] == child.tail else None
            if at > end:
                return child.value
            node = child

    def remove(self, topic_filter: bytes) -> Any:
        """Forget the filter; returns the value it had, or None."""
        value = self.get(topic_filter)
        if value is None:
            return None
        self.count -= 1
        path = [self.root]
        node = self.root
        end = len(topic_filter)
        at = 0
        while True:
            stop = level_end(topic_filter, at, end)
            level = topic_filter[at:stop]
            if level == b"#":
                node.rest = None
                break
            child = node.plus if level == b"+" else child_named(node, level)
            assert child is not None
            path.append(child)
            node = child
            at = stop + 1
            if at > end or node.tail is not None:
                node.value = None
                break
        while len(path) > 1:
            node = path.pop()
            if node.value is not None or node.rest is not None or node.plus is not None or node.child is not None or node.children:
                break
            detach(path[len(path) - 1], node)
        return value

    def match(self, topic: bytes) -> list[Any]:
        """The values of all filters that match the topic name, in no particular order."""
        found: list[Any] = []
        root = self.root
        end = len(topic)
        stop = level_end(topic, 0, end)
        if not topic.startswith(b"$"):  # a leading wildcard doesn't match `$` names [MQTT-4.7.2-1]
            if root.rest is not None:
                found.append(root.rest)
            if root.plus is not None:
                collect(root.plus, topic, stop + 1, end, found)
        child = child_named(root, topic[:stop])
        if child is not None:
            collect(child, topic, stop + 1, end, found)
        return found

    def __iter__(self) -> Iterator[bytes]:
        for pair in self.items():
            yield pair[0]

    def items(self) -> Iterator[tuple[bytes, Any]]:
        """All filters with their values, in no particular order. The trie must not change meanwhile."""
        waiting: list[tuple[bytes, Node]] = [(b"", self.root)]
        while waiting:
            prefix, node = waiting.pop()
            if node is not self.root:
                if node.value is not None:
                    yield prefix if node.tail is None else prefix + b"/" + node.tail, node.value
                prefix += b"/"
            if node.rest is not None:
                yield prefix + b"#", node.rest
            if node.plus is not None:
                waiting.append((prefix + b"+", node.plus))
            child = node.child
            while child is not None:
                waiting.append((prefix + child.level, child))
                child = child.sibling
            if node.children is not None:
                for level, child in node.children.items():
                    waiting.append((prefix + level, child))


def level_end(p: bytes, at: int, end: int) -> int:
    """The position of the next `/`, or the end."""
    if cython.compiled:
        while at < end and p[at] != 47:
            at += 1
        return at
    else:
        stop = p.find(b"/", at, end)
        return end if stop < 0 else stop


def child_named(node: Node, level: bytes) -> Node | None:
    """The child for a level without wildcards."""
    if node.children is not None:
        return node.children.get(level)
    child = node.child
    while child is not None and child.level != level:
        child = child.sibling
    return child


def new_leaf(level: bytes, tail: bytes | None, value: Any) -> Node:
    shared = known_levels.get(level)
    if shared is None:
        if len(known_levels) >= LEVELS_REMEMBERED:
            known_levels.clear()
        known_levels[level] = shared = level
    leaf = Node(shared)
    leaf.tail = tail
    leaf.value = value
    return leaf


def attach(node: Node, child: Node) -> None:
    """Make `child` (whose level isn't "#") a child of `node`, which has none for that level yet."""
    if child.level == b"+":
        node.plus = child
    elif node.children is not None:
        node.children[child.level] = child
    else:
        child.sibling = node.child
        node.child = child
        length = 1
        following = child.sibling
        while following is not None:
            length += 1
            following = following.sibling
        if length > CHAIN_MAX:
            chain_to_dictionary(node)


def chain_to_dictionary(node: Node) -> None:
    children = {}
    child = node.child
    while child is not None:
        children[child.level] = child
        following = child.sibling
        child.sibling = None
        child = following
    node.child = None
    node.children = children


def detach(node: Node, child: Node) -> None:
    """Undo `attach`."""
    if child.level == b"+":
        node.plus = None
    elif node.children is not None:
        del node.children[child.level]
        if not node.children:
            node.children = None
    elif node.child is child:
        node.child = child.sibling
    else:
        before = node.child
        while before is not None and before.sibling is not child:
            before = before.sibling
        assert before is not None
        before.sibling = child.sibling


def split(node: Node) -> None:
    """Give the first level of the node's tail a node of its own."""
    tail = node.tail
    assert tail is not None
    value = node.value
    node.tail = node.value = None
    end = len(tail)
    stop = level_end(tail, 0, end)
    level = tail[:stop]
    if level == b"#":
        node.rest = value
    else:
        attach(node, new_leaf(level, tail[stop + 1 :] if stop < end else None, value))


def collect(node: Node, p: bytes, at: int, end: int, found: list[Any]) -> int:
    """Add what matches below `node`, whose level matched; the next one begins at `at` (above `end`: there is none)."""
    if node.tail is not None:
        if tail_matches(node.tail, len(node.tail), p, at, end):
            found.append(node.value)
        return 0
    if node.rest is not None:
        found.append(node.rest)  # "a/#" matches "a" as well. MQTT 5.0 §4.7.1.2
    if at > end:
        if node.value is not None:
            found.append(node.value)
        return 0
    stop = level_end(p, at, end)
    if node.plus is not None:
        collect(node.plus, p, stop + 1, end, found)
    if node.child is not None or node.children is not None:
        child = child_named(node, p[at:stop])
        if child is not None:
            collect(child, p, stop + 1, end, found)
    return 0


def filter_matches(topic_filter: bytes, topic: bytes) -> bool:
    """`rules.matches`, at the speed that a scan over many names needs."""
    if topic.startswith(b"$") and topic_filter.startswith((b"+", b"#")):
        return False  # [MQTT-4.7.2-1]
    return tail_matches(topic_filter, len(topic_filter), topic, 0, len(topic))


def tail_matches(tail: bytes, size: int, p: bytes, at: int, end: int) -> bool:
    """Do the levels of `tail` match those of the name from `at` on?"""
    place = 0
    while True:
        if place < size and tail[place] == 35:  # "#": always a filter's last level
            return True
        if at > end:
            return False
        if place < size and tail[place] == 43:  # "+"
            place += 1
            at = level_end(p, at, end)
        else:
            while place < size and tail[place] != 47:
                if at >= end or tail[place] != p[at]:
                    return False
                place += 1
                at += 1
            if at < end and p[at] != 47:
                return False
        if place == size:
            return at == end
        place += 1
        at += 1
