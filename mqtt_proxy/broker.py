"""The broker: one turn of the loop from decoded packets to durable acknowledgements, and the state that flows share.

The way of one turn: links hand their packets to `inbound`, which collects a batch; `end_turn` appends it, delivers it to
caught-up sessions, writes journals, and has the acknowledgements leave when the store says that all of it is durable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from lmq_store.api import rows
from lmq_store.api.errors import StoreError
from lmq_store.api.model import Message, Pulled, Route
from lmq_store.api.ports import MetaStore, Table
from mqtt_proxy.connection import CLOSING, Connection
from mqtt_proxy.flows import dispatch
from mqtt_proxy.flows.acknowledge import Acknowledgements
from mqtt_proxy.flows.admission import Admission
from mqtt_proxy.flows.authenticate import AuthenticateFlow
from mqtt_proxy.flows.catch_up import CatchUp
from mqtt_proxy.flows.connect import ConnectFlow
from mqtt_proxy.flows.deliver import Deliverer
from mqtt_proxy.flows.disconnect import DisconnectFlow
from mqtt_proxy.flows.events import SessionEvents
from mqtt_proxy.flows.hints import HintFlow
from mqtt_proxy.flows.inbound import Inbound
from mqtt_proxy.flows.promise import Promise, Promises
from mqtt_proxy.flows.publish import PublishFlow
from mqtt_proxy.flows.replay import ReplayFlow
from mqtt_proxy.flows.retained import RetainedFlow
from mqtt_proxy.flows.retained_quota import RetainedQuota
from mqtt_proxy.flows.rights import RightsFlow
from mqtt_proxy.flows.routes import Routes
from mqtt_proxy.flows.sessions import Sessions
from mqtt_proxy.flows.shared import SharedFlow
from mqtt_proxy.flows.subscribe import SubscribeFlow
from mqtt_proxy.flows.timeouts import Timeouts
from mqtt_proxy.flows.will import WillFlow
from mqtt_proxy.observe.limit_log import LimitLog
from mqtt_proxy.observe.sys_topics import SysTopics
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.reason_codes import ProtocolError
from mqtt_proxy.policy.acl import Acl
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.settings import Settings

log = logging.getLogger("lmq.broker")

TICK_MS = 100


class Broker:
    """Holds what the flows share. Knows no event loop: the server's shell calls `begin_turn`, `end_turn` and `tick`."""

    def __init__(self, settings: Settings, store: Any, meta: MetaStore, now_ms: Callable[[], int] | None = None) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.store: Any = store
        self.meta = meta
        self.clock = now_ms or (lambda: int(time.time() * 1000))
        self.now_ms = self.clock()
        self.max_packet = self.limits.max_packet_bytes
        self.max_properties = self.limits.max_properties
        self.qos0_backlog = settings.qos0_backlog
        self.acl = Acl(None)
        self.stopping = False
        self.failed: StoreError | None = None
        self.connections: dict[int, Connection] = {}
        self.sessions: dict[bytes, Session] = {}
        self.paced: list[Connection] = []
        self.dirty_sessions: list[Session] = []
        self.meta_writes = 0
        self.batch_sizes = [0] * 32
        """Batches appended: at index n those of less than 2**n messages (and not less than half of it)."""
        self.left_behind_messages = 0
        """Messages that readers missed since retention took them first."""
        self.journal_sequence = 0
        self.next_snapshot_ms = 0
        self.turn_again: Callable[[], None] = lambda: None
        """Set by the server: ask for one more turn, since a session has had its share and waits for the next."""
        self.deliverer = Deliverer(self)
        self.acknowledgements = Acknowledgements(self)
        self.catch_up = CatchUp(self)
        self.promises = Promises(self)
        self.inbound = Inbound(self)
        self.routes = Routes(self)
        self.stored_sessions = Sessions(self)
        self.connecting = ConnectFlow(self)
        self.disconnecting = DisconnectFlow(self)
        self.publishing = PublishFlow(self)
        self.subscribing = SubscribeFlow(self)
        self.retained = RetainedFlow(self)
        self.wills = WillFlow(self)
        self.authenticating = AuthenticateFlow(self)
        self.events = SessionEvents(self)
        self.rights = RightsFlow(self)
        self.admission = Admission(self)
        self.timeouts = Timeouts(self)
        self.retained_quota = RetainedQuota(self)
        self.limit_log = LimitLog()
        self.sys_topics: SysTopics | None = None
        """Set by the server, which alone sees the bytes on the wire."""
        self.shared = SharedFlow(self)
        self.replay = ReplayFlow(self)
        self.hints = HintFlow(self)

    def apply_settings(self, settings: Settings) -> None:
        """Take settings that have changed and need no restart; what was announced to a connection stays with it."""
        self.settings = settings
        self.limits = settings.limits
        self.max_packet = self.limits.max_packet_bytes
        self.max_properties = self.limits.max_properties
        self.admission.reload()
        for conn in self.connections.values():
            self.publishing.set_rate(conn)

    def start(self) -> None:
        """Load what the store remembers: filters, sessions to expire, wills that are due."""
        self.routes.load()
        self.shared.load()
        self.stored_sessions.load()
        self.wills.load()

    # --- a turn -------------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        now_ms = self.clock()
        self.now_ms = now_ms
        self.deliverer.now_ms = now_ms

    def end_turn(self) -> None:
        """Append what came, deliver what is owed, and let the acknowledgements go when all of it is durable."""
        self.begin_turn()
        inbound = self.inbound
        deliverer = self.deliverer
        if self.subscribing.under_way:
            self.subscribing.go_on()
        if deliverer.due:
            self.catch_up.pump_due()
        if deliverer.journal_due:  # a release of this turn lies in the log before a message that takes the packet id again
            self.write_journals()
        batch = inbound.batch
        promise: Promise | None = None
        if batch:
            inbound.batch = []
            if self.routes.anew:
                self.routes.route_anew(batch)
            promise = Promise(self.promises)
            promise.pending = 1
            try:
                runs = self.store.append(batch, self.now_ms, promise.done)
            except StoreError as error:
                self.publishing.not_stored(batch, error)
                promise = None
            else:
                if promise.pending:  # whatever fails below: no answer of this turn leaves before its sync
                    self.promises.last = promise
                inbound.received += len(batch)
                self.batch_sizes[len(batch).bit_length()] += 1
                if runs:
                    deliverer.live(runs)
                    if deliverer.due:
                        self.catch_up.pump_due()
                elif self.hints.active:
                    self.hints.appended(batch, promise)
        if deliverer.groups_due:
            self.shared.deliver_due()
        if deliverer.journal_due:
            self.write_journals()
        if self.meta_writes:
            self.meta_writes = 0
            if promise is None:
                promise = Promise(self.promises)
            promise.pending += 1
            self.meta.commit(promise.done)
        self.promises.settle(promise)
        self.go_on()

    def commit_turn(self) -> None:
        """The turn's deliveries have left: write its batch and have it synced."""
        self.store.flush()
        self.guard()
        self.go_on()

    def guard(self) -> None:
        """Have every PUBLISH looked at while the disk is full or the server stops."""
        self.inbound.guarded = self.store.disk_full or self.stopping

    def go_on(self) -> None:
        """One more turn where a session has had its share, or what was let go has brought more: packets behind a CONNECT, a backlog."""
        deliverer = self.deliverer
        waits = deliverer.due or deliverer.groups_due or self.subscribing.under_way
        if waits or self.inbound.batch or self.promises.gated or self.promises.calls:
            self.turn_again()

    def after_sync(self, conn: Connection, data: bytes) -> None:
        """Queue bytes that may leave only with this turn's sync."""
        self.promises.hold(conn).extend(data)

    def when_durable(self, call: Callable[[], None]) -> None:
        """Call back when everything written in this turn is durable; at the turn's end where nothing was."""
        self.promises.calls.append(call)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self.meta_writes += 1
        self.meta.put(table, key, value)

    def delete(self, table: Table, key: bytes) -> None:
        self.meta_writes += 1
        self.meta.delete(table, key)

    def delete_prefix(self, table: Table, prefix: bytes) -> None:
        self.meta_writes += 1
        self.meta.delete_prefix(table, prefix)

    def write_journals(self) -> None:
        """One journal row for each session that had QoS 2 events in this turn."""
        due = self.deliverer.journal_due
        self.deliverer.journal_due = []
        position = self.store.end()
        for session in due:
            if session.journal is not None:
                self.journal_sequence = (self.journal_sequence + 1) & 0xFFFF
                key = rows.journal_key(session.id, position, self.journal_sequence)
                self.put(Table.JOURNAL, key, bytes(session.journal))
                session.journal = None
                if not session.dirty:  # the next snapshot takes the journal in, else it would grow as long as the client stays
                    session.dirty = True
                    self.dirty_sessions.append(session)

    def store_failed(self, error: StoreError) -> None:
        """The disk broke its promise: nothing is acknowledged any more and the server ends (law two)."""
        if self.failed is None:
            self.failed = error
            log.critical("store failed: %s: nothing is acknowledged any more, stopping", error)

    def save_all(self) -> None:
        """What else follows at its own pace goes into this turn: the server stops."""
        self.stored_sessions.snapshot_dirty()
        if self.shared.groups.save_all():
            self.meta_writes += 1

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Every 100 ms: snapshots, keep alive, expiries, wills, the store's own steps. Ends like a turn."""
        self.begin_turn()
        now_ms = self.now_ms
        self.guard()
        if self.publishing.own_waiting and not self.store.disk_full:
            self.publishing.publish_waiting()
        if now_ms >= self.next_snapshot_ms:
            self.next_snapshot_ms = now_ms + self.settings.offset_commit_ms
            self.stored_sessions.snapshot_dirty()
        self.timeouts.sweep()
        if self.paced:
            self.resume_paced()
        self.stored_sessions.expire(now_ms)
        self.wills.publish_due(now_ms)
        self.shared.tick(now_ms)
        self.routes.collect(now_ms)
        self.hints.repoll(now_ms)
        self.retained_quota.step(now_ms)
        self.rights.step()
        if self.sys_topics is not None:
            self.sys_topics.tick(now_ms)
        self.store.tick(now_ms)
        if self.store.poisoned is not None:  # also where nobody waited for the sync that failed
            self.store_failed(self.store.poisoned)
        self.guard()
        self.end_turn()

    # --- what the hot paths call when a packet needs more than they do --------------------------------------------------

    def handle(self, conn: Connection, packet: Any) -> None:
        dispatch.handle(self, conn, packet)

    def refuse(self, conn: Connection, error: ProtocolError) -> None:
        """The client broke the protocol: tell it why where its version can be told, and close [MQTT-4.13.1-1]."""
        self.disconnecting.broken(conn, error)

    def connection_lost(self, conn: Connection, reason: str) -> None:
        self.disconnecting.lost(conn, reason)

    def route(self, topic: bytes) -> Route | None:
        return self.routes.route(topic)

    def publish_special(self, conn: Connection, message: Message) -> None:
        self.publishing.special(conn, message)

    def admit(self, conn: Connection, message: Message) -> bool:
        return self.publishing.admit(conn, message)

    def may_retain(self, conn: Connection, message: Message) -> bool:
        return self.retained_quota.admit(conn, message)

    def resolve_alias(self, conn: Connection, message: Message) -> bool:
        return self.publishing.resolve_alias(conn, message)

    def too_many_in(self, conn: Connection) -> bool:
        return self.publishing.too_many_in(conn)

    def pace(self, conn: Connection, items: list[Any]) -> None:
        self.publishing.pace(conn, items)

    def unknown_release(self, conn: Connection, packet_id: int) -> None:
        """PUBREL for an id that is not in use: complete it, and say so where MQTT 5 lets us."""
        if conn.version == 5:
            self.after_sync(conn, encoder.ack_reason(7, packet_id, 0x92, 5))
        else:
            self.inbound.answer(conn, 7, packet_id, 0)

    def released(self, session: Session, packet_id: int) -> None:
        self.deliverer.journal(session, rows.event(rows.RELEASED, packet_id))

    def pull(self, reader: Reader, max_messages: int, max_bytes: int) -> Pulled | None:
        """Ask the store; where it answers later, the session is woken then."""
        session = reader.session

        def later(_: Pulled) -> None:
            if session is not None:
                self.deliverer.wake(session)

        pulled: Pulled | None = self.store.pull(reader.queue, reader.next_offset, max_messages, max_bytes, later)
        if pulled is not None and pulled.messages and pulled.offsets[0] > reader.next_offset and session is not None:
            self.left_behind(session, reader, pulled.offsets[0] - reader.next_offset)
        return pulled

    def left_behind(self, session: Session, reader: Reader, missed: int) -> None:
        """Retention was faster than a reader: it is moved forward, and told."""
        self.left_behind_messages += missed
        what = f"moved forward by {missed} messages of {reader.topic_filter.decode('utf-8', 'backslashreplace')}"
        self.limit_log.hit("retention", session.client_id, f"{what}: retention has taken them")

    def history_left_behind(self, session: Session, reader: Reader, missed_bytes: int) -> None:
        """Retention was faster than a walk through history: it goes on at the log's new start, and is told."""
        what = f"moved forward by {missed_bytes} bytes in the history of {reader.topic_filter.decode('utf-8', 'backslashreplace')}"
        self.limit_log.hit("retention", session.client_id, f"{what}: retention has taken them")

    def position_properties(self, message: Message) -> bytes:
        """`lmq-offset` and `lmq-stored-at` as encoded user properties, for subscriptions that asked for replay."""
        return self.subscribing.position_properties(message)

    def pause_for(self, conn: Connection, wait_ms: int) -> None:
        """Read nothing from the client for a while (message rate); `tick` reads on."""
        conn.paused_until_ms = self.now_ms + wait_ms
        conn.pause_reading()
        self.paced.append(conn)

    def resume_paced(self) -> None:
        still = []
        for conn in self.paced:
            if conn.phase == CLOSING:
                continue
            if conn.paused_until_ms <= self.now_ms:
                conn.resume_reading()
            else:
                still.append(conn)
        self.paced = still
