"""`$SYS`: the broker's figures as messages, with mosquitto's names and more. Never logged, never stored.

Every `sys_interval_s` the values that changed go to whoever subscribes to them, and a new subscription gets all present
values as if they were retained. Delivery is by QoS 0; a client whose link is full misses an update.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from lmq_store.api.model import Message
from mqtt_proxy.connection import CONNECTED
from mqtt_proxy.observe.load_average import SPANS_MIN, LoadAverage
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.topics import rules

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.observe.figures import Figures

SENDS_PER_TICK = 2_000
"""With many subscribers an update is spread over several ticks."""
PREFIX = "$SYS/broker/"
VERSION = b"$SYS/broker/version"
"""Looked up when somebody asks: the look-up takes a tenth of the time to start."""


def begins_in_sys(topic_filter: bytes) -> bool:
    """Whether a filter can match topics here: wildcards at the front don't [MQTT-4.7.2-1]."""
    return topic_filter == b"$SYS" or topic_filter.startswith(b"$SYS/")


class SysTopics:
    """Publishes the figures."""

    def __init__(self, broker: Broker, figures: Figures) -> None:
        self.broker = broker
        self.figures = figures
        self.values: dict[bytes, bytes] = {}
        """Topic → payload, as of the last update."""
        self._loads: dict[str, LoadAverage] = {}
        self._updated_ms = broker.now_ms
        self._next_ms = 0
        self._pending: deque[bytes] = deque()

    # --- updates ------------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Update when it is time; send on what is left of an update."""
        self.figures.step()
        interval_ms = self.broker.settings.sys_interval_s * 1000
        if interval_ms == 0:
            self.values.clear()
            self._pending.clear()
            return
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + interval_ms
            self.update(now_ms)
        sends = 0
        while self._pending and sends < SENDS_PER_TICK:
            sends += self._publish(self._pending.popleft())

    def update(self, now_ms: int) -> None:
        """Take the present values; those that changed are to be sent."""
        passed_s = (now_ms - self._updated_ms) / 1000
        self._updated_ms = now_ms
        for topic, value in self.collect(passed_s):
            name = (PREFIX + topic).encode()
            payload = str(value).encode()
            if self.values.get(name) != payload:
                self.values[name] = payload
                self._pending.append(name)

    def collect(self, passed_s: float) -> Iterator[tuple[str, object]]:
        """Each topic below `$SYS/broker/` with its value; docs/operations.md has the table."""
        figures = self.figures
        broker = self.broker
        yield "uptime", f"{figures.uptime_s()} seconds"
        clients = figures.clients()
        for name, count in clients.items():
            yield f"clients/{name}", count
        yield "clients/active", clients["connected"]
        yield "clients/inactive", clients["disconnected"]
        yield "connections/open", len(broker.connections)
        yield "connections/accepted", broker.admission.accepted
        yield "subscriptions/count", broker.routes.held
        yield "shared_subscriptions/count", len(broker.shared.holders)
        yield "queues/count", len(broker.routes.trie)
        yield "bytes/received", figures.turn.bytes_received
        yield "bytes/sent", figures.turn.bytes_sent
        yield "messages/received", figures.packets_received()
        yield "messages/sent", figures.packets_sent()
        yield "messages/inflight", figures.census.latest.in_flight
        yield "publish/messages/received", broker.inbound.received
        yield "publish/messages/sent", broker.deliverer.sent
        yield "publish/bytes/received", broker.inbound.payload_bytes
        yield "publish/bytes/sent", broker.deliverer.payload_bytes
        drops = figures.drops()
        yield "publish/messages/dropped", sum(drops.values())
        for name, count in drops.items():
            yield f"publish/dropped/{name}", count
        retained, retained_bytes = figures.retained()
        yield "retained messages/count", retained
        yield "retained messages/bytes", retained_bytes
        for name, count in figures.census.latest.pauses.items():
            yield f"sessions/{name}", count
        for name, count in broker.limit_log.hits.items():
            yield f"limits/{name}", count
        yield from self._store()
        memory, most = figures.memory_bytes()
        yield "heap/current", memory
        yield "heap/maximum", most
        yield from self._load(passed_s, sum(drops.values()))

    def _store(self) -> Iterator[tuple[str, object]]:
        store = self.figures.store()
        names = {
            "log_bytes": "store/messages/bytes",
            "segments": "store/segments",
            "unsynced_bytes": "store/unsynced/bytes",
            "index_lag_bytes": "store/index/lag",
            "free_bytes": "store/free/bytes",
            "syncs": "store/syncs/count",
        }
        for name, topic in names.items():
            if name in store:
                yield topic, store[name]
        if store.get("syncs"):
            yield "store/syncs/mean", f"{store['sync_us'] / store['syncs'] / 1000:.3f}"

    def _load(self, passed_s: float, dropped: int) -> Iterator[tuple[str, object]]:
        broker = self.broker
        counters = {
            "connections": broker.connecting.connects,
            "sockets": broker.admission.accepted,
            "bytes/received": self.figures.turn.bytes_received,
            "bytes/sent": self.figures.turn.bytes_sent,
            "messages/received": self.figures.packets_received(),
            "messages/sent": self.figures.packets_sent(),
            "publish/received": broker.inbound.received,
            "publish/sent": broker.deliverer.sent,
            "publish/dropped": dropped,
        }
        for name, counter in counters.items():
            load = self._loads.setdefault(name, LoadAverage())
            load.update(counter, passed_s)
            for span, average in zip(SPANS_MIN, load.per_minute, strict=True):
                yield f"load/{name}/{span}min", f"{average:.2f}"

    # --- delivery -----------------------------------------------------------------------------------------------------------

    def _publish(self, topic: bytes) -> int:
        """One value to all who subscribe to it, once to each session; how many that were."""
        readers: dict[Session, list[Reader]] = {}
        for queue in self.broker.routes.trie.match(topic):
            for reader in queue.readers:
                if reader.session is not None:
                    readers.setdefault(reader.session, []).append(reader)
        message = Message(topic, self.values[topic])
        for session, wanting in readers.items():
            self._send(session, message, wanting, retain=False)
        return len(readers)

    def subscribed(self, session: Session, reader: Reader) -> None:
        """A new subscription gets the present values, as if they were retained."""
        if self.values:
            self.values.setdefault(VERSION, f"lmq {_version()}".encode())
        for topic, payload in self.values.items():
            if rules.matches(reader.topic_filter, topic):
                self._send(session, Message(topic, payload), [reader], retain=True)

    def _send(self, session: Session, message: Message, readers: list[Reader], retain: bool) -> None:
        conn = session.connection
        deliverer = self.broker.deliverer
        if conn is None or conn.phase != CONNECTED or conn.congested():
            return
        if conn.gate is not None and not conn.gate.knows(session, message.topic):
            return  # known at the next update
        wanting = [reader for reader in readers if not reader.replay and deliverer.wants(session, reader, message)]
        if wanting:
            deliverer.send(session, conn, message, 0, retain, wanting)


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lmq-proxy")
    except PackageNotFoundError:
        return "unknown"
