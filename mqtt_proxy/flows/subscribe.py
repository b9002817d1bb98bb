"""SUBSCRIBE and UNSUBSCRIBE: a reader per (session, filter), its start taken before SUBACK (MQTT 5.0 §3.8 to §3.11)."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from lmq_store.api import rows
from lmq_store.api.model import Message
from lmq_store.api.ports import Table
from lmq_store.api.rows import SubscriptionRow
from mqtt_proxy.connection import CLOSING, HELD, Connection
from mqtt_proxy.flows import dispatch, routes
from mqtt_proxy.observe.sys_topics import begins_in_sys
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.reason_codes import ProtocolError, ReasonCode
from mqtt_proxy.packets.types import V5, Subscribe, SubscriptionRequest, Unsubscribe
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.topics import rules

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

NEVER_RETAINED = 2
IF_NEW = 1
"""Retain Handling: 0 always, 1 only where the subscription is new, 2 never (MQTT 5.0 §3.8.3.1)."""


STEP_S = 0.001
STEP_FILTERS = 64
"""A SUBSCRIBE or UNSUBSCRIBE is worked on for so long, and at least so many filters, before others have their turn."""


class Request:
    """A SUBSCRIBE or UNSUBSCRIBE, as far as it has come: one reason for each filter that is done."""

    __slots__ = ("conn", "packet", "reasons", "retained")

    def __init__(self, conn: Connection, packet: Subscribe | Unsubscribe) -> None:
        self.conn = conn
        self.packet = packet
        self.reasons: list[int] = []
        self.retained: list[tuple[Reader, int]] = []
        """Readers that are due what is retained, as of which position."""


class SubscribeFlow:
    """Makes and ends subscriptions."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.under_way: deque[Request] = deque()

    def subscribe(self, conn: Connection, packet: Subscribe) -> None:
        """Each filter gets its reader or its reason [MQTT-3.8.4-5]; SUBACK leaves when what it promises is durable."""
        if conn.gate is not None and not conn.gate.knows_filters(packet):
            return  # held: it comes again when the answers are there
        self._begin(conn, packet)

    def _begin(self, conn: Connection, packet: Subscribe | Unsubscribe) -> None:
        """Most requests are done at once; a long one goes on in later turns, and what the client sends behind it waits."""
        self._count_filters(conn, len(packet.filters))
        request = Request(conn, packet)
        if not self._step(request):
            dispatch.hold(conn, [])
            self.under_way.append(request)

    def go_on(self) -> None:
        """The next step of the long request whose turn it is; one for each turn, so that nobody else waits for it."""
        request = self.under_way.popleft()
        if request.conn.phase != HELD:
            return  # the connection ended
        if self._step(request):
            dispatch.let_go(self.broker, request.conn)
        else:
            self.under_way.append(request)

    def _step(self, request: Request) -> bool:
        """Up to STEP_S of work. True when the request is done, and its answer on its way."""
        conn, packet, reasons = request.conn, request.packet, request.reasons
        until = monotonic() + STEP_S
        as_of = self.broker.store.end()  # the live delivery of new readers starts here
        while len(reasons) < len(packet.filters):
            if isinstance(packet, Subscribe):
                reasons.append(self._asked(request, packet, as_of))
            else:
                reasons.append(self._unsubscribe_one(conn, packet.filters[len(reasons)], len(reasons)))
            if conn.phase == CLOSING:
                return True
            if len(reasons) % STEP_FILTERS == 0 and monotonic() > until:
                return len(reasons) == len(packet.filters) and self._answer(request)
        return self._answer(request)

    def _asked(self, request: Request, packet: Subscribe, as_of: int) -> int:
        """The reason code for the next filter of a SUBSCRIBE."""
        at = len(request.reasons)
        if at >= self.broker.limits.max_filters_per_packet:
            return ReasonCode.QUOTA_EXCEEDED
        identifiers = packet.properties.subscription_identifiers
        session = request.conn.session
        assert session is not None  # the phase is CONNECTED or HELD
        retained: list[Reader] = []
        try:
            reason = self._subscribe_one(
                request.conn, session, packet.filters[at], identifiers[0] if identifiers else 0, packet, retained
            )  # fmt: skip
        except ProtocolError as error:
            return int(error.reason)
        if retained:
            self.broker.routes.anew = max(self.broker.routes.anew, routes.RETAINED)
        request.retained += [(reader, as_of) for reader in retained]
        return reason

    def _answer(self, request: Request) -> bool:
        conn, packet = request.conn, request.packet
        if isinstance(packet, Unsubscribe):
            self.broker.after_sync(conn, encoder.unsuback(conn.version, packet.packet_id, request.reasons))
            return True
        if conn.gate is not None:
            conn.gate.filters.clear()
        reasons = request.reasons
        if conn.version != V5:
            reasons = [reason if reason <= 2 else 0x80 for reason in reasons]
        self.broker.after_sync(conn, encoder.suback(conn.version, packet.packet_id, reasons))
        session = conn.session
        if session is not None:
            request.retained = [(reader, as_of) for reader, as_of in request.retained if self.broker.retained.owed(session, reader, as_of)]
        if request.retained:
            self.broker.when_durable(lambda: self._send_retained(conn, request.retained))
        return True

    def _count_filters(self, conn: Connection, count: int) -> None:
        most = self.broker.limits.max_filters_per_packet
        if count > most:
            self.broker.limit_log.hit("max_filters_per_packet", conn.client_id, f"only the first {most} of {count} filters are looked at")

    def _send_retained(self, conn: Connection, readers: list[tuple[Reader, int]]) -> None:
        session = conn.session
        if session is not None:
            sys_topics = self.broker.sys_topics
            for reader, as_of in readers:
                if sys_topics is not None and begins_in_sys(reader.topic_filter):
                    sys_topics.subscribed(session, reader)
                else:
                    self.broker.retained.begin(session, reader, as_of)

    def _subscribe_one(
        self, conn: Connection, session: Session, request: SubscriptionRequest, identifier: int, packet: Subscribe, retained: list[Reader]
    ) -> int:
        broker = self.broker
        topic_filter = request.filter
        replay = broker.replay.asked(conn, packet, topic_filter)
        if replay is not None:
            topic_filter = replay.topic_filter
        limits = broker.limits
        if rules.filter_fault(topic_filter) is not None:
            return ReasonCode.TOPIC_FILTER_INVALID
        over = limits.exceeded_by_topic(topic_filter)
        if over:
            broker.limit_log.hit(over, conn.client_id, "a topic filter is refused")
            return ReasonCode.TOPIC_FILTER_INVALID
        group, plain = rules.parse_share(topic_filter)
        if topic_filter.startswith(b"$p2p/"):
            return ReasonCode.NOT_AUTHORIZED
        if not broker.rights.may_subscribe(conn, topic_filter):
            return ReasonCode.NOT_AUTHORIZED
        known = session.subscriptions.get(topic_filter)
        if known is None and len(session.subscriptions) >= limits.max_subscriptions_per_client:
            broker.limit_log.hit("max_subscriptions_per_client", conn.client_id, f"refused: {len(session.subscriptions)} subscriptions")
            return ReasonCode.QUOTA_EXCEEDED
        over = broker.routes.exceeded_by(plain) if known is None else ""
        if over:
            registered = f"{len(broker.routes.trie)} filters of {broker.routes.name_bytes} bytes are registered"
            broker.limit_log.hit(over, conn.client_id, f"a subscription is refused: {registered}")
            return ReasonCode.QUOTA_EXCEEDED
        if group:
            return broker.shared.subscribe(conn, session, request, identifier, (group, plain))
        reader = known or self._open(session, topic_filter)
        reader.qos = request.qos
        reader.no_local = request.no_local
        reader.retain_as_published = request.retain_as_published
        reader.identifier = identifier
        reader.replay = replay is not None
        reader.receivable = broker.rights.receivable(conn, topic_filter)
        reader.settle()
        if replay is not None:
            broker.replay.start(session, reader, replay)
        if session.persistent:
            self._store(session, reader)
            if session.cursors is not None:  # SUBACK promises the history too
                broker.replay.save_walks(session)
        if replay is None and request.retain_handling != NEVER_RETAINED and (known is None or request.retain_handling != IF_NEW):
            retained.append(reader)
        return request.qos

    def _open(self, session: Session, topic_filter: bytes) -> Reader:
        """A new reader, at the end of its queue: nothing accepted from here on is missed."""
        queue = self.broker.routes.hold(topic_filter)
        reader = Reader(session, topic_filter, queue, 0)
        reader.next_offset = self.broker.store.max_offset(queue)
        session.subscriptions[queue.name] = reader
        session.readers.append(reader)
        queue.readers.append(reader)
        return reader

    def _store(self, session: Session, reader: Reader) -> None:
        row = SubscriptionRow(
            reader.queue.id, reader.qos, reader.no_local, reader.retain_as_published, reader.replay, reader.identifier
        )
        self.broker.put(Table.SUBSCRIPTION, rows.subscription_key(session.id, reader.topic_filter), row.encode())
        self.broker.stored_sessions.save_offset(session, reader)

    def unsubscribe(self, conn: Connection, packet: Unsubscribe) -> None:
        """Remove readers; what is in flight is completed [MQTT-3.10.4-3]. UNSUBACK leaves when durable."""
        self._begin(conn, packet)

    def _unsubscribe_one(self, conn: Connection, topic_filter: bytes, at: int) -> int:
        """The reason code for one filter of an UNSUBSCRIBE."""
        session = conn.session
        assert session is not None  # the phase is CONNECTED or HELD
        if at >= self.broker.limits.max_filters_per_packet:
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR  # UNSUBACK knows no 0x97 [MQTT-3.11.3-2]
        if topic_filter.startswith(b"$share/"):
            return self.broker.shared.unsubscribe(session, topic_filter)
        reader = session.subscriptions.pop(self.broker.replay.plain_filter(topic_filter), None)
        if reader is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self._close(session, reader)
        return 0

    def _close(self, session: Session, reader: Reader) -> None:
        session.merge = None
        if reader in session.readers:  # a replay that still walks the log is in neither
            session.readers.remove(reader)
            reader.queue.readers.remove(reader)
        self.broker.routes.release(reader.queue)
        if session.persistent:
            self.broker.delete(Table.SUBSCRIPTION, rows.subscription_key(session.id, reader.topic_filter))
            self.broker.delete_prefix(Table.OFFSET, rows.offset_key(session.id, reader.queue.id))
        if session.connection is not None:
            self.broker.deliverer.wake(session)

    def open_p2p(self, client_id: bytes) -> None:
        """Messages to `$p2p/<client id>` reach that client's session without a SUBSCRIBE, through a queue of its own."""
        broker = self.broker
        topic = b"$p2p/" + client_id
        session = broker.sessions.get(client_id)
        if session is None:
            stored = broker.stored_sessions.find(client_id)
            if stored is None:
                return
            if broker.meta.get(Table.SUBSCRIPTION, rows.subscription_key(stored.session_id, topic)) is None:
                queue = broker.routes.hold(topic)
                broker.put(Table.SUBSCRIPTION, rows.subscription_key(stored.session_id, topic), SubscriptionRow(queue.id, 2).encode())
                stands = rows.OffsetRow(broker.store.max_offset(queue))
                broker.put(Table.OFFSET, rows.offset_key(stored.session_id, queue.id), stands.encode())
            return
        if topic not in session.subscriptions:
            reader = self._open(session, topic)
            reader.qos = 2
            reader.settle()
            if session.persistent:
                self._store(session, reader)

    def position_properties(self, message: Message) -> bytes:
        return self.broker.replay.position_properties(message)
