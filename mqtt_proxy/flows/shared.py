"""Shared subscriptions over POP: a group's members are lent the messages of one queue (MQTT 5.0 §4.8.2).

A QoS 1 message that a member leaves unacknowledged goes to another when it disconnects; a QoS 2 message, once sent, stays
with its session [MQTT-4.8.2-4, -5]; a refused one (0x80 and up) goes to the dead-letter queue [MQTT-4.8.2-6].
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lmq_store.api import rows
from lmq_store.api.model import LightQueue, Message
from lmq_store.api.ports import Table
from lmq_store.api.rows import SubscriptionRow
from mqtt_proxy.connection import Connection
from mqtt_proxy.packets.reason_codes import ProtocolViolation, ReasonCode
from mqtt_proxy.packets.types import SubscriptionRequest
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.topics import rules

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

log = logging.getLogger("lmq.broker")

INVISIBLE_MS = 60_000
"""A lent message that its member neither acknowledges nor renews is lent again after this time."""
RENEW_MS = 20_000
POP_MESSAGES = 256


class SharedGroup:
    """The members that are connected and the queue they share. Its own reader stands in the queue to be woken."""

    __slots__ = ("due", "flow", "members", "name", "next_member", "queue", "reader")

    def __init__(self, flow: SharedFlow, name: bytes, queue: LightQueue) -> None:
        self.flow = flow
        self.name = name
        self.queue = queue
        self.members: list[Reader] = []
        self.next_member = 0  # the first message goes to who joined first
        self.due = False
        self.reader = Reader(None, queue.name, queue, 0)
        self.reader.group = self

    def acknowledged(self, handle: int) -> None:
        """A member has the message. A handle below 0 (`~handle`) is of a QoS 2 message, settled when it was sent."""
        if handle >= 0:
            self.flow.groups.ack(self.queue, self.name, [handle])
        self.flow.broker.deliverer.wake_group(self)

    def dead_letter(self, handle: int) -> None:
        """A member refused the message: no other member gets it [MQTT-4.8.2-6]."""
        self.flow.refused(self, handle)


class SharedFlow:
    """All shared subscriptions with a connected member."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.live: dict[tuple[bytes, bytes], SharedGroup] = {}
        self.holders: dict[tuple[bytes, bytes], int] = {}
        self.groups: Any = None
        """The store's ConsumerGroups; set by the wiring."""
        self.next_renew_ms = 0

    def load(self) -> None:
        """Groups that only clean sessions held ended with the last process; `Routes.load` has counted the others' holders."""
        trie = self.broker.routes.trie
        if self.groups.end_others({(trie.get(name).id, group) for group, name in self.holders}):
            self.broker.meta_writes += 1
        for group, name in self.holders:  # what the last process lent nobody holds
            self.groups.give_back_all(trie.get(name), group)

    # --- membership -------------------------------------------------------------------------------------------------------

    def subscribe(
        self, conn: Connection, session: Session, request: SubscriptionRequest, identifier: int, shared: tuple[bytes, bytes]
    ) -> int:
        """Join a group [MQTT-4.8.2-1]; a new group begins at the end of its queue, one that exists goes on."""
        if request.no_local:  # [MQTT-3.8.3-4]
            self.broker.refuse(conn, ProtocolViolation("No Local on a shared subscription"))
            return ReasonCode.PROTOCOL_ERROR
        known = session.subscriptions.get(request.filter)
        if known is None:
            queue = self.broker.routes.hold(shared[1])
            self.held(shared[0], queue)
            known = self.join(session, request.filter, shared[0], queue)
        known.qos = request.qos
        known.identifier = identifier
        known.retain_as_published = request.retain_as_published
        known.settle()
        known.receivable = self.broker.rights.receivable(conn, shared[1])
        if session.persistent:
            row = SubscriptionRow(known.queue.id, known.qos, False, known.retain_as_published, False, identifier)
            self.broker.put(Table.SUBSCRIPTION, rows.subscription_key(session.id, request.filter), row.encode())
        self.broker.deliverer.wake_group(known.group)
        return request.qos

    def held(self, group: bytes, queue: LightQueue) -> None:
        """One session more holds the group."""
        key = (group, queue.name)
        count = self.holders.get(key, 0)
        self.holders[key] = count + 1
        if count == 0:
            self.groups.start(queue, group, self.broker.store.max_offset(queue))
            self.groups.save(queue, group)
            self.broker.meta_writes += 1

    def let_go(self, group: bytes, queue: LightQueue) -> None:
        """A session holds it no more; the last one takes the group's progress with it."""
        key = (group, queue.name)
        left = self.holders.get(key, 1) - 1
        if left > 0:
            self.holders[key] = left
            return
        self.holders.pop(key, None)
        self.groups.end(queue, group)
        self.broker.meta_writes += 1

    def join(self, session: Session, topic_filter: bytes, group: bytes, queue: LightQueue) -> Reader:
        """Add a connected member."""
        key = (group, queue.name)
        live = self.live.get(key)
        if live is None:
            live = self.live[key] = SharedGroup(self, group, queue)
            queue.readers.append(live.reader)
        reader = Reader(session, topic_filter, queue, 0)
        reader.group = live
        session.subscriptions[topic_filter] = reader
        live.members.append(reader)
        if session.groups is None:
            session.groups = []
        session.groups.append(live)
        return reader

    def rejoin(self, session: Session, topic_filter: bytes, row: SubscriptionRow) -> None:
        """A resumed session is a member again."""
        group, plain = rules.parse_share(topic_filter)
        queue = self.broker.routes.trie.get(plain)
        if queue is None:
            return
        reader = self.join(session, topic_filter, group, queue)
        reader.qos = row.qos
        reader.identifier = row.identifier
        reader.retain_as_published = row.retain_as_published
        reader.settle()
        self.broker.deliverer.wake_group(reader.group)

    def _leave(self, reader: Reader) -> None:
        live: SharedGroup = reader.group
        live.members.remove(reader)
        if not live.members:
            live.queue.readers.remove(live.reader)
            live.reader.group = None  # it leads back to the group: both are to go without the cycle collector
            self.live.pop((live.name, live.queue.name), None)

    def unsubscribe(self, session: Session, topic_filter: bytes) -> int:
        """Leave the group; what is in flight is completed by its member."""
        reader = session.subscriptions.pop(topic_filter, None)
        if reader is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self._leave(reader)
        session.groups = [group for group in session.groups or () if group is not reader.group] or None
        self.let_go(reader.group.name, reader.queue)
        self.broker.routes.release(reader.queue)
        if session.persistent:
            self.broker.delete(Table.SUBSCRIPTION, rows.subscription_key(session.id, topic_filter))
        return 0

    def member_gone(self, session: Session) -> None:
        """The connection ended: what the member left unacknowledged waits for another [MQTT-4.8.2-4]."""
        now_ms = self.broker.now_ms
        if session.shared:
            for packet_id, (group, handle) in session.shared.items():
                if handle < 0:
                    continue  # QoS 2 stays with its session
                session.in_flight.pop(packet_id, None)
                self.groups.change_invisible(group.queue, group.name, [handle], 0, now_ms)
                self.broker.deliverer.wake_group(group)
        session.shared = None
        session.groups = None
        for topic_filter, reader in list(session.subscriptions.items()):
            if reader.group is not None:
                self._leave(reader)
                if not session.persistent:
                    del session.subscriptions[topic_filter]
                    self.let_go(reader.group.name, reader.queue)
                    self.broker.routes.release(reader.queue)

    # --- delivery ---------------------------------------------------------------------------------------------------------

    def deliver_due(self) -> None:
        """Lend to the groups that were woken."""
        due = self.broker.deliverer.groups_due
        self.broker.deliverer.groups_due = []
        for group in due:
            group.due = False
            if group.members:
                try:
                    self._deliver(group)
                except Exception:  # a fault of ours in one group must not take the others' turn
                    log.exception("shared subscription %s: internal error", group.name.decode("utf-8", "backslashreplace"))
        if self.groups.write_notes():
            self.broker.meta_writes += 1

    def _deliver(self, group: SharedGroup) -> None:
        """Spread over the members by their free window, each in turn, until the queue or the windows are empty."""
        while True:
            ready = [(reader, self._room(reader)) for reader in group.members]
            ready = [(reader, room) for reader, room in ready if room > 0]
            if not ready:
                return
            wanted = min(POP_MESSAGES, sum(room for _, room in ready))
            lent = self.groups.pop(group.queue, group.name, wanted, INVISIBLE_MS, self.broker.now_ms)
            if not lent:
                return
            for popped, reader in zip(lent, self._in_turn(group, dict(ready)), strict=False):
                self._send(group, reader, popped.message, popped.handle)

    @staticmethod
    def _in_turn(group: SharedGroup, left: dict[Reader, int]) -> Iterator[Reader]:
        """The members in rounds, as many times as they have room; one with less than half the room of the roomiest sits out."""
        while most := max(left.values()):
            taking = [reader for reader, room in left.items() if room * 2 >= most]
            start = group.next_member % len(taking)
            for reader in taking[start:] + taking[:start]:
                left[reader] -= 1
                group.next_member += 1
                yield reader

    def _room(self, reader: Reader) -> int:
        session = reader.session
        if session is None or session.connection is None or session.connection.phase != 2 or session.connection.congested():
            return 0
        gate = session.connection.gate
        return 0 if gate is not None and gate.awaited else session.room()

    def _send(self, group: SharedGroup, reader: Reader, message: Message, handle: int) -> None:
        session = reader.session
        assert session is not None  # only the group's own reader has none
        deliverer = self.broker.deliverer
        gate = session.connection.gate
        if gate is not None and not gate.knows(session, message.topic):  # back, until the plugins have answered
            self.groups.change_invisible(group.queue, group.name, [handle], 0, self.broker.now_ms)
            return
        qos = min(message.qos, reader.qos)
        before = len(session.in_flight)
        if deliverer.wants(session, reader, message):
            deliverer.send(session, session.connection, message, qos, reader.retain_as_published and message.retain, [reader])
        in_flight = qos and len(session.in_flight) > before
        if in_flight:
            if session.shared is None:
                session.shared = {}
            session.shared[next(reversed(session.in_flight))] = (group, ~handle if qos == 2 else handle)
        if qos == 2:  # the session's own from here on, and no other member's, also not after a crash [MQTT-4.8.2-5]
            self.groups.settle(group.queue, group.name, handle)
        elif not in_flight:
            self.groups.ack(group.queue, group.name, [handle])

    def refused(self, group: SharedGroup, handle: int) -> None:
        settled = handle < 0
        handle = ~handle if settled else handle
        offset = handle >> 8
        pulled = self.broker.store.pull(group.queue, offset, 1, 1 << 20, lambda _: None)
        if pulled is not None and pulled.messages and pulled.offsets[0] == offset:
            if settled:
                self.groups.refuse_settled(group.name, pulled.messages[0], handle, "refused")
            else:
                self.groups.reject(group.queue, group.name, pulled.messages[0], handle, "refused")

    def dead_letter(self, _group: bytes, message: Message) -> None:
        """ConsumerGroups gives a message up: it is published to `$dlq/<group>/<topic>`."""
        self.broker.publishing.publish(message)

    def tick(self, now_ms: int) -> None:
        """Renew what connected members hold; lend again what came back; note the groups' progress."""
        if now_ms >= self.next_renew_ms:
            self.next_renew_ms = now_ms + RENEW_MS
            for session in self.broker.sessions.values():
                if session.shared:
                    for group, handle in session.shared.values():
                        if handle >= 0:
                            self.groups.change_invisible(group.queue, group.name, [handle], INVISIBLE_MS, now_ms)
        if self.groups.tick(now_ms):
            self.broker.meta_writes += 1
