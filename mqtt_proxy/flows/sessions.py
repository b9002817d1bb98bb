"""Stored sessions: loaded at CONNECT, snapshotted while connected, unloaded at the end of the connection.

A session that nobody is connected to lives in the store alone, so resuming after a crash and resuming after a walk out of
the radio's reach are one and the same path. Only the time of its expiry is kept in memory.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from lmq_store.api import rows
from lmq_store.api.ports import Table
from lmq_store.api.rows import DeliveryState, OffsetRow, RetainedWalkRow, SessionRow, SubscriptionRow
from mqtt_proxy.flows.routes import IdBlocks
from mqtt_proxy.policy.limits import NEVER_EXPIRES
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.topics import rules

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

STALE_MAX = 1_000
"""Planned looks at sessions that have ended since, beyond as many as there are others: then they are cleared away."""


class Sessions:
    """The stored sessions of this broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.ids = IdBlocks(broker, b"session")
        self.expiries: list[tuple[int, bytes, int]] = []
        """Heap of (when to look, client id, session id)."""
        self.looks: dict[int, int] = {}
        """Session id → when it is looked at next: a session has one entry in the heap, however often its client comes and goes."""
        self.stored = 0
        self.expired = 0

    def load(self) -> None:
        """Note when each stored session expires; those that a crash cut off are away from now on."""
        self.ids.load()
        now_ms = self.broker.now_ms
        for client_id, raw in self.broker.meta.scan(Table.SESSION, b""):
            row = SessionRow.decode(raw)
            self.stored += 1
            self._expect(client_id, row, now_ms if row.connected else row.disconnected_ms)
        heapify(self.expiries)

    def _expect(self, client_id: bytes, row: SessionRow, gone_ms: int) -> None:
        if row.expiry_s != NEVER_EXPIRES:
            look = (gone_ms + row.expiry_s * 1000, client_id, row.session_id)
            self.expiries.append(look)
            self.looks[row.session_id] = look[0]

    def _look_again(self, due_ms: int, client_id: bytes, session_id: int) -> None:
        """Look whether the session has expired, at `due_ms` or, where that is planned already, before."""
        planned_ms = self.looks.get(session_id)
        if planned_ms is None or due_ms < planned_ms:
            self.looks[session_id] = due_ms
            if len(self.expiries) > 2 * len(self.looks) + STALE_MAX:
                self.expiries = [look for look in self.expiries if self.looks.get(look[2]) == look[0]]
                heapify(self.expiries)
            heappush(self.expiries, (due_ms, client_id, session_id))

    # --- begin ------------------------------------------------------------------------------------------------------------

    def find(self, client_id: bytes) -> SessionRow | None:
        """The stored session of a client, if it has one that hasn't expired."""
        raw = self.broker.meta.get(Table.SESSION, client_id)
        if raw is None:
            return None
        row = SessionRow.decode(raw)
        if not row.connected and row.expiry_s != NEVER_EXPIRES and row.disconnected_ms + row.expiry_s * 1000 <= self.broker.now_ms:
            self.end_expired(client_id, row.session_id)
            return None
        return row

    def begin(self, client_id: bytes, version: int) -> Session:
        """A new session (clean start, or none was stored)."""
        return Session(self.ids.take(), client_id, version)

    def resume(self, client_id: bytes, row: SessionRow, version: int) -> Session:
        """Load a stored session: subscriptions, offsets, packets in flight, QoS 2 ids."""
        broker = self.broker
        session = Session(row.session_id, client_id, version)
        session.epoch = row.epoch + 1
        session.user = row.user
        prefix = rows.session_key(row.session_id)
        state = self._delivery_state(prefix)
        session.in_flight = state.in_flight
        session.next_packet_id = state.next_packet_id
        session.received = state.received or None
        session.bound = state.bound or None
        if row.connected:  # the last process died while the client was connected: it may have got what we don't know of
            session.redelivered_below = broker.store.end()
        offsets = dict(broker.meta.scan(Table.OFFSET, prefix))
        subscriptions = {rows.filter_of(key): SubscriptionRow.decode(raw) for key, raw in broker.meta.scan(Table.SUBSCRIPTION, prefix)}
        queues = [broker.routes.trie.get(topic_filter) for topic_filter in subscriptions]
        broker.store.load_offsets([queue for queue in queues if queue is not None])
        for topic_filter, subscription in subscriptions.items():
            self._reader(session, topic_filter, subscription, offsets)
        return session

    def _delivery_state(self, prefix: bytes) -> DeliveryState:
        meta = self.broker.meta
        snapshot = meta.get(Table.SNAPSHOT, prefix)
        state = DeliveryState.decode(snapshot) if snapshot is not None else DeliveryState()
        for _, events in meta.scan(Table.JOURNAL, prefix):
            state.apply(events)
        return state

    def _reader(self, session: Session, topic_filter: bytes, row: SubscriptionRow, offsets: dict[bytes, bytes]) -> None:
        if topic_filter.startswith(b"$share/"):
            self.broker.shared.rejoin(session, topic_filter, row)
            return
        queue = self.broker.routes.trie.get(topic_filter)
        if queue is None:
            return
        reader = Reader(session, topic_filter, queue, row.qos)
        reader.no_local = row.no_local
        reader.retain_as_published = row.retain_as_published
        reader.identifier = row.identifier
        reader.replay = row.replay
        reader.settle()
        last = self.broker.store.max_offset(queue)  # asked in any case: the queue's handle knows it from here on
        stands = offsets.get(rows.offset_key(session.id, queue.id))
        stood = OffsetRow(last) if stands is None else OffsetRow.decode(stands)
        reader.next_offset = stood.next_offset
        if stood.next_offset < last:
            reader.next_offset = max(stood.next_offset, self.broker.store.min_offset(queue))
        if reader.next_offset > stood.next_offset:
            self.broker.left_behind(session, reader, reader.next_offset - stood.next_offset)
        session.subscriptions[topic_filter] = reader
        session.readers.append(reader)
        queue.readers.append(reader)
        if stood.walk_until:
            self.broker.replay.walk(session, reader, stood.walk_position, stood.walk_until)
        walk = offsets.get(rows.retained_walk_key(session.id, queue.id))
        if walk is not None:
            retained = RetainedWalkRow.decode(walk)
            self.broker.retained.begin(session, reader, retained.as_of, retained.next_topic)

    # --- keep -------------------------------------------------------------------------------------------------------------

    def save(self, session: Session, connected: bool) -> None:
        """Write the session's row."""
        now_ms = self.broker.now_ms
        row = SessionRow(session.id, session.epoch, session.version, session.expiry_s, connected, now_ms, now_ms, session.user)
        self.broker.put(Table.SESSION, session.client_id, row.encode())

    def snapshot_dirty(self) -> None:
        """Commit the offsets and windows that moved since the last time (`offset_commit_ms`)."""
        dirty = self.broker.dirty_sessions
        self.broker.dirty_sessions = []
        for session in dirty:
            if session.dirty:
                self.snapshot(session)

    def save_offset(self, session: Session, reader: Reader, walk_position: int = 0, walk_until: int = 0) -> None:
        """Where a reader stands, and how far its walk through history has come if there is one."""
        row = OffsetRow(reader.next_offset, walk_position, walk_until)
        self.broker.put(Table.OFFSET, rows.offset_key(session.id, reader.queue.id), row.encode())

    def snapshot(self, session: Session) -> None:
        """One session's delivery state and the offsets of the readers that moved."""
        broker = self.broker
        session.dirty = False
        prefix = rows.session_key(session.id)
        for reader in session.readers:
            if reader.dirty:
                reader.dirty = False
                self.save_offset(session, reader)
        broker.replay.save_walks(session)
        broker.retained.save_walks(session)
        received = session.received or set()
        if received and broker.inbound.batch:
            # Not stored yet, and perhaps never: their records bring these ids, so that no crash keeps an id without its message.
            received = received - {message.packet_id for message in broker.inbound.batch if message.session_id == session.id}
        state = DeliveryState(session.next_packet_id, session.in_flight, received, session.bound or set())
        broker.delete_prefix(Table.JOURNAL, prefix)
        session.journal = None
        broker.put(Table.SNAPSHOT, prefix, state.encode())

    # --- end --------------------------------------------------------------------------------------------------------------

    def unload(self, session: Session) -> None:
        """The connection is over: a session that outlives it goes to the store, any other one ends."""
        broker = self.broker
        if session.persistent and session.expiry_s:
            self.snapshot(session)
            self.save(session, connected=False)
            if session.expiry_s != NEVER_EXPIRES:
                self._look_again(broker.now_ms + session.expiry_s * 1000, session.client_id, session.id)
        for reader in session.readers:
            reader.queue.readers.remove(reader)
        session.readers = []
        session.cursors = None
        session.dirty = False
        session.journal = None
        if broker.sessions.get(session.client_id) is session:
            del broker.sessions[session.client_id]
        if not session.persistent:
            for reader in session.subscriptions.values():
                if reader.group is None:
                    broker.routes.release(reader.queue)
        elif not session.expiry_s:
            self.end(session.client_id, session.id)
        session.subscriptions = {}  # readers lead back to the session: it is to go without the cycle collector

    def end_expired(self, client_id: bytes, session_id: int) -> None:
        """End a session whose time is over, and say so."""
        self.expired += 1
        self.broker.events.expired(client_id)
        self.end(client_id, session_id, expired=True)

    def end(self, client_id: bytes, session_id: int, expired: bool = False) -> None:
        """Delete a stored session and let go of its queues."""
        broker = self.broker
        prefix = rows.session_key(session_id)
        for message in broker.inbound.batch:
            if message.session_id == session_id:
                message.session_id = 0  # else its record would leave a row of the session behind
        for key, _ in list(broker.meta.scan(Table.SUBSCRIPTION, prefix)):
            group, topic_filter = rules.parse_share(rows.filter_of(key))
            queue = broker.routes.trie.get(topic_filter)
            if queue is not None:
                broker.routes.release(queue)
                if group:
                    broker.shared.let_go(group, queue)
        for table in (Table.SUBSCRIPTION, Table.OFFSET, Table.JOURNAL):
            broker.delete_prefix(table, prefix)
        broker.delete(Table.SNAPSHOT, prefix)
        broker.delete(Table.SESSION, client_id)
        self.stored -= 1
        self.looks.pop(session_id, None)
        if expired:
            broker.wills.session_expired(client_id)
        else:
            broker.wills.session_ended(client_id)

    def expire(self, now_ms: int, most: int = 200) -> None:
        """End sessions whose expiry has passed, a bounded number each tick [MQTT-4.1.0-2]."""
        while self.expiries and self.expiries[0][0] <= now_ms and most:
            due_ms, client_id, session_id = heappop(self.expiries)
            if self.looks.get(session_id) != due_ms:
                continue  # an earlier look was planned since, and done
            del self.looks[session_id]
            most -= 1
            raw = self.broker.meta.get(Table.SESSION, client_id)
            if raw is None or client_id in self.broker.sessions:
                continue
            row = SessionRow.decode(raw)
            if row.session_id != session_id or row.expiry_s == NEVER_EXPIRES:
                continue
            expires_ms = row.disconnected_ms + row.expiry_s * 1000
            if row.connected or expires_ms <= now_ms:
                self.end_expired(client_id, session_id)
            else:
                self._look_again(expires_ms, client_id, session_id)
