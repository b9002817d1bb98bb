"""Delivery: from light queues to devices. Compiled.

Caught-up sessions get the batch that was just appended, straight from memory (`live`); every other session catches up
(catch_up.py). A session that can't take more pauses, and every pause has a name (session/session.py). A message that several
filters of a session match goes out once [MQTT-3.3.4-2, -3].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cython

from lmq_store.api import rows
from lmq_store.api.model import Message, Run
from mqtt_proxy.connection import Connection
from mqtt_proxy.packets import encoder
from mqtt_proxy.session.session import ASKING, CAUGHT_UP, LINK_BUSY, OFFLINE, WINDOW_FULL, Reader, Session

if not cython.compiled:
    from mqtt_proxy.packets.encoder import append_publish1, id_offset

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

class Deliverer:
    """Encodes and queues what sessions are owed; knows no sockets, only each connection's outgoing buffer."""

    __slots__ = (
        "broker",
        "due",
        "dropped_expired",
        "dropped_too_large",
        "groups_due",
        "journal_due",
        "now_ms",
        "payload_bytes",
        "sent",
        "turn",
    )

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.turn = 0
        self.now_ms = 0
        self.due: list[Session] = []
        self.journal_due: list[Session] = []
        self.groups_due: list[Any] = []
        self.sent = 0
        """PUBLISH packets handed to connections."""
        self.payload_bytes = 0
        self.dropped_expired = 0
        self.dropped_too_large = 0

    # --- the batch that was just appended -------------------------------------------------------------------------

    def live(self, runs: list[Run]) -> None:
        """Hand the runs of one append to every caught-up session that reads them."""
        self.turn += 1
        turn = self.turn
        touched: list[Session] = []
        for run in runs:
            for reader in run.queue.readers:
                if reader.group is not None:
                    self.wake_group(reader.group)
                    continue
                session = reader.session
                if session.state != CAUGHT_UP:
                    continue
                if session.touched_turn != turn:
                    session.touched_turn = turn
                    session.touched_reader = reader
                    session.touched_run = run
                    touched.append(session)
                else:
                    if session.touched_runs is None:
                        session.touched_runs = [(session.touched_reader, session.touched_run)]
                    session.touched_runs.append((reader, run))
        for session in touched:
            several = session.touched_runs
            first = session.touched_reader
            run = session.touched_run
            assert first is not None
            session.touched_runs = None
            session.touched_reader = None
            session.touched_run = None
            try:
                if several is None:
                    self.deliver_run(session, first, run)
                else:
                    self.deliver_runs(session, several)
            except Exception as error:  # a fault while serving one session must not take the others' turn
                self.broker.disconnecting.internal_error(session.connection, error)

    def wake_group(self, group: Any) -> None:
        """A shared subscription's queue has grown."""
        if not group.due:
            group.due = True
            self.groups_due.append(group)

    def wake_groups(self, session: Session) -> None:
        """The member has room again (or is there at last): its groups go on."""
        for group in session.groups or ():
            self.wake_group(group)

    def deliver_run(self, session: Session, reader: Reader, run: Run) -> None:
        """One reader, one run: the common case. Stops, and leaves an offset, where the session has to pause."""
        conn: Connection = session.connection
        messages = run.messages
        count = len(messages)
        if reader.plain and conn.plain and reader.qos == 0:
            if conn.congested():
                self.pause(session, LINK_BUSY)
                return
            joined = self.joined(run, session.version)
            if joined is not None and len(joined) <= conn.max_packet_out:
                conn.send(joined)
                reader.next_offset = run.first_offset + count
                self.mark(session, reader)
                self.sent += count
                self.payload_bytes += run.wire[2]
                return
        done = 0
        while done < count:
            message = messages[done]
            if not self.deliver_one(session, conn, reader, message):
                break
            done += 1
        reader.next_offset = run.first_offset + done
        self.mark(session, reader)

    def joined(self, run: Run, version: int) -> bytes | None:
        """The whole run as QoS 0 frames, encoded once for all subscribers of that protocol; None where one is special."""
        wires = run.wire
        if wires is None:
            wires = run.wire = [None, None, sum([len(message.payload) for message in run.messages])]
        which = 1 if version == 5 else 0
        if wires[which] is None:
            parts = []
            for message in run.messages:
                if message.expires_ms:
                    wires[which] = b""
                    break
                parts.append(encoder.publish(message, version, 0, False, False, 0))
            else:
                wires[which] = b"".join(parts)
        return wires[which] or None

    def deliver_runs(self, session: Session, several: list[Any]) -> None:
        """Several readers of one session were touched by one batch: by log order, each message once."""
        conn: Connection = session.connection
        entries: list[Any] = []
        order = 0
        for reader, run in several:
            for index, message in enumerate(run.messages):
                entries.append((message.position, order, message, reader, run.first_offset + index))
            order += 1
        entries.sort()
        count = len(entries)
        at = 0
        while at < count:
            position, _, message, reader, _ = entries[at]
            end = at + 1
            while end < count and entries[end][0] == position:
                end += 1
            if end - at == 1:
                sent = self.deliver_one(session, conn, reader, message)
            else:
                sent = self.deliver_many(session, conn, [entry[3] for entry in entries[at:end]], message)
            if not sent:
                break
            for entry in entries[at:end]:
                entry[3].next_offset = entry[4] + 1
                self.mark(session, entry[3])
            at = end

    # --- one message to one session ---------------------------------------------------------------------------------

    def deliver_one(self, session: Session, conn: Connection, reader: Reader, message: Message) -> bool:
        """Queue one message that one reader matches. False: paused, nothing was queued; `session.state` says why."""
        if conn.congested():
            self.pause(session, LINK_BUSY)
            return False
        qos = message.qos if message.qos < reader.qos else reader.qos
        if qos == 1 and reader.plain and conn.plain and message.expires_ms == 0 and session.bound is None:
            if len(session.in_flight) >= session.inflight_max:
                self.pause(session, WINDOW_FULL)
                return False
            if session.version == 5:
                wire = message.wire5
                if wire is None:
                    wire = encoder.wire5(message)
            else:
                wire = message.wire4
                if wire is None:
                    wire = encoder.wire4(message)
            if len(wire) > conn.max_packet_out:
                self.dropped_too_large += 1
                return True
            packet_id = session.take_packet_id()
            session.in_flight[packet_id] = message.position << 3 | rows.STAGE_QOS1
            header = 0x3A if message.position < session.redelivered_below else 0x32
            append_publish1(conn.out_buffer(), wire, packet_id, id_offset(wire, len(message.topic)), header)
            self.sent += 1
            self.payload_bytes += len(message.payload)
            return True
        return self.deliver_special(session, conn, message, qos, reader.retain_as_published and message.retain, [reader])

    def deliver_many(self, session: Session, conn: Connection, readers: list[Any], message: Message) -> bool:
        """Queue one message that several readers match: once, with the highest QoS and all identifiers [MQTT-3.3.4-2]."""
        qos = 0
        retain = False
        for reader in readers:
            qos = max(qos, reader.qos)
            retain = retain or (reader.retain_as_published and message.retain)
        return self.deliver_special(session, conn, message, min(qos, message.qos), retain, readers)

    def deliver_special(
        self, session: Session, conn: Connection, message: Message, qos: int, retain: bool, readers: list[Any]
    ) -> bool:
        """The general case of a delivery: every option of the subscriptions and of the connection honoured."""
        if conn.congested():
            self.pause(session, LINK_BUSY)
            return False
        if conn.gate is not None and not conn.gate.knows(session, message.topic):
            self.pause(session, ASKING)
            return False
        if session.bound is not None and message.position in session.bound:
            return True  # its QoS 2 exchange was already begun before the restart
        if qos and len(session.in_flight) >= session.inflight_max:
            self.pause(session, WINDOW_FULL)
            return False
        wanted = [reader for reader in readers if self.wants(session, reader, message)]
        if not wanted:
            return True
        if len(wanted) < len(readers):  # No Local and ACL take out only their own subscription
            qos = min(message.qos, max([reader.qos for reader in wanted]))
            retain = message.retain and True in [reader.retain_as_published for reader in wanted]
        return self.send(session, conn, message, qos, retain, wanted)

    def wants(self, session: Session, reader: Reader, message: Message) -> bool:
        if reader.no_local and message.client_id == session.client_id:  # [MQTT-3.8.3-3]
            return False
        return reader.receivable is None or reader.receivable(message.topic)

    def send(
        self, session: Session, conn: Connection, message: Message, qos: int, retain: bool, readers: list[Any]
    ) -> bool:
        """Encode and queue; window and link were checked. True also where the message has to be left out."""
        expiry_s = -1
        if message.expires_ms:
            left_ms = message.expires_ms - self.now_ms
            if left_ms <= 0:
                self.dropped_expired += 1  # [MQTT-3.3.2-5]
                return True
            expiry_s = (left_ms + 999) // 1000  # [MQTT-3.3.2-6]
        identifiers = tuple([reader.identifier for reader in readers if reader.identifier])
        extra = b""
        if session.version == 5:
            for reader in readers:
                if reader.replay:
                    extra = self.broker.position_properties(message)
                    break
        alias, with_topic = conn.alias_for(message.topic, qos < 2) if conn.alias_max_out else (0, True)
        packet_id = 0
        if qos:
            packet_id = session.next_packet_id  # taken for good below, when the frame is known to fit
        frame = encoder.publish(message, session.version, qos, retain, False, packet_id, identifiers, alias, with_topic, expiry_s, extra)
        if alias and with_topic and len(frame) > conn.max_packet_out:
            conn.take_back_alias(message.topic)
            alias = 0
            frame = encoder.publish(message, session.version, qos, retain, False, packet_id, identifiers, 0, True, expiry_s, extra)
        if len(frame) > conn.max_packet_out:  # [MQTT-3.1.2-24, -25]
            self.dropped_too_large += 1
            return True
        self.sent += 1
        self.payload_bytes += len(message.payload)
        if qos == 0:
            conn.send(frame)
            return True
        taken = session.take_packet_id()
        redelivered = qos == 1 and message.position < session.redelivered_below
        if taken != packet_id or redelivered:
            frame = encoder.publish(
                message, session.version, qos, retain, redelivered, taken, identifiers, alias, with_topic, expiry_s, extra
            )
        value = message.position << 3 | (rows.RETAIN_BIT if retain else 0) | qos
        session.in_flight[taken] = value
        if qos == 1:
            conn.send(frame)
            return True
        if session.persistent:  # the binding is durable before the PUBLISH leaves
            self.journal(session, rows.bound_event(taken, value))
        self.broker.after_sync(conn, frame)
        return True

    # --- marks ----------------------------------------------------------------------------------------------------------

    def wake(self, session: Session) -> None:
        """Pump the session at the end of this turn."""
        if not session.pump_due and session.connection is not None:
            session.pump_due = True
            self.due.append(session)

    def pause(self, session: Session, why: int) -> None:
        session.state = why

    def mark(self, session: Session, reader: Reader) -> None:
        """The reader moved: its offset joins the session's next snapshot."""
        if session.persistent:
            reader.dirty = True
            if not session.dirty:
                session.dirty = True
                self.broker.dirty_sessions.append(session)

    def journal(self, session: Session, events: bytes) -> None:
        """Note an event of the session; it is written with this turn's batch."""
        if session.journal is None:
            session.journal = bytearray()
            self.journal_due.append(session)
        session.journal += events

    def offline(self, session: Session) -> None:
        """The connection is gone: drop what only it needed."""
        session.state = OFFLINE
        session.merge = None
