"""Who may publish, subscribe to and receive what. An `Acl` never changes: a reload makes a new one with a later generation.

Without an ACL file everything is allowed but what the proxy keeps for itself. With one, only what a rule grants, and a
`deny` rule always wins (also over a grant for a more special filter or user). The syntax is in acl_file.py.

- PUBLISH (and a will) needs a rule with `write` that matches the topic. Nobody may publish to `$SYS`, `$events`,
  `$share` or `$replay`. `$p2p/<client id>` needs a rule that begins with `$p2p/`, since wildcards match no `$` topic.
- SUBSCRIBE needs rules with `read` that together cover the whole filter; a filter that `deny` rules take out in full is
  refused, of another one the denied topics are held back at delivery. `$share/<group>/<filter>` and
  `$replay/<from>/<filter>` need the rights of their filter. Nobody may subscribe to `$p2p/...`.
- `$SYS/#` and `$events/#` are readable like any other topic: by a rule that names them (`topic read $SYS/#`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from mqtt_proxy.policy.identity import Identity
from mqtt_proxy.policy.rule_tree import CLIENT_LEVEL, DENY, READ, USER_LEVEL, WRITE, RuleNode, RuleSet

CACHED_TOPICS: Final = 256
"""Answers kept for one connection; those shared by all connections of a user may be `SHARED_CACHED_TOPICS`."""
SHARED_CACHED_TOPICS: Final = 65_536
SHARED_RIGHTS: Final = 10_000
"""Users whose rights are kept for their next connection."""

_PUBLISHED_BY_THE_PROXY: Final = (b"$SYS", b"$events", b"$share", b"$replay")
_generations = count(1)


def reserved(topic: bytes) -> bool:
    """True for topics that no client may publish to, whatever the rules say."""
    return topic.startswith(b"$") and topic.partition(b"/")[0] in _PUBLISHED_BY_THE_PROXY


def asked_filter(topic_filter: bytes) -> bytes | None:
    """The filter whose rights count: without `$share/<group>/` or `$replay/<from>/`; None where nothing follows those."""
    if topic_filter.startswith((b"$share/", b"$replay/")):
        parts = topic_filter.split(b"/", 2)
        return parts[2] if len(parts) == 3 and parts[2] else None
    return topic_filter


class Rights:
    """What one identity may do, with the answers it has asked for. Keep it in the connection; get a new one after a reload.

    While `restricted` is False, only topics that begin with `$` need a question.
    """

    __slots__ = ("_cached_topics", "_may_publish", "_may_receive", "_rules", "generation", "restricted")

    def __init__(self, rules: RuleSet | None, generation: int, cached_topics: int = CACHED_TOPICS) -> None:
        self._rules = rules
        self.generation = generation
        self.restricted = rules is not None
        self._cached_topics = cached_topics
        self._may_publish: dict[bytes, bool] = {}
        self._may_receive: dict[bytes, bool] = {}

    def may_publish(self, topic: bytes) -> bool:
        """Whether a PUBLISH or will to the topic name is authorized; else 0x87 (Not authorized)."""
        answer = self._may_publish.get(topic)
        if answer is None:
            rules = self._rules
            if reserved(topic):
                answer = False
            elif rules is None:
                answer = True
            else:
                answer = rules.access(topic) & (WRITE | DENY) == WRITE
            self._remember(self._may_publish, topic, answer)
        return answer

    def may_receive(self, topic: bytes) -> bool:
        """Whether a message of the topic may be delivered."""
        rules = self._rules
        if rules is None:
            return True
        answer = self._may_receive.get(topic)
        if answer is None:
            answer = rules.access(topic) & (READ | DENY) == READ
            self._remember(self._may_receive, topic, answer)
        return answer

    def may_subscribe(self, topic_filter: bytes) -> bool:
        """Whether a SUBSCRIBE to the filter is authorized, as a whole; else 0x87 in SUBACK (0x80 for MQTT 3)."""
        asked = asked_filter(topic_filter)
        if asked is None or asked.partition(b"/")[0] == b"$p2p":
            return False
        rules = self._rules
        return rules is None or (rules.covers(asked, READ) and not rules.covers(asked, DENY))

    def receivable(self, topic_filter: bytes) -> Callable[[bytes], bool] | None:
        """A check that is True for the topics that may be delivered to this subscription; None if all of them may.

        None is the usual answer: then delivery has nothing to ask. A subscription that a reload leaves without rules
        for its whole filter gets the check too, and with it just what is still granted.
        """
        rules = self._rules
        asked = asked_filter(topic_filter)
        if rules is None or asked is None:
            return None
        if rules.covers(asked, READ) and not rules.touches(asked, DENY):
            return None
        return self.may_receive

    def _remember(self, answers: dict[bytes, bool], topic: bytes, answer: bool) -> None:
        if len(answers) >= self._cached_topics:
            answers.clear()
        answers[topic] = answer


@dataclass(frozen=True, slots=True)
class RuleTables:
    """The rules of a file, one tree for each section that holds `topic` lines and one for all `pattern` lines."""

    anonymous: RuleNode = field(default_factory=RuleNode)
    patterns: RuleNode = field(default_factory=RuleNode)
    users: dict[bytes, RuleNode] = field(default_factory=dict)
    client_ids: dict[bytes, RuleNode] = field(default_factory=dict)
    roles: dict[bytes, RuleNode] = field(default_factory=dict)
    members: dict[bytes, set[bytes]] = field(default_factory=dict)
    """User → the roles that the file gives it."""


class Acl:
    """The rules in force. `Acl(None)` is the one without a file: open."""

    __slots__ = ("_client_matters", "_open", "_shared", "_tables", "generation")

    def __init__(self, tables: RuleTables | None) -> None:
        self.generation = next(_generations)
        self._tables = tables
        self._open = Rights(None, self.generation, SHARED_CACHED_TOPICS)
        self._shared: dict[tuple[bytes | None, frozenset[bytes]], Rights] = {}
        self._client_matters = tables is not None and tables.patterns.names(CLIENT_LEVEL)

    @property
    def restricted(self) -> bool:
        """False where there is no ACL file."""
        return self._tables is not None

    @property
    def names_users(self) -> bool:
        """True if a rule depends on the user name: worth a warning while names are only what clients claim."""
        tables = self._tables
        return tables is not None and bool(tables.users or tables.members or tables.patterns.names(USER_LEVEL))

    def rights(self, identity: Identity) -> Rights:
        """The rights of a connection: one object for all connections of a user where no rule looks at the client id."""
        tables = self._tables
        if tables is None:
            return self._open
        own_client_rules = tables.client_ids.get(identity.client_id)
        if self._client_matters or own_client_rules is not None:
            return Rights(RuleSet(self._roots(tables, identity, own_client_rules), identity.user, identity.client_id), self.generation)
        key = (identity.user, identity.roles)
        rights = self._shared.get(key)
        if rights is None:
            rules = RuleSet(self._roots(tables, identity, None), identity.user, None)
            rights = Rights(rules, self.generation, SHARED_CACHED_TOPICS if identity.user is None else CACHED_TOPICS)
            if len(self._shared) >= SHARED_RIGHTS:
                self._shared.clear()
            self._shared[key] = rights
        return rights

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        return self.rights(identity).may_publish(topic)

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        return self.rights(identity).may_subscribe(topic_filter)

    def may_receive(self, identity: Identity, topic: bytes) -> bool:
        return self.rights(identity).may_receive(topic)

    def receivable(self, identity: Identity, topic_filter: bytes) -> Callable[[bytes], bool] | None:
        return self.rights(identity).receivable(topic_filter)

    @staticmethod
    def _roots(tables: RuleTables, identity: Identity, own_client_rules: RuleNode | None) -> tuple[RuleNode, ...]:
        roots = [tables.patterns]
        own = tables.anonymous if identity.user is None else tables.users.get(identity.user)
        if own is not None:
            roots.append(own)
        if own_client_rules is not None:
            roots.append(own_client_rules)
        roots += _role_rules(tables.roles, tables.members, identity)
        return tuple(roots)


def _role_rules(roles: Mapping[bytes, RuleNode], members: Mapping[bytes, set[bytes]], identity: Identity) -> list[RuleNode]:
    held = set(identity.roles)
    if identity.user is not None:
        held |= members.get(identity.user, set())
    return [roles[role] for role in sorted(held) if role in roles]


OPEN_ACL: Final = Acl(None)
"""No ACL file: all is allowed but what the proxy keeps for itself."""
