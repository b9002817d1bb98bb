"""Catching up: a session that is behind is pumped until it stands at the end of its queues or has to pause. Compiled.

Its readers are merged by log order and pulled in bounded steps; a session has had its share after PUMP_MESSAGES and waits
for the next turn, so that a long backlog delays nobody.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from lmq_store.api import rows
from lmq_store.api.model import Message
from mqtt_proxy.connection import Connection
from mqtt_proxy.flows.deliver import Deliverer
from mqtt_proxy.packets import encoder
from mqtt_proxy.session.session import BEHIND, CAUGHT_UP, LINK_BUSY, WINDOW_FULL, Reader, Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

PULL_MESSAGES = 256
"""Messages one pull may bring; a session with many readers behind gets fewer for each."""
MERGE_MESSAGES = 2048
"""Messages that all pulls of one merging session hold together."""
PULL_BYTES = 262_144
PUMP_MESSAGES = 1024
"""Messages one session gets before the others have their turn."""
RESEND_MESSAGES = 256
"""Of what is sent again: each is read from the log by itself."""
MERGE_PULLS = 128
"""First pulls of a beginning merge in one turn: a session may have thousands of readers behind."""
CURSOR_STEPS = 64
"""Walks of one session that take a step in one turn."""


class Merge:
    """The readers of one session that are behind, merged by log position up to `horizon`."""

    __slots__ = ("chunk", "heads", "horizon", "readers", "started")

    def __init__(self, horizon: int, chunk: int, readers: list[Reader]) -> None:
        self.horizon = horizon
        self.chunk = chunk
        self.readers = readers
        self.started = 0
        """How many of the readers have been pulled; the merge delivers once it is all of them."""
        self.heads: list[tuple[int, int, Reader, Any, int]] = []
        """Heap of (position, reader number, reader, pulled, index in pulled)."""


class ResendCursor:
    """What was in flight when the session's last connection ended goes again: same ids, same order [MQTT-4.4.0-1]."""

    __slots__ = ("catch_up", "waiting")

    def __init__(self, catch_up: CatchUp, session: Session) -> None:
        self.catch_up = catch_up
        self.waiting = deque(session.in_flight)

    def step(self, session: Session, conn: Connection) -> bool | None:
        """As much as the client's Receive Maximum and its share of the turn take. None: all is sent; False: paused."""
        waiting = self.waiting
        share = RESEND_MESSAGES
        while waiting:
            if share == 0:
                self.catch_up.deliverer.wake(session)
                return False  # nothing newer may go before it
            share -= 1
            packet_id = waiting[0]
            value = session.in_flight.get(packet_id)
            if value is not None:
                if conn.congested():
                    self.catch_up.deliverer.pause(session, LINK_BUSY)
                    return False
                if len(session.in_flight) - len(waiting) >= session.inflight_max:
                    self.catch_up.deliverer.pause(session, WINDOW_FULL)
                    return False
                self.catch_up.resend(session, conn, packet_id, value)
            waiting.popleft()
        return None


