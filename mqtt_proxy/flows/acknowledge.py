"""What devices answer: PUBACK, PUBREC, PUBCOMP free a session's window and move its exchanges on (MQTT 5.0 §4.3). Compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmq_store.api import rows
from mqtt_proxy.connection import Connection
from mqtt_proxy.flows.deliver import Deliverer
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.reason_codes import ProtocolViolation
from mqtt_proxy.session.session import WINDOW_FULL, Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker


class Acknowledgements:
    """Applies acknowledgements of delivered messages to the session's window.

    One for a packet id that is not in use is passed over: it may answer what an earlier connection sent. One that doesn't fit the
    exchange that its packet id is in use for is a protocol error [MQTT-4.13.1-1], and leaves the message unacknowledged.
    """

    __slots__ = ("broker", "deliverer")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.deliverer: Deliverer = broker.deliverer

    def acknowledged(self, session: Session, conn: Connection, packet_id: int) -> None:
        """PUBACK: the message is the client's; its place in the window is free."""
        value = session.in_flight.get(packet_id)
        if value is None:
            return
        if value & 3 != rows.STAGE_QOS1:
            self._misfit(conn, "PUBACK for a message of QoS 2")
            return
        del session.in_flight[packet_id]
        self.freed(session, packet_id)

    def received(self, session: Session, conn: Connection, packet_id: int) -> None:
        """PUBREC: from here on only PUBREL may be sent for this packet id [MQTT-4.3.3-4, -5]."""
        value = session.in_flight.get(packet_id)
        if value is None:
            if session.version == 5:
                conn.send(encoder.ack_reason(6, packet_id, 0x92, 5))
            else:
                conn.send(encoder.ack(6, packet_id))
            return
        if value & 3 == rows.STAGE_QOS1:
            self._misfit(conn, "PUBREC for a message of QoS 1")
            return
        if value & 3 == rows.STAGE_QOS2:
            session.in_flight[packet_id] = value | rows.STAGE_PUBREL
            if session.persistent:
                self.deliverer.journal(session, rows.event(rows.PUBREC, packet_id))
                self.broker.after_sync(conn, encoder.ack(6, packet_id))
                return
        conn.send(encoder.ack(6, packet_id))

    def completed(self, session: Session, conn: Connection, packet_id: int) -> None:
        """PUBCOMP: the exchange is over. Before its PUBREC it acknowledges nothing [MQTT-4.3.3-3]."""
        value = session.in_flight.get(packet_id)
        if value is None:
            return
        if value & 3 == rows.STAGE_QOS1 or value & 3 == rows.STAGE_QOS2:
            self._misfit(conn, "PUBCOMP for a message that waits for another acknowledgement")
            return
        del session.in_flight[packet_id]
        if session.persistent:
            self.deliverer.journal(session, rows.event(rows.DONE, packet_id))
        self.freed(session, packet_id)

    def refused(self, session: Session, conn: Connection, packet_type: int, packet_id: int) -> None:
        """A PUBACK or PUBREC with a reason from 0x80 on ends the exchange; the message is not sent again."""
        value = session.in_flight.get(packet_id)
        if value is None:
            return
        if (packet_type == 4) != (value & 3 == rows.STAGE_QOS1):
            self._misfit(conn, "PUBREC for a message of QoS 1" if packet_type == 5 else "PUBACK for a message of QoS 2")
            return
        if session.shared is not None:
            lent = session.shared.pop(packet_id, None)
            if lent is not None:
                lent[0].dead_letter(lent[1])
        del session.in_flight[packet_id]
        if session.persistent and value & 3 != rows.STAGE_QOS1:
            self.deliverer.journal(session, rows.event(rows.DONE, packet_id))
        self.freed(session, packet_id)

    def _misfit(self, conn: Connection, what: str) -> None:
        self.broker.refuse(conn, ProtocolViolation(what))

    def freed(self, session: Session, packet_id: int) -> None:
        """A place in the window is free: what waited for it goes on."""
        if session.shared is not None:
            lent = session.shared.pop(packet_id, None)
            if lent is not None:
                lent[0].acknowledged(lent[1])
        if session.persistent and not session.dirty:
            session.dirty = True
            self.broker.dirty_sessions.append(session)
        if session.groups is not None:
            self.deliverer.wake_groups(session)
        if session.state == WINDOW_FULL:
            self.deliverer.wake(session)
