"""PUBLISH, apart from the hot path (flows/inbound.py): rights, aliases, `$` topics, limits, and messages of the broker's own."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from lmq_store.api.errors import StoreError, StorePoisoned
from lmq_store.api.model import Message
from mqtt_proxy.connection import Connection
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.packets.types import V5
from mqtt_proxy.policy.acl import reserved
from mqtt_proxy.policy.rates import TokenBucket

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

P2P = b"$p2p/"
OWN_WAITING_MAX = 10_000
"""Messages of the broker's own (dead letters, events) that wait in memory while the disk is full; more are dropped and counted."""


class PublishFlow:
    """What a PUBLISH needs beyond a known topic and a place in the batch."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.refused_qos0 = 0
        self.dropped_own = 0
        self.own_waiting: list[Message] = []

    def publish(self, message: Message) -> None:
        """Add a message of the broker's own (a will, an event) to this turn's batch; while the disk is full it waits.

        It must not be what makes the store refuse the batch: that takes the others of the turn with it.
        """
        broker = self.broker
        if broker.store.disk_full:
            if len(self.own_waiting) < OWN_WAITING_MAX:
                self.own_waiting.append(message)
            else:
                self.dropped_own += 1
            return
        if message.topic.startswith(P2P):
            self.open_p2p(message.topic)
        message.route = broker.inbound.routes.get(message.topic) or broker.routes.find(message.topic)
        if message.route.parents:
            message.partition = zlib.crc32(message.client_id) % len(message.route.parents)  # behind what its client published
        if message.retain:
            broker.retained_quota.admit_own(message)
        if message.expiry_s >= 0:
            message.expires_ms = broker.now_ms + message.expiry_s * 1000
        broker.inbound.batch.append(message)

    def publish_waiting(self) -> None:
        """The disk has room again: what waited goes out."""
        waiting, self.own_waiting = self.own_waiting, []
        for message in waiting:
            self.publish(message)

    # --- checks -----------------------------------------------------------------------------------------------------------

    def admit(self, conn: Connection, message: Message) -> bool:
        """Rights and room on the disk. False: answered (or dropped) here."""
        if self.broker.inbound.guarded and self.broker.store.disk_full:
            self.refuse(conn, message, ReasonCode.QUOTA_EXCEEDED, "no room on the server's disk")
            return False
        if conn.rights is not None and not conn.rights.may_publish(message.topic):
            self.refuse(conn, message, ReasonCode.NOT_AUTHORIZED, "not authorized")
            return False
        return conn.gate is None or bool(conn.gate.admit(message))

    def refuse(self, conn: Connection, message: Message, reason: int, why: str) -> None:
        """Tell an MQTT 5 client why; a 3.x client gets a normal acknowledgement where rights are missing (its only way,
        [MQTT-3.3.5-2]) and is closed where the message could be taken later."""
        if message.qos == 0:
            self.refused_qos0 += 1
            return
        inbound = self.broker.inbound
        kind = 4 if message.qos == 1 else 5
        if conn.version == V5:
            conn.unacked_in -= 1
            self.broker.after_sync(conn, encoder.ack_reason(kind, message.packet_id, reason, V5))
        elif reason == ReasonCode.NOT_AUTHORIZED:
            session = conn.session
            if message.qos == 2 and session is not None and session.received is not None:
                session.received.add(message.packet_id)
            inbound.answer(conn, kind, message.packet_id, message.qos == 1)
        else:
            self.broker.disconnecting.refuse(conn, reason, why)

    def not_stored(self, batch: list[Message], error: StoreError) -> None:
        """The append refused the batch: nothing of it is stored, so nobody of this turn gets its acknowledgements."""
        if isinstance(error, StorePoisoned):
            self.broker.store_failed(error)
        self.broker.inbound.guarded = True
        self.broker.retained_quota.recount()
        gated, self.broker.promises.gated = self.broker.promises.gated, []
        for message in batch:
            self.refused_qos0 += message.qos == 0
            session = self.broker.sessions.get(message.client_id) if message.qos == 2 else None
            if session is not None and session.received is not None:
                session.received.discard(message.packet_id)  # else its PUBLISH, sent again, would pass for known [MQTT-4.3.3-10]
        for conn in gated:
            conn.after_sync = None
            conn.after_count = 0
            self.broker.disconnecting.refuse(conn, ReasonCode.QUOTA_EXCEEDED, f"not stored: {error}")

    def resolve_alias(self, conn: Connection, message: Message) -> bool:
        """Set or look up a topic alias (MQTT 5.0 §3.3.2.3.4)."""
        alias = message.topic_alias
        if alias > conn.alias_max_in:  # [MQTT-3.3.2-9]
            self.broker.disconnecting.refuse(conn, ReasonCode.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above {conn.alias_max_in}")
            return False
        if conn.aliases_in is None:
            conn.aliases_in = {}
        if message.topic:
            conn.aliases_in[alias] = message.topic
            return True
        topic = conn.aliases_in.get(alias)
        if topic is None:  # [MQTT-3.3.4-... §3.3.4]: an alias never set is a protocol error
            self.broker.disconnecting.refuse(conn, ReasonCode.PROTOCOL_ERROR, f"topic alias {alias} was never set")
            return False
        message.topic = topic
        return True

    def too_many_in(self, conn: Connection) -> bool:
        """More unacknowledged than announced: MQTT 5 is disconnected with 0x93, a 3.x client is paced by not reading."""
        if conn.version == V5:  # [MQTT-3.3.4-9]
            self.broker.limit_log.hit("inflight_in_max", conn.client_id, f"closed: more than {conn.receive_max_in} messages in flight")
            self.broker.disconnecting.refuse(conn, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, f"more than {conn.receive_max_in} in flight")
            return False
        if not conn.waiting_window:
            conn.waiting_window = True
            conn.pause_reading()
        return True

    # --- topics that need a look --------------------------------------------------------------------------------------------

    def special(self, conn: Connection, message: Message) -> None:
        """A topic without a route: `$…`, too long or too deep."""
        topic = message.topic
        over = self.broker.limits.exceeded_by_topic(topic)
        if over:
            self.broker.limit_log.hit(over, conn.client_id, "a message is refused")
            self.refuse_topic(conn, message, "topic is over the limit of max_topic_bytes or max_topic_levels")
        elif topic.startswith(P2P):
            if len(topic) == len(P2P):
                self.refuse_topic(conn, message, "$p2p/ needs a client identifier")
                return
            if self.admit(conn, message):  # before a queue is made for it
                self.open_p2p(topic)
                self._take(conn, message)
        elif reserved(topic):
            self.refuse(conn, message, ReasonCode.NOT_AUTHORIZED, "clients may not publish to this topic")
        else:
            self._take(conn, message)

    def _take(self, conn: Connection, message: Message) -> None:
        """The topic is fine after all: remember its route and go through the ordinary door."""
        self.broker.routes.remember(message.topic)
        if message.qos:
            conn.unacked_in -= 1  # counted again there
        message.topic_alias = 0
        self.broker.inbound.publish(conn, message)
        if message.topic.startswith(P2P):  # looked at each time: the client's session may begin or end
            self.broker.routes.forget(message.topic)

    def refuse_topic(self, conn: Connection, message: Message, why: str) -> None:
        if conn.version == V5 and message.qos:
            self.refuse(conn, message, ReasonCode.TOPIC_NAME_INVALID, why)
        else:
            self.broker.disconnecting.refuse(conn, ReasonCode.TOPIC_NAME_INVALID, why)

    def open_p2p(self, topic: bytes) -> None:
        """`$p2p/<client id>`: give the client's session its own queue when a first message comes for it."""
        self.broker.subscribing.open_p2p(topic[len(P2P) :])

    # --- rates --------------------------------------------------------------------------------------------------------------

    def set_rate(self, conn: Connection) -> None:
        limits = self.broker.limits
        if limits.message_rate_per_client:
            burst = limits.message_burst_per_client or limits.message_rate_per_client
            conn.rate = TokenBucket(limits.message_rate_per_client, burst, self.broker.now_ms)
        else:
            conn.rate = None

    def pace(self, conn: Connection, items: list[Any]) -> None:
        """A client over its message rate is not read from for a while; nothing is dropped."""
        count = sum(type(item) is Message for item in items)
        if count:
            wait_ms = conn.rate.take(count, self.broker.now_ms)
            if wait_ms > 0:
                rate = self.broker.limits.message_rate_per_client
                said = f"not read for {wait_ms} ms: more than {rate} messages/s"
                self.broker.limit_log.hit("message_rate_per_client", conn.client_id, said)
                self.broker.pause_for(conn, wait_ms)
