"""CONNECT: who is it, which session does it get, and the CONNACK that leaves when that is durable (MQTT 5.0 §3.1, §3.2)."""

from __future__ import annotations

import secrets
import zlib
from typing import TYPE_CHECKING, Any

from mqtt_proxy.connection import AUTHENTICATING, CLOSING, CONNECTED, PACKET_IDS_IN_FLIGHT_3, Connection
from mqtt_proxy.flows.catch_up import ResendCursor
from mqtt_proxy.flows.disconnect import fitting
from mqtt_proxy.flows.publish import P2P
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.packets.types import V5, V31, Connect, Will
from mqtt_proxy.policy.acl import reserved
from mqtt_proxy.policy.authenticate import Admitted, Denied
from mqtt_proxy.policy.limits import NEVER_EXPIRES
from mqtt_proxy.session.session import BEHIND, CAUGHT_UP, Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker


class ConnectFlow:
    """From a CONNECT to a running session."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connects = 0

    def connect(self, conn: Connection, connect: Connect) -> None:
        """Take a first CONNECT; the answer may have to wait for a password check, a challenge or the disk."""
        broker = self.broker
        self.connects += 1
        conn.version = connect.version
        conn.connect = connect
        conn.phase = AUTHENTICATING
        conn.connected_ms = conn.turn.now_ms
        properties = connect.properties
        conn.problem_information = properties.request_problem_information != 0
        if properties.maximum_packet_size is not None:
            conn.max_packet_out = properties.maximum_packet_size
        reason = self._check_client_id(conn, connect)
        if reason:
            self.reject(conn, reason, "client identifier not valid")
            return
        if broker.stopping:
            self.reject(conn, ReasonCode.SERVER_UNAVAILABLE, "server is stopping")  # CONNACK knows no 0x8B [MQTT-3.2.2-8]
            return
        broker.authenticating.begin(conn, connect)

    def _check_client_id(self, conn: Connection, connect: Connect) -> int:
        client_id = connect.client_id
        if not client_id:
            # [MQTT-3.1.3-8]; MQTT 3.1 has no empty identifiers at all (its section 3.1, "Client Identifier")
            if connect.version != V5 and (connect.version == V31 or not connect.clean_start):
                return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            conn.client_id = b"lmq-" + secrets.token_hex(10).encode()  # [MQTT-3.1.3-6]
            return 0
        if len(client_id) > self.broker.limits.max_client_id_bytes:
            self.broker.limit_log.hit("max_client_id_bytes", conn.peer, f"refused: a client identifier of {len(client_id)} bytes")
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        conn.client_id = client_id
        return 0

    def decided(self, conn: Connection, decision: Admitted | Denied) -> None:
        """The authentication came to its end."""
        if conn.phase == CLOSING:
            return
        if isinstance(decision, Denied):
            if decision.reason == ReasonCode.SERVER_BUSY:
                limit = "auth_timeout_s" if "auth_timeout_s" in decision.why else "auth_queue_max"
                self.broker.limit_log.hit(limit, conn.client_id, decision.why)
            self.reject(conn, decision.reason, decision.why)
            return
        self.accept(conn, decision)

    def reject(self, conn: Connection, reason: int, why: str) -> None:
        """CONNACK with a reason, then close [MQTT-3.1.4-2] [MQTT-3.2.2-7]."""
        self.broker.disconnecting.reject(conn, reason, why)

    # --- the session ------------------------------------------------------------------------------------------------------

    def accept(self, conn: Connection, admitted: Admitted) -> None:
        """Give the connection its session: takeover, resume or clean start; CONNACK when what it promises is durable."""
        conn.identity = admitted.identity
        self.broker.rights.grant(conn)
        connect: Connect = conn.connect
        if connect.will is None:
            self._open(conn, connect)
            return
        refused = self._refuse_will(conn, connect.will)
        if refused:
            self.reject(conn, refused, "the will's topic is not allowed")
            return

        def answered(allowed: bool) -> None:
            if conn.phase != AUTHENTICATING:
                return
            if allowed:
                self._open(conn, connect)
            else:
                self.reject(conn, ReasonCode.NOT_AUTHORIZED, "the will's topic is not allowed")

        allowed = True if conn.gate is None else conn.gate.will_allowed(connect.will.topic, answered)
        if allowed is not None:
            answered(allowed)

    def _open(self, conn: Connection, connect: Connect) -> None:
        """The session of a client that may come in, with its will."""
        broker = self.broker
        client_id = conn.client_id
        old = broker.sessions.get(client_id)
        if old is not None:
            broker.disconnecting.taken_over(old.connection)
        broker.inbound.routes.pop(P2P + client_id, None)  # found when the client had no session, it leads nowhere
        stored = broker.stored_sessions.find(client_id)
        if stored is not None and (connect.clean_start or stored.user != user_of(conn)):
            broker.stored_sessions.end(client_id, stored.session_id)  # [MQTT-3.1.2-4]; another user's session is never resumed
            stored = None
        elif stored is None:
            broker.wills.client_back(client_id)
        expiry_s = self._expiry_s(connect)
        if stored is None and expiry_s and broker.stored_sessions.stored >= broker.limits.max_sessions:
            broker.limit_log.hit("max_sessions", client_id, f"refused: {broker.limits.max_sessions} sessions are stored")
            self.reject(conn, ReasonCode.QUOTA_EXCEEDED, "max_sessions reached")
            return
        if stored is not None:
            session = broker.stored_sessions.resume(client_id, stored, connect.version)
            broker.wills.session_resumed(client_id)
        else:
            session = broker.stored_sessions.begin(client_id, connect.version)
            broker.stored_sessions.stored += expiry_s > 0
        self._attach(conn, session, connect, expiry_s)
        if stored is not None:
            broker.rights.apply(conn, session)
        if session.persistent or stored is not None:
            broker.stored_sessions.save(session, connected=True)
        if connect.will is not None:
            broker.wills.keep(session, connect.will)
        present = stored is not None
        broker.events.connected(conn)
        broker.when_durable(lambda: self.start(conn, session, present))

    def _refuse_will(self, conn: Connection, will: Will) -> int:
        topic = will.topic
        if self.broker.limits.exceeded_by_topic(topic) or topic == P2P:
            return ReasonCode.TOPIC_NAME_INVALID
        if reserved(topic) or (conn.rights is not None and not conn.rights.may_publish(topic)):
            return ReasonCode.NOT_AUTHORIZED
        return 0

    def _expiry_s(self, connect: Connect) -> int:
        """Session expiry: MQTT 3.x clean session 0 never expires by itself, but the limit binds it too."""
        if connect.version == V5:
            asked = connect.properties.session_expiry or 0
        else:
            asked = 0 if connect.clean_start else NEVER_EXPIRES
        return self.broker.limits.session_expiry_s(asked)

    def _attach(self, conn: Connection, session: Session, connect: Connect, expiry_s: int) -> None:
        broker = self.broker
        limits = broker.limits
        properties = connect.properties
        session.connection = conn
        session.user = user_of(conn)
        session.expiry_s = expiry_s
        session.persistent = expiry_s > 0 or session.epoch > 1  # a resumed one has rows, whatever its expiry is now
        session.inflight_max = limits.inflight_out(properties.receive_maximum or 65535)
        conn.session = session
        conn.partition = zlib.crc32(conn.client_id) % broker.settings.partitions
        keep_alive_s = limits.keepalive_s(connect.keep_alive)
        conn.keep_alive_ms = keep_alive_s * 1500
        if connect.version == V5:
            conn.receive_max_in = limits.inflight_in_max
            conn.alias_max_in = limits.topic_alias_in_max
            conn.alias_max_out = min(properties.topic_alias_maximum or 0, limits.topic_alias_out_max)
            conn.plain = conn.alias_max_out == 0
        else:
            conn.receive_max_in = PACKET_IDS_IN_FLIGHT_3
        broker.publishing.set_rate(conn)
        broker.sessions[conn.client_id] = session

    def start(self, conn: Connection, session: Session, present: bool) -> None:
        """What CONNACK promises is durable: answer, take what the client sent meanwhile, deliver what it missed."""
        if conn.phase == CLOSING:
            return
        broker = self.broker
        broker.admission.newcomers.discard(conn.fd)
        conn.phase = CONNECTED
        properties = self._connack_properties(conn)
        connack = fitting(conn, properties, lambda: encoder.connack(conn.version, present, 0, properties))
        if not connack:  # what the client waits for can't be sent to it [MQTT-3.1.2-24]: nor may anything else [MQTT-3.2.0-1]
            conn.will_wanted = False
            broker.disconnecting.finish(conn, "refused", "its Maximum Packet Size is smaller than its CONNACK")
            return
        conn.send(connack)
        session.state = BEHIND if session.readers or session.in_flight or session.cursors else CAUGHT_UP
        session.online_from = broker.store.end()
        if session.in_flight:
            session.cursors = [ResendCursor(broker.catch_up, session), *(session.cursors or ())]
        if session.groups is not None:
            broker.deliverer.wake_groups(session)
        waiting, conn.waiting = conn.waiting, None
        if waiting is not None:
            broker.inbound.take(conn, waiting)
        conn.resume_reading()
        if session.state == BEHIND:
            broker.deliverer.wake(session)
        conn.connect = None

    def _connack_properties(self, conn: Connection) -> Properties | None:
        if conn.version != V5:
            return None
        connect: Connect = conn.connect
        limits = self.broker.limits
        session: Any = conn.session
        asked = connect.properties
        answer = Properties(
            receive_maximum=limits.inflight_in_max,
            maximum_packet_size=limits.max_packet_bytes,
            topic_alias_maximum=limits.topic_alias_in_max or None,
        )
        if not connect.client_id:
            answer.assigned_client_id = conn.client_id  # [MQTT-3.2.2-16]
        if session.expiry_s != (asked.session_expiry or 0):
            answer.session_expiry = session.expiry_s
        if limits.keepalive_s(connect.keep_alive) != connect.keep_alive:
            answer.server_keep_alive = limits.keepalive_s(connect.keep_alive)  # [MQTT-3.1.2-21]
        base = self.broker.settings.response_information
        if asked.request_response_information == 1 and base:
            answer.response_information = base.encode().replace(b"%c", conn.client_id)
        self.broker.authenticating.finish(conn, answer)
        return answer


def user_of(conn: Connection) -> bytes:
    """The name that the session belongs to; b"" for anonymous clients."""
    return (conn.identity.user if conn.identity is not None else None) or b""
