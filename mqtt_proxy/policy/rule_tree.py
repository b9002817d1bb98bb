"""The ACL's rules as a tree over topic levels: which rights cover a topic, a whole filter, or touch a filter. Pure.

The tree is shared by all connections: `%u` and `%c` stay in it as levels of their own and are compared with the names
of the asking connection. A walk visits each node at most once, so a check costs at most the number of rules, whatever
the topic looks like.
"""

from __future__ import annotations

from typing import Final

READ: Final = 1
WRITE: Final = 2
READ_WRITE: Final = READ | WRITE
DENY: Final = 4

USER_LEVEL: Final = b"%u"
CLIENT_LEVEL: Final = b"%c"


class RuleNode:
    """The rules that have this node's path: `here` ends at it, `below` goes on with `#` (which means the path itself too)."""

    __slots__ = ("below", "children", "client", "here", "inside", "plus", "user")

    def __init__(self) -> None:
        self.here = 0
        self.below = 0
        self.inside = 0  # all rights of this node and of those under it
        self.children: dict[bytes, RuleNode] = {}
        self.plus: RuleNode | None = None
        self.user: RuleNode | None = None
        self.client: RuleNode | None = None

    def add(self, rule_filter: bytes, access: int, pattern: bool) -> None:
        """Add one rule; in a `pattern`, levels `%u` and `%c` stand for the connection's names."""
        node = self
        node.inside |= access
        for level in rule_filter.split(b"/"):
            if level == b"#":
                node.below |= access
                return
            node = node._step(level, pattern)
            node.inside |= access
        node.here |= access

    def _step(self, level: bytes, pattern: bool) -> RuleNode:
        if level == b"+":
            self.plus = self.plus or RuleNode()
            return self.plus
        if pattern and level == USER_LEVEL:
            self.user = self.user or RuleNode()
            return self.user
        if pattern and level == CLIENT_LEVEL:
            self.client = self.client or RuleNode()
            return self.client
        return self.children.setdefault(level, RuleNode())

    def names(self, placeholder: bytes) -> bool:
        """True if a rule in the tree has the level `%u` (or `%c`)."""
        if (self.user if placeholder == USER_LEVEL else self.client) is not None:
            return True
        return any(node.names(placeholder) for node in (*self.children.values(), self.plus, self.user, self.client) if node is not None)


def substitutable(name: bytes | None) -> bytes | None:
    """The name if it may stand for `%u` or `%c`; None for one that contains `+`, `#` or `/`, which matches no pattern."""
    if not name or b"+" in name or b"#" in name or b"/" in name:
        return None
    return name


class RuleSet:
    """The trees that apply to one connection, with its names in place of `%u` and `%c` (None: matches nothing)."""

    __slots__ = ("_client", "_roots", "_user")

    def __init__(self, roots: tuple[RuleNode, ...], user: bytes | None, client_id: bytes | None) -> None:
        self._roots = roots
        self._user = substitutable(user)
        self._client = substitutable(client_id)

    def access(self, topic: bytes) -> int:
        """All rights of the rules that match the topic name, or-ed."""
        levels = topic.split(b"/")
        dollar = topic.startswith(b"$")
        access = 0
        nodes = list(self._roots)
        for depth, level in enumerate(levels):
            if not (depth == 0 and dollar):  # wildcards at the front match no `$` topic [MQTT-4.7.2-1]
                for node in nodes:
                    access |= node.below
            nodes = self._step(nodes, level, wildcards=not (depth == 0 and dollar))
            if not nodes:
                return access
        for node in nodes:
            access |= node.here | node.below
        return access

    def covers(self, topic_filter: bytes, right: int) -> bool:
        """True if every topic that the filter matches is matched by a rule with this right, by several rules together too.

        A filter stands for topics with any level in the place of its wildcards, so one topic with levels that no rule
        names stands for all of them; `#` stands for such topics of every length, of which no more than the rules' own
        depth have to be looked at.
        """
        levels = topic_filter.split(b"/")
        dollar = topic_filter.startswith(b"$")
        nodes = list(self._roots)
        for depth, level in enumerate(levels):
            first_dollar = depth == 0 and dollar
            if not first_dollar and any(node.below & right for node in nodes):
                return True
            if level == b"#":
                return self._covers_all_below(nodes, right, with_parent=depth > 0)
            nodes = _plus(nodes) if level == b"+" else self._step(nodes, level, wildcards=not first_dollar)
            if not nodes:
                return False
        return any((node.here | node.below) & right for node in nodes)

    def touches(self, topic_filter: bytes, right: int) -> bool:
        """False only if no topic that the filter matches is matched by a rule with this right (may be True without one)."""
        levels = topic_filter.split(b"/")
        dollar = topic_filter.startswith(b"$")
        nodes = [node for node in self._roots if node.inside & right]
        for depth, level in enumerate(levels):
            if not (depth == 0 and dollar) and any(node.below & right for node in nodes):
                return True
            if level == b"#":
                return bool(nodes) if depth else any(node.inside & right for node in self._any_level(nodes, first=True))
            if level == b"+":
                nodes = self._any_level(nodes, first=depth == 0)
            else:
                nodes = self._step(nodes, level, wildcards=not (depth == 0 and dollar))
            nodes = [node for node in nodes if node.inside & right]
            if not nodes:
                return False
        return any((node.here | node.below) & right for node in nodes)

    def _step(self, nodes: list[RuleNode], level: bytes, wildcards: bool) -> list[RuleNode]:
        """The nodes one level on. Names at the front match no `$` topic either: a user called `$SYS` gains nothing."""
        after = []
        for node in nodes:
            child = node.children.get(level)
            if child is not None:
                after.append(child)
            if not wildcards:
                continue
            if node.plus is not None:
                after.append(node.plus)
            if node.user is not None and level == self._user:
                after.append(node.user)
            if node.client is not None and level == self._client:
                after.append(node.client)
        return after

    def _any_level(self, nodes: list[RuleNode], first: bool) -> list[RuleNode]:
        after = []
        for node in nodes:
            after += [child for level, child in node.children.items() if not (first and level.startswith(b"$"))]
            if node.plus is not None:
                after.append(node.plus)
            if node.user is not None and self._user is not None:
                after.append(node.user)
            if node.client is not None and self._client is not None:
                after.append(node.client)
        return after

    def _covers_all_below(self, nodes: list[RuleNode], right: int, with_parent: bool) -> bool:
        """Whether topics of each length under the nodes are covered. `a/#` means `a` itself too (MQTT 5.0 §4.7.1.2)."""
        while nodes:
            if any(node.below & right for node in nodes):
                return True
            if with_parent and not any(node.here & right for node in nodes):
                return False
            with_parent = True
            nodes = _plus(nodes)
        return False


def _plus(nodes: list[RuleNode]) -> list[RuleNode]:
    return [node.plus for node in nodes if node.plus is not None]
