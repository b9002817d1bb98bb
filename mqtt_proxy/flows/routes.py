"""Which light queues a topic goes to: the filter registry in memory, the routes it implies, and what nobody holds. Compiled.

A filter is registered (name ↔ id durable in the log) before a record uses its id; an id is never used twice. When the last
holder is gone the queue stays for `queue_grace_s`, then it is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmq_store.api import rows
from lmq_store.api.model import LightQueue, Message, Route
from lmq_store.api.ports import Table
from mqtt_proxy.topics import rules
from mqtt_proxy.topics.trie import FilterTrie

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

# What of a turn's batch is routed again (`Routes.anew`).
NONE = 0
RETAINED = 1
ALL = 2

PARENT_QUEUES = 1 << 40
"""Parent topic queues have the ids from here on: + parent id × 256 + partition."""
ROUTES_BYTES = 256 << 20
"""Memory for the routes of known topics, a million short ones; beyond it all are forgotten and found again."""
ROUTE_BYTES = 210
"""What a remembered route takes beside its topic."""
ROUTE_TOPIC_BYTES = 512
"""The route of a longer topic is found again each time."""
FREE_STEP = 5_000
"""Forgotten routes whose memory is given back in one tick: about a millisecond. Each route found anew gives back two more, so
that they never pile up."""
ID_BLOCK = 4096
"""Ids reserved by one COUNTER row: after a restart counting goes on behind the block, so none comes twice."""
EVENTS = b"$events"
EVENTS_PARENT = b"lmq-events"
"""The parent topic of session events."""
NO_LIGHTS: list[LightQueue] = []
"""The light queues of a topic that no filter matches: never changed."""
SHARED_PARENT = b"mqtt"
"""The parent topic of all first levels beyond `parent_topics_max`."""


class IdBlocks:
    """Ids that never repeat, also not after a crash: a block is reserved in the log before its first id is used."""

    def __init__(self, broker: Broker, name: bytes) -> None:
        self.broker = broker
        self.name = name
        self.next = 1
        self.end = 1

    def load(self) -> None:
        row = self.broker.meta.get(Table.COUNTER, self.name)
        self.next = self.end = rows.u64_of(row) if row is not None else 1

    def take(self) -> int:
        if self.next >= self.end:
            self.end = self.next + ID_BLOCK
            self.broker.put(Table.COUNTER, self.name, rows.u64_row(self.end))
        self.next += 1
        return self.next - 1


class Routes:
    """The registered filters and the routes of known topics."""

    __slots__ = (
        "anew", "broker", "forgotten", "held", "name_bytes", "parent_queues", "parents", "queue_ids", "remembered_bytes", "trie", "unheld",
    )  # fmt: skip

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.trie = FilterTrie()
        self.parents: dict[bytes, tuple[int, int]] = {}
        """Parent topic → (parent id, partitions)."""
        self.parent_queues: dict[bytes, tuple[int, list[LightQueue]]] = {}
        """Parent topic → (parent id, the partitions' queues): one list for all its routes."""
        self.name_bytes = 0
        """Length of all registered filters together."""
        self.remembered_bytes = 0
        self.forgotten: list[dict[bytes, Route]] = []
        self.queue_ids = IdBlocks(broker, b"queue")
        self.held = 0
        """Subscriptions, of whoever is connected or not."""
        self.anew = NONE
        """Which messages of this turn's batch are routed again at its end: they are stored behind the place where a new
        reader's retained messages or history end, so its queue must have them."""
        self.unheld: dict[int, tuple[int, LightQueue]] = {}
        """Queue id → (when its grace is over, the queue), in the order of their last release."""

    def load(self) -> None:
        """Rebuild the registry from the store; filters of clean sessions that died with the last process have no holder."""
        self.queue_ids.load()
        meta = self.broker.meta
        for name, row in meta.scan(Table.PARENT, b""):
            self.parents[name] = (rows.u64_of(row) >> 16, rows.u64_of(row) & 0xFFFF)
        queues: list[LightQueue] = []
        open_queue = self.broker.store.open_queue
        for topic_filter, row in meta.scan(Table.FILTER, b""):
            queue_id, since = rows.filter_row_of(row)
            queue: LightQueue = open_queue(queue_id, topic_filter)
            queue.since = since
            self.trie.insert(topic_filter, queue)
            self.name_bytes += len(topic_filter)
            self.broker.hints.watch(queue)
            queues.append(queue)
        for key, _ in meta.scan(Table.SUBSCRIPTION, b""):
            group = b""
            topic_filter = rows.filter_of(key)
            if topic_filter.startswith(b"$"):
                group, topic_filter = rules.parse_share(topic_filter)
            held: LightQueue | None = self.trie.get(topic_filter)
            if held is not None:
                held.holders += 1
                self.held += 1
                if group:
                    self.broker.shared.held(group, held)
        due_ms = self.broker.now_ms + self.broker.settings.queue_grace_s * 1000
        for queue in queues:
            if queue.holders == 0:
                self.unheld[queue.id] = (due_ms, queue)

    # --- filters --------------------------------------------------------------------------------------------------------

    def hold(self, topic_filter: bytes) -> LightQueue:
        """The filter's light queue, registered now if it wasn't; one holder more."""
        queue: LightQueue | None = self.trie.get(topic_filter)
        if queue is None:
            queue_id = self.queue_ids.take()
            since = self.broker.store.end()
            self.broker.put(Table.FILTER, topic_filter, rows.filter_row(queue_id, since))
            queue = self.broker.store.open_queue(queue_id, topic_filter)
            queue.since = since
            queue.next_offset = 0
            self.trie.insert(topic_filter, queue)
            self.name_bytes += len(topic_filter)
            self.broker.hints.watch(queue)
            self.forget(topic_filter)
        if queue.holders <= 0:
            self.unheld.pop(queue.id, None)
        queue.holders += 1
        self.held += 1
        return queue

    def route_anew(self, batch: list[Message]) -> None:
        """Messages that were routed before a filter was registered in the same turn reach its queue too (`anew`)."""
        anew, self.anew = self.anew, NONE
        for message in batch:
            if message.retain or anew == ALL:
                message.route = self.find(message.topic)

    def exceeded_by(self, topic_filter: bytes) -> str:
        """The limit that one more filter would exceed, by its name; "" where it exceeds none."""
        limits = self.broker.limits
        if self.trie.get(topic_filter) is not None:
            return ""
        if len(self.trie) >= limits.max_queues:
            return "max_queues"
        return "max_queue_name_bytes" if self.name_bytes + len(topic_filter) > limits.max_queue_name_bytes else ""

    def release(self, queue: LightQueue) -> None:
        """One holder less; the last one starts the grace time."""
        queue.holders -= 1
        self.held -= 1
        if queue.holders <= 0:
            self.unheld[queue.id] = (self.broker.now_ms + self.broker.settings.queue_grace_s * 1000, queue)

    def collect(self, now_ms: int, most: int = 500) -> None:
        """Drop queues whose grace is over, a bounded number each tick."""
        self.free(FREE_STEP)
        over: list[LightQueue] = []
        for due_ms, queue in self.unheld.values():
            if due_ms > now_ms or len(over) == most:
                break
            over.append(queue)
        for queue in over:
            del self.unheld[queue.id]
            self.trie.remove(queue.name)
            self.name_bytes -= len(queue.name)
            self.broker.hints.unwatch(queue)
            self.forget(queue.name)
            self.broker.delete(Table.FILTER, queue.name)
            self.broker.store.drop_queue(queue)

    def forget(self, topic_filter: bytes) -> None:
        """The filter came or went: routes of topics that it matches are found anew."""
        if b"+" in topic_filter or b"#" in topic_filter:
            self.forget_all()
        elif self.broker.inbound.routes.pop(topic_filter, None) is not None:
            self.remembered_bytes -= ROUTE_BYTES + len(topic_filter)

    def forget_all(self) -> None:
        """Begin anew; what was remembered is freed in steps, since a million routes at once would take some 100 ms."""
        inbound = self.broker.inbound
        self.remembered_bytes = 0
        if len(inbound.routes) > FREE_STEP:
            self.forgotten.append(inbound.routes)
            inbound.routes = {}
        else:
            inbound.routes.clear()

    def free(self, most: int) -> None:
        """Give back the memory of so many forgotten routes."""
        while self.forgotten and most > 0:
            routes = self.forgotten[len(self.forgotten) - 1]
            if routes:
                routes.popitem()
                most -= 1
            else:
                self.forgotten.pop()

    # --- topics ---------------------------------------------------------------------------------------------------------

    def route(self, topic: bytes) -> Route | None:
        """Work out where a topic's messages go, and remember it. None: the topic needs a look (`$…`, too long, too deep)."""
        limits = self.broker.limits
        if topic[:1] == b"$" or len(topic) > limits.max_topic_bytes or topic.count(b"/") >= limits.max_topic_levels:
            return None
        return self.remember(topic) if len(topic) <= ROUTE_TOPIC_BYTES else self.find(topic)

    def remember(self, topic: bytes) -> Route:
        inbound = self.broker.inbound
        if self.remembered_bytes >= ROUTES_BYTES:
            self.forget_all()
        if self.forgotten:
            self.free(2)
        route = self.find(topic)
        inbound.routes[topic] = route
        self.remembered_bytes += ROUTE_BYTES + len(topic)
        return route

    def find(self, topic: bytes) -> Route:
        """The route of a topic, whatever it is. What is remembered, clients may publish to: not the broker's own topics."""
        level = topic.partition(b"/")[0]
        parent = self.parent_queues.get(level)
        if parent is None:
            parent = self.parent(EVENTS_PARENT if level == EVENTS else level)
        return Route(topic, parent[0], parent[1], self.trie.match(topic) or NO_LIGHTS)

    def parent(self, level: bytes) -> tuple[int, list[LightQueue]]:
        """The parent topic of a first level: assigned at first use and recorded for ever, up to `parent_topics_max`."""
        queues = self.parent_queues.get(level)
        if queues is not None:
            return queues
        known = self.parents.get(level)
        if known is None:
            settings = self.broker.settings
            if len(self.parents) >= settings.parent_topics_max and level != SHARED_PARENT:
                return self.parent(SHARED_PARENT)
            known = (len(self.parents) + 1, settings.partitions)
            self.parents[level] = known
            self.broker.put(Table.PARENT, level, rows.u64_row(known[0] << 16 | known[1]))
        parent_id, partitions = known
        first = PARENT_QUEUES + parent_id * 256
        open_queue = self.broker.store.open_queue
        queues = (parent_id, [open_queue(first + partition, level) for partition in range(partitions)])
        self.parent_queues[level] = queues
        return queues