class CatchUp:
    """Pumps the sessions that `Deliverer.wake` put in line."""

    __slots__ = ("broker", "deliverer", "skipped_qos0")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.deliverer: Deliverer = broker.deliverer
        self.skipped_qos0 = 0

    def pump_due(self) -> None:
        """Pump every session that was woken. One that has had its share goes to the end of the next turn's line."""
        due = self.deliverer.due
        if not due:
            return
        self.deliverer.due = []
        for session in due:
            session.pump_due = False
            if session.connection is not None:
                try:
                    self.pump(session)
                except Exception as error:  # a fault while serving one session must not take the others' turn
                    self.broker.disconnecting.internal_error(session.connection, error)

    def pump(self, session: Session) -> None:
        """Deliver what waits for the session until it is caught up, paused, or has had its share of the turn."""
        conn: Connection = session.connection
        session.state = BEHIND
        if session.cursors is not None and not self.pump_cursors(session, conn):
            return
        budget = PUMP_MESSAGES
        while budget > 0:
            behind: list[Reader] | None = None
            if session.merge is None:
                behind = [reader for reader in session.readers if reader.next_offset < reader.queue.next_offset]
            if behind is not None and len(behind) == 0:
                session.state = CAUGHT_UP
                if session.cursors is None:
                    session.bound = None
                return
            if behind is not None and len(behind) == 1 and len(session.readers) == 1:
                count = self.pump_one(session, conn, behind[0])
            else:
                if behind is not None:
                    session.merge = self.new_merge(behind)
                if not self.start_merge(session):
                    break
                count = self.pump_merge(session, conn)
            if count < 0:
                return
            budget -= count
        self.deliverer.wake(session)

    def pump_cursors(self, session: Session, conn: Connection) -> bool:
        """One step of each walk through retained messages or history. False: the session paused."""
        cursors = session.cursors or []
        if len(cursors) > CURSOR_STEPS:
            self.deliverer.wake(session)
        for cursor in cursors[:CURSOR_STEPS]:
            outcome = cursor.step(session, conn)
            if outcome is None:
                cursors.remove(cursor)
            elif outcome:
                self.deliverer.wake(session)
            else:
                return False
        if not cursors:
            session.cursors = None
        return True

    def pump_one(self, session: Session, conn: Connection, reader: Reader) -> int:
        """A session with one reader needs no merge. The count delivered, or -1 where it paused."""
        room = session.inflight_max - len(session.in_flight)
        wanted = PULL_MESSAGES if reader.qos == 0 or room > PULL_MESSAGES else room + 1
        pulled = self.broker.pull(reader, wanted, PULL_BYTES)
        if pulled is None:
            return -1  # the store will answer later and wake the session
        messages = pulled.messages
        offsets = pulled.offsets
        count = len(messages)
        for index in range(count):
            message = messages[index]
            if self.skipped(session, reader, message, offsets[index]):
                continue
            if not self.deliverer.deliver_one(session, conn, reader, message):
                reader.next_offset = offsets[index]
                self.deliverer.mark(session, reader)
                return -1
        reader.next_offset = pulled.next_offset
        self.deliverer.mark(session, reader)
        return count or 1

    def skipped(self, session: Session, reader: Reader, message: Message, queue_offset: int) -> bool:
        """QoS 0 that was stored while the session was away, or lies too far behind, is left out and counted."""
        if (message.qos and reader.qos) or reader.replay:
            return False
        if message.position >= session.online_from and reader.queue.next_offset - queue_offset <= self.broker.qos0_backlog:
            return False
        self.skipped_qos0 += 1
        return True

    def new_merge(self, behind: list[Reader]) -> Merge:
        """Merge up to the log's present end, so that what is stored meanwhile keeps its place in the order."""
        return Merge(self.broker.store.end(), max(1, min(PULL_MESSAGES, MERGE_MESSAGES // len(behind))), behind)

    def start_merge(self, session: Session) -> bool:
        """Take the first pulls of readers that have had none. True when all have; False: it goes on in the next turn."""
        merge: Merge = session.merge
        count = len(merge.readers)
        stop = min(count, merge.started + MERGE_PULLS)
        while merge.started < stop:
            self.refill(merge, merge.started, merge.readers[merge.started])
            merge.started += 1
        return stop == count

    def refill(self, merge: Merge, number: int, reader: Reader) -> None:
        if reader.next_offset >= reader.queue.next_offset:
            return
        pulled = self.broker.pull(reader, merge.chunk, PULL_BYTES)
        if pulled is None or not pulled.messages:
            if pulled is not None:
                reader.next_offset = pulled.next_offset
            return
        heappush(merge.heads, (pulled.messages[0].position, number, reader, pulled, 0))

    def pump_merge(self, session: Session, conn: Connection) -> int:
        """Deliver the merge's messages in log order. The count delivered, or -1 where the session paused."""
        merge = session.merge
        heads = merge.heads
        count = 0
        while heads and count < PUMP_MESSAGES:
            position = heads[0][0]
            if position >= merge.horizon:
                break
            group = []
            while heads and heads[0][0] == position:
                group.append(heappop(heads))
            message = group[0][3].messages[group[0][4]]
            readers = [entry[2] for entry in group if not self.skipped(session, entry[2], message, entry[3].offsets[entry[4]])]
            if len(readers) == 1:
                sent = self.deliverer.deliver_one(session, conn, readers[0], message)
            else:
                sent = not readers or self.deliverer.deliver_many(session, conn, readers, message)
            if not sent:
                for entry in group:
                    heappush(heads, entry)
                return -1
            for _, number, reader, pulled, index in group:
                reader.next_offset = pulled.offsets[index] + 1
                self.deliverer.mark(session, reader)
                if index + 1 < len(pulled.messages):
                    heappush(heads, (pulled.messages[index + 1].position, number, reader, pulled, index + 1))
                else:
                    reader.next_offset = pulled.next_offset
                    self.refill(merge, number, reader)
            count += 1
        if not heads or heads[0][0] >= merge.horizon:
            session.merge = None
        return count or 1

    def resend(self, session: Session, conn: Connection, packet_id: int, value: int) -> None:
        """One PUBREL again, or one PUBLISH with DUP [MQTT-3.3.1-1] and what the subscriptions say now."""
        stage = value & 3
        if stage == rows.STAGE_PUBREL:
            conn.send(encoder.ack(6, packet_id))
            return
        message = self.broker.store.read(value >> 3)
        if message is None:
            del session.in_flight[packet_id]  # retention took it
            return
        subscribed = [session.subscriptions.get(queue.name) for queue in self.broker.routes.trie.match(message.topic)]
        readers = [reader for reader in subscribed if reader is not None]
        identifiers = tuple([reader.identifier for reader in readers if reader.identifier])
        extra = b""
        if session.version == 5 and True in [reader.replay for reader in readers]:
            extra = self.broker.position_properties(message)
        expiry_s = -1
        if message.expires_ms:  # it doesn't expire any more: delivery has begun [MQTT-4.3.3-7] [MQTT-4.4.0-1]
            expiry_s = max(1, (message.expires_ms - self.deliverer.now_ms + 999) // 1000)
        retain = bool(value & rows.RETAIN_BIT)
        frame = encoder.publish(message, session.version, value & 3, retain, True, packet_id, identifiers, 0, True, expiry_s, extra)
        if len(frame) > conn.max_packet_out:
            del session.in_flight[packet_id]
            return
        conn.send(frame)
