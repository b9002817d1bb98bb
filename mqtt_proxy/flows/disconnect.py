"""The end of a connection, whoever ends it: refusal, DISCONNECT, loss, takeover, shutdown (MQTT 5.0 §3.14, §4.13)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqtt_proxy.connection import AUTHENTICATING, AWAIT_CONNECT, CLOSING, Connection
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.reason_codes import (
    CONNACK_REASONS,
    PacketTooLarge,
    ProtocolError,
    QuotaExceeded,
    ReasonCode,
    UnsupportedProtocolVersion,
)
from mqtt_proxy.packets.types import V5, Disconnect

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

log = logging.getLogger("lmq.connections")


class DisconnectFlow:
    """Closes connections and says why, where the client's version can be told."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def asked(self, conn: Connection, packet: Disconnect) -> None:
        """DISCONNECT from the client: the will is dropped unless it asks for it [MQTT-3.14.4-3]."""
        session = conn.session
        expiry_s = packet.properties.session_expiry
        if session is not None and expiry_s is not None:
            if session.expiry_s == 0 and expiry_s != 0:  # MQTT 5.0 §3.14.2.2.2
                self.refuse(conn, ReasonCode.PROTOCOL_ERROR, "session expiry set at DISCONNECT after 0 at CONNECT")
                return
            session.expiry_s = self.broker.limits.session_expiry_s(expiry_s)
        conn.will_wanted = packet.reason == ReasonCode.DISCONNECT_WITH_WILL_MESSAGE
        self.finish(conn, "client disconnected", "")

    def refuse(self, conn: Connection, reason: int, why: str) -> None:
        """Close for an error of the client's: CONNACK before its CONNECT was answered, DISCONNECT after, where it's MQTT 5."""
        if conn.phase == CLOSING:
            return
        if conn.phase in (AWAIT_CONNECT, AUTHENTICATING):
            self.reject(conn, reason, why)
            return
        self._farewell(conn, reason, self._reason_string(conn, why))
        self.finish(conn, "protocol error", why)

    def broken(self, conn: Connection, error: ProtocolError) -> None:
        """The client broke the protocol [MQTT-4.13.1-1]; one of another version is told in the nearest it may know."""
        if isinstance(error, PacketTooLarge | QuotaExceeded):
            limit = "max_packet_bytes" if isinstance(error, PacketTooLarge) else "max_properties"
            self.broker.limit_log.hit(limit, conn.client_id or conn.peer, f"closed: {error}")
        if isinstance(error, UnsupportedProtocolVersion):
            conn.version = V5 if error.version == V5 else 4
            conn.phase = AUTHENTICATING
        self.refuse(conn, error.reason, str(error))

    def reject(self, conn: Connection, reason: int, why: str) -> None:
        """Answer a CONNECT with a refusal, as far as its protocol can be told, and close [MQTT-3.1.4-2]."""
        if conn.phase == AUTHENTICATING:
            if conn.version == V5:
                if reason not in CONNACK_REASONS:  # what came right behind the CONNECT was wrong in a way that CONNACK can't name
                    reason = ReasonCode.PROTOCOL_ERROR
                properties = self._reason_string(conn, why)
                conn.send(fitting(conn, properties, lambda: encoder.connack(V5, False, reason, properties)))
            else:
                answer = encoder.connack(4, False, reason)  # the encoder knows the 3.x return codes; some reasons have none
                if answer:
                    conn.send(answer)
        self.finish(conn, "refused", why)

    def taken_over(self, conn: Connection) -> None:
        """Another connection came with the same client identifier [MQTT-3.1.4-3]."""
        self._farewell(conn, ReasonCode.SESSION_TAKEN_OVER)
        self.broker.events.taken_over(conn)
        self.finish(conn, "taken over", "")

    def timed_out(self, conn: Connection) -> None:
        """Silent for one and a half keep alives [MQTT-3.1.2-22], or no CONNECT in time."""
        if conn.phase in (AWAIT_CONNECT, AUTHENTICATING):
            self.finish(conn, "no CONNECT in time", "")
            return
        self._farewell(conn, ReasonCode.KEEP_ALIVE_TIMEOUT)
        self.finish(conn, "keep alive timeout", "")

    def internal_error(self, conn: Connection, error: Exception) -> None:
        """A fault of ours while serving this client: log it, close this connection, go on with the others."""
        log.error("%s: internal error", conn.client_id, exc_info=error)
        self._farewell(conn, ReasonCode.UNSPECIFIED_ERROR)
        self.finish(conn, "internal error", "")

    def lost(self, conn: Connection, reason: str) -> None:
        """The link is gone without a DISCONNECT."""
        if conn.phase != CLOSING:
            self.finish(conn, reason, "", gone=True)

    def shut_down(self, reason: int, reference: str) -> None:
        """Say good-bye to everybody: 0x8B, or 0x9C with the server to use instead (MQTT 5.0 §4.11)."""
        properties = Properties(server_reference=reference.encode()) if reference else None
        for conn in list(self.broker.connections.values()):
            if conn.phase != CLOSING:
                self._farewell(conn, reason, properties)
                self.finish(conn, "server stopped", "", keep_will=True)

    def finish(self, conn: Connection, reason: str, why: str, gone: bool = False, keep_will: bool = False) -> None:
        """Detach the session, deal with the will, close the link after what is queued."""
        broker = self.broker
        was = conn.phase
        broker.begin_turn()  # its time is that of the last turn's end: neither will nor session may go that much too early
        conn.phase = CLOSING
        conn.waiting = None
        broker.admission.left(conn)
        broker.authenticating.drop(conn)
        session = conn.session
        if session is not None:
            conn.session = None
            session.connection = None
            broker.deliverer.offline(session)
            broker.events.disconnected(conn, session, reason)
            broker.shared.member_gone(session)
            broker.stored_sessions.unload(session)
            if not keep_will:
                broker.wills.connection_ended(session, conn.will_wanted)
        if was != AWAIT_CONNECT and log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s%s", conn.client_id, reason, f": {why}" if why else "")
        if gone:
            return
        if conn.after_sync is None and not conn.held:
            conn.close(reason)
            return
        conn.pause_reading()  # what was accepted before is still acknowledged, then the link is closed
        broker.when_durable(lambda: conn.close(reason))

    def _farewell(self, conn: Connection, reason: int, properties: Properties | None = None) -> None:
        """DISCONNECT, behind the acknowledgements that the disk still holds back: nothing follows it [MQTT-3.14.4-1].

        Not before CONNACK [MQTT-3.14.0-1], and not to a 3.x client.
        """
        if conn.version != V5 or conn.phase in (AWAIT_CONNECT, AUTHENTICATING):
            return
        frame = fitting(conn, properties, lambda: encoder.disconnect(V5, reason, properties))
        if conn.after_sync is None and not conn.held:
            conn.send(frame)
        else:
            self.broker.after_sync(conn, frame)

    @staticmethod
    def _reason_string(conn: Connection, why: str) -> Properties | None:
        """A reason string, unless the client asked for none [MQTT-3.1.2-29]."""
        if not why or not conn.problem_information:
            return None
        return Properties(reason_string=why.encode()[:256])


def fitting(conn: Connection, properties: Properties | None, encode: Callable[[], bytes]) -> bytes:
    """The packet, without its texts where it would be larger than the client takes [MQTT-3.2.2-19, -20] [MQTT-3.14.2-3],
    and nothing where even that is too large."""
    frame = encode()
    if len(frame) > conn.max_packet_out and properties is not None:
        properties.reason_string = None
        properties.user_properties = []
        frame = encode()
    return frame if len(frame) <= conn.max_packet_out else b""
