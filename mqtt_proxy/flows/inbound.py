"""What clients send: PUBLISH to the turn's batch, acknowledgements to the in-flight windows, the rest to its flow. Compiled.

A PUBLISH costs a look-up of its topic's route and an entry in the batch; the acknowledgement is written beside it and
leaves when the batch is durable (law two).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cython

from lmq_store.api.model import Message, Route
from mqtt_proxy.connection import CLOSING, CONNECTED, Connection
from mqtt_proxy.session.session import Session

if not cython.compiled:
    from mqtt_proxy.packets.encoder import append_ack

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

# Packet types as they stand in the decoder's acknowledgement ints.
PUBACK = 4
PUBREC = 5
PUBREL = 6
PUBCOMP = 7
PINGREQ = 12

PINGRESP = b"\xd0\x00"


class Inbound:
    """Takes decoded packets of one connection at a time and collects the turn's batch."""

    __slots__ = (
        "acknowledgements",
        "answered",
        "batch",
        "broker",
        "guarded",
        "packets",
        "payload_bytes",
        "promises",
        "received",
        "routes",
    )

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.routes: dict[bytes, Route] = {}
        self.batch: list[Message] = []
        self.promises = broker.promises
        self.acknowledgements = broker.acknowledgements
        self.guarded = False
        """True where every PUBLISH has to be looked at (the disk is full, the broker stops)."""
        self.received = 0
        """PUBLISH packets taken."""
        self.payload_bytes = 0
        self.packets = 0
        self.answered = 0

    def take(self, conn: Connection, items: list[Any]) -> None:
        """Act on the packets in order; stops where the connection is closed."""
        self.packets += len(items)
        for item in items:
            if conn.phase == CLOSING:
                return
            if type(item) is Message:
                if conn.phase == CONNECTED:
                    self.publish(conn, item)
                else:
                    self.broker.handle(conn, item)
            elif type(item) is int and conn.phase == CONNECTED:
                self.acknowledgement(conn, item >> 16, item & 65535)
            else:
                self.broker.handle(conn, item)
        if conn.rate is not None:
            self.broker.pace(conn, items)

    def publish(self, conn: Connection, message: Message) -> None:
        """Check, route and collect one PUBLISH (MQTT 5.0 §3.3.4)."""
        session = conn.session
        assert session is not None  # the phase is CONNECTED
        qos = message.qos
        if message.topic_alias and not self.broker.resolve_alias(conn, message):
            return
        if qos:
            if qos == 2:
                received = session.received
                if received is None:
                    received = session.received = set()
                if message.packet_id in received:  # [MQTT-4.3.3-10]: the same exchange again, not a new message
                    self.answer(conn, PUBREC, message.packet_id, 0)
                    return
            conn.unacked_in += 1
            if conn.unacked_in > conn.receive_max_in and not self.broker.too_many_in(conn):
                return
        route = self.routes.get(message.topic)
        if route is None:
            route = self.broker.route(message.topic)
            if route is None:
                self.broker.publish_special(conn, message)
                return
        if self.guarded or conn.rights is not None:
            if not self.broker.admit(conn, message):
                return
        if message.retain and not self.broker.may_retain(conn, message):
            return
        if qos == 2:
            received = session.received
            assert received is not None
            received.add(message.packet_id)
            if session.persistent:
                message.session_id = session.id
        message.route = route
        message.topic = route.topic  # one object for all messages of a topic
        message.client_id = conn.client_id
        message.partition = conn.partition
        if message.expiry_s >= 0:
            message.expires_ms = self.broker.clock() + message.expiry_s * 1000  # the turn's time may be a tick old
        self.batch.append(message)
        self.payload_bytes += len(message.payload)
        if qos == 1:
            self.answer(conn, PUBACK, message.packet_id, 1)
        elif qos == 2:
            self.answer(conn, PUBREC, message.packet_id, 0)

    def answer(self, conn: Connection, packet_type: int, packet_id: int, ends: int) -> None:
        """Write an acknowledgement that leaves with this turn's sync; `ends` exchanges end with it."""
        append_ack(self.promises.hold(conn), packet_type, packet_id)
        self.answered += 1
        conn.after_count += ends

    def acknowledgement(self, conn: Connection, packet_type: int, packet_id: int) -> None:
        """PUBACK, PUBREC, PUBREL, PUBCOMP without a reason, and PINGREQ."""
        session = conn.session
        assert session is not None  # the phase is CONNECTED
        if packet_type == PUBACK:
            self.acknowledgements.acknowledged(session, conn, packet_id)
        elif packet_type == PUBREL:
            self.release(conn, session, packet_id)
        elif packet_type == PUBREC:
            self.acknowledgements.received(session, conn, packet_id)
        elif packet_type == PUBCOMP:
            self.acknowledgements.completed(session, conn, packet_id)
        elif packet_type == PINGREQ:
            if conn.held or conn.after_sync is not None:  # behind the acknowledgements that it came behind
                self.broker.after_sync(conn, PINGRESP)
            else:
                conn.send(PINGRESP)  # [MQTT-3.12.4-1]
        else:
            self.broker.handle(conn, packet_type << 16 | packet_id)

    def release(self, conn: Connection, session: Session, packet_id: int) -> None:
        """PUBREL: the packet id is free once that is durable, and then PUBCOMP goes [MQTT-4.3.3-11]."""
        received = session.received
        if received is None or packet_id not in received:
            self.broker.unknown_release(conn, packet_id)
            return
        received.discard(packet_id)
        if session.persistent:
            self.broker.released(session, packet_id)
        self.answer(conn, PUBCOMP, packet_id, 1)
