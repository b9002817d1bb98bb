"""Who connects, publishes what and expects what: a plan turned into groups of clients. Pure.

Publishers are numbered over all groups, since the ledger knows them by number. A subscriber expects *spans* of publishers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from loadtest.units import UsageError

PLACEHOLDERS = r"i|publisher|random|n|run|responder:\d+"


def matches(topic_filter: str, topic: str) -> bool:
    """MQTT topic matching [MQTT-4.7.1], [MQTT-4.7.2-1]; `$share/group/` is looked through."""
    if topic_filter.startswith("$share/"):
        topic_filter = topic_filter.split("/", 2)[2]
    levels, names = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names) or level not in ("+", names[place]):
            return False
    return len(levels) == len(names)


@dataclass(slots=True, kw_only=True)
class Publishing:
    """What each client of a group publishes. Patterns know {i}, {publisher}, {random} (one of `topics`) and {n} (the number)."""

    topic: str
    topics: int = 0
    qos: int = 0
    retain: bool = False
    rate: float | None = None
    """Over all publishers of the group; None: as fast as the window allows."""
    count: int | None = None
    window: int = 20
    size: tuple[int, int] = (256, 256)
    payload: str = "zero"
    first: int = 0
    """Number of the group's first publisher."""
    request: bool = False
    """MQTT 5: with a response topic and correlation data."""

    def pattern(self, client: int) -> tuple[str, str]:
        """Topic before and after what changes with each message."""
        whole = self.topic.replace("{i}", str(client)).replace("{publisher}", str(client))
        whole = re.sub(r"\{responder:(\d+)\}", lambda found: str(client % int(found[1])), whole)
        for mark in ("{random}", "{n}"):
            before, found, after = whole.partition(mark)
            if found:
                return before, after
        return whole, ""

    @property
    def topics_drawn(self) -> int:
        """As `Publisher.topics`: -1 a topic per message, 0 one topic, else the number of topics."""
        if "{n}" in self.topic:
            return -1
        return self.topics if "{random}" in self.topic else 0

    def example(self, client: int) -> str:
        before, after = self.pattern(client)
        return before + ("0" if self.topics_drawn else "") + after


@dataclass(slots=True, kw_only=True)
class Subscribing:
    """What each client of a group subscribes to. Patterns know {i} and {filter} (one of the client's own numbers)."""

    filter: str
    filters: int = 1
    """Filters per client; {filter} counts through all filters of the group."""
    qos: int = 0
    share_groups: int = 0
    """Above 0: client i is a member of shared group i mod share_groups; {group} in the filter."""
    one_owner: bool = False
    """Every message goes to exactly one client of the group, which one its topic says."""
    spans: list[tuple[int, int, bool]] = field(default_factory=list)
    """(first publisher, number, own): `own` means that client i expects publisher first + i alone."""

    def filters_of(self, client: int) -> Iterator[str]:
        base = self.filter.replace("{i}", str(client)).replace("{group}", str(client % self.share_groups if self.share_groups else 0))
        for place in range(self.filters):
            yield base.replace("{filter}", str(client * self.filters + place))

    def spans_of(self, client: int) -> list[tuple[int, int]]:
        return [(first + client, 1) if own else (first, number) for first, number, own in self.spans]


@dataclass(slots=True, kw_only=True)
class Group:
    """Clients that do the same."""

    name: str
    clients: int
    publish: Publishing | None = None
    subscribe: Subscribing | None = None
    persistent: bool = False
    offline: bool = False
    """Subscribes, leaves before anything is published, and returns when all is."""
    late: bool = False
    """Connects first when all is published (retained messages)."""
    responder: bool = False
    churn: int = 0
    """Messages per life of a client that comes and goes all the time; 0: stays."""
    flap: tuple[float, float] | None = None
    """(every so many seconds, this share of the group loses its link)."""
    first_client: int = 0


@dataclass(slots=True)
class Layout:
    groups: list[Group]
    run: str = ""
    publishers: int = 0
    clients: int = 0

    def __post_init__(self) -> None:
        for group in self.groups:
            if group.publish:
                _check_topic(group.publish.topic)
                group.publish.topic = group.publish.topic.replace("{run}", self.run)
            if group.subscribe:
                group.subscribe.filter = group.subscribe.filter.replace("{run}", self.run)
            group.first_client = self.clients
            self.clients += group.clients
            if group.publish:
                group.publish.first = self.publishers
                self.publishers += group.clients
        for group in self.groups:
            if group.subscribe and not group.subscribe.spans and not group.responder:
                group.subscribe.spans = self._spans(group)

    def _spans(self, group: Group) -> list[tuple[int, int, bool]]:
        subscribe = group.subscribe
        assert subscribe is not None
        found = []
        for source in self.groups:
            if source.publish is None:
                continue
            relation = _relation(group, subscribe, source, source.publish)
            if relation:
                found.append((source.publish.first, source.clients, relation == "own"))
        return found

    @property
    def subscribers(self) -> int:
        return sum(group.clients for group in self.groups if group.subscribe)

    def receivers(self, publisher: int) -> int:
        """How many subscriptions a message of this publisher is for."""
        total = 0
        for group in self.groups:
            if group.subscribe is None or group.responder:
                continue
            for first, number, own in group.subscribe.spans:
                if first <= publisher < first + number:
                    single = own or group.subscribe.one_owner
                    total += 1 if single else group.subscribe.share_groups or group.clients
        return total

    def fan(self) -> float:
        """Deliveries per message, on average over the publishers."""
        if not self.publishers:
            return 0.0
        sample = range(0, self.publishers, max(1, self.publishers // 200))
        return sum(self.receivers(publisher) for publisher in sample) / len(sample)


def _check_topic(topic: str) -> None:
    """A pattern to publish to. Raises UsageError."""
    if not topic or "+" in topic or "#" in topic:
        raise UsageError(f"topic {topic!r}: one publishes to a topic, without the wildcards + and # [MQTT-3.3.2-2]")
    for name in re.findall(r"\{([^{}]*)\}", topic):
        if not re.fullmatch(PLACEHOLDERS, name):
            raise UsageError(f"topic {topic!r}: unknown placeholder {{{name}}}; known are {{i}} {{publisher}} {{random}} {{n}} {{run}}")


def _relation(group: Group, subscribe: Subscribing, source: Group, publish: Publishing) -> str:
    """`all`: every client expects every publisher of `source`; `own`: its namesake alone; empty: nothing."""
    own_filter = next(subscribe.filters_of(0))
    if not matches(own_filter, publish.example(0)):
        later = source.clients > 1 and matches(own_filter, publish.example(1))
        if later:
            raise UsageError(f"group {group.name!r}: its filter takes some of the topics of {source.name!r} and not others; use two groups")
        return ""
    if source.clients == 1 and ("{i}" not in subscribe.filter or group.clients == 1):
        return "all"
    if source.clients > 1 and matches(own_filter, publish.example(1)):
        return "all"
    if "{i}" not in subscribe.filter or source.clients != group.clients:
        raise UsageError(f"group {group.name!r}: its filter takes some of the topics of {source.name!r} and not others; use two groups")
    return "own"
