"""How many retained messages there are, and how large: `max_retained`, `max_retained_bytes`; those that expired are removed.

The rows are counted in small steps after the start, and again every RECOUNT_S, which also removes what has expired
(MQTT 5.0 §3.3.1.3): the server listens at once, and until the first walk is through, what it has not seen yet is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmq_store.api.model import Message
from lmq_store.api.ports import Table
from mqtt_proxy.connection import Connection
from mqtt_proxy.packets.reason_codes import ReasonCode

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

STEP_ROWS = 500
"""Rows of one tick, about two milliseconds."""
RECOUNT_S = 600


class RetainedQuota:
    """Counts retained messages by topic, and says whether one more may be kept.

    A row's size is that of topic, payload and properties; a row found in the table is taken as large as its record.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.count = 0
        self.bytes = 0
        self.expired = 0
        self.complete = False
        """The first walk has seen every row."""
        self._walk_from: bytes | None = b""
        """The walk goes on at this topic; None between walks."""
        self._walk_count = 0
        self._walk_bytes = 0
        self._next_walk_ms = 0
        self._batch: list[Message] | None = None
        self._pending: dict[bytes, int] = {}
        """Topic → size of what this turn's batch will retain (0: removes)."""

    def admit(self, conn: Connection, message: Message) -> bool:
        """A client's PUBLISH with the retain flag. False: refused and answered here.

        QoS 0 beyond the limit is delivered but not kept, which the specification leaves open [MQTT-3.3.1-7].
        """
        limit = self._take(message)
        if not limit:
            return True
        said = f"retained message refused: {self.count} messages of {self.bytes} bytes are retained"
        self.broker.limit_log.hit(limit, conn.client_id, said)
        if message.qos == 0:
            message.retain = False
            return True
        self.broker.publishing.refuse(conn, message, ReasonCode.QUOTA_EXCEEDED, f"{limit} reached")
        return False

    def admit_own(self, message: Message) -> None:
        """A will beyond the limit is published without being kept."""
        limit = self._take(message)
        if limit:
            self.broker.limit_log.hit(limit, message.client_id, "will not retained")
            message.retain = False

    def _take(self, message: Message) -> str:
        """Count the message; or the name of the limit that it would exceed."""
        inbound = self.broker.inbound
        if self._batch is not inbound.batch:
            self._batch = inbound.batch
            self._pending = {}
        topic = message.topic
        size = len(topic) + len(message.payload) + len(message.properties) if message.payload else 0
        before = self._pending.get(topic)
        if before is None:
            row = self.broker.meta.get(Table.RETAINED, topic)
            before = 0 if row is None else len(row)
        limits = self.broker.limits
        if size:
            if not before and self.count >= limits.max_retained:
                return "max_retained"
            if size > before and limits.max_retained_bytes and self.bytes + size - before > limits.max_retained_bytes:
                return "max_retained_bytes"
        self._pending[topic] = size
        self._add(topic, bool(size) - bool(before), size - before)
        return ""

    def _add(self, topic: bytes, count: int, size: int) -> None:
        self.count += count
        self.bytes += size
        if self._walk_from is not None and topic < self._walk_from:  # the walk has passed it
            self._walk_count += count
            self._walk_bytes += size

    def surely_empty(self) -> bool:
        """True where nothing is retained, so that a new subscription need not look."""
        return self.complete and self.count == 0 and self._walk_from is None

    def recount(self) -> None:
        """What was counted may not have been stored (the disk was full): count anew."""
        self._walk_from = b""
        self._walk_count = self._walk_bytes = 0

    def step(self, now_ms: int) -> None:
        """A bit of a walk, every tick while one is under way."""
        if self._walk_from is None:
            if now_ms >= self._next_walk_ms:
                self.recount()
            return
        broker = self.broker
        seen = 0
        for topic, row in broker.meta.scan(Table.RETAINED, b"", self._walk_from):
            if seen == STEP_ROWS:
                self._walk_from = topic
                if not self.complete:
                    self.count, self.bytes = self._walk_count, self._walk_bytes
                return
            seen += 1
            expires_ms = broker.store.retained_message(row).expires_ms
            if expires_ms and expires_ms <= now_ms:
                self.expired += 1
                broker.delete(Table.RETAINED, topic)
                continue
            self._walk_count += 1
            self._walk_bytes += len(row)
        self._walk_from = None
        self._next_walk_ms = now_ms + RECOUNT_S * 1000
        self.complete = True
        self.count, self.bytes = self._walk_count, self._walk_bytes
