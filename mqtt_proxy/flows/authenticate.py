"""Who is it: asks the policy (policy/authenticate.py), off the loop where that is slow, and hands the decision on.

Enhanced authentication is an exchange of AUTH packets before CONNACK, or again on a running connection (MQTT 5.0 §4.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqtt_proxy.connection import AUTHENTICATING, CLOSING, CONNECTED, Connection
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.reason_codes import ProtocolViolation, ReasonCode
from mqtt_proxy.packets.types import Auth, Connect
from mqtt_proxy.policy.authenticate import Admitted, Authenticator, Challenge, Credentials, Decision, Denied, Exchange

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker


class EnhancedAuthentication:
    """A connection's method, the exchange that is going on, and the data that its success tells the client."""

    __slots__ = ("data", "exchange", "method")

    def __init__(self, method: bytes, exchange: Exchange) -> None:
        self.method = method
        self.exchange: Exchange | None = exchange
        self.data = b""


class AuthenticateFlow:
    """One authentication for each CONNECT, and again where an MQTT 5 client asks. `authenticator` is set by the wiring."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.authenticator: Authenticator

    def begin(self, conn: Connection, connect: Connect) -> None:
        """Start; `connecting.decided` gets the outcome, now or later."""
        credentials = self.credentials(conn, connect)
        method = connect.properties.authentication_method
        if method is not None:
            exchange = self.authenticator.enhanced(method, credentials)
            if isinstance(exchange, Denied):
                self.broker.connecting.decided(conn, exchange)
                return
            conn.exchange = EnhancedAuthentication(method, exchange)
            self._step(conn, connect.properties.authentication_data)
            return

        def done(decision: Decision) -> None:
            if conn.phase == AUTHENTICATING:
                self.broker.connecting.decided(conn, decision)

        decision = self.authenticator.authenticate(credentials, done)
        if decision is not None:
            self.broker.connecting.decided(conn, decision)

    def credentials(self, conn: Connection, connect: Connect) -> Credentials:
        """What the client has shown of itself."""
        subject = conn.tls_subject
        by_certificate = conn.listener is not None and conn.listener.options.subject_as_user
        return Credentials(
            client_id=conn.client_id,
            user=connect.username,
            password=connect.password,
            address=address_of(conn.peer),
            tls_subject=subject.distinguished_name if subject is not None else "",
            tls_user=(subject.common_name.encode() if subject is not None else b"") if by_certificate else None,
            clean_start=connect.clean_start,
            keep_alive_s=connect.keep_alive,
        )

    def go_on(self, conn: Connection, packet: Auth) -> None:
        """The client's next step of an exchange [MQTT-4.12.0-3]."""
        state: EnhancedAuthentication = conn.exchange
        if state.exchange is None or packet.reason != ReasonCode.CONTINUE_AUTHENTICATION:
            self.broker.refuse(conn, ProtocolViolation("AUTH without an exchange going on"))
        elif packet.properties.authentication_method != state.method:  # [MQTT-4.12.0-5]
            self.broker.refuse(conn, ProtocolViolation("AUTH with another method than CONNECT"))
        else:
            self._step(conn, packet.properties.authentication_data)

    def again(self, conn: Connection, packet: Auth) -> None:
        """Re-authentication, only with the method of the CONNECT [MQTT-4.12.1-1]."""
        state: EnhancedAuthentication | None = conn.exchange
        if state is None:
            self.broker.refuse(conn, ProtocolViolation("AUTH without an authentication method at CONNECT"))
            return
        if packet.reason != ReasonCode.RE_AUTHENTICATE:
            self.go_on(conn, packet)
            return
        if packet.properties.authentication_method != state.method or conn.identity is None:
            self.broker.refuse(conn, ProtocolViolation("AUTH with another method than CONNECT"))
            return
        credentials = Credentials(conn.client_id, conn.identity.user, None, address_of(conn.peer), tls_subject=conn.identity.tls_subject)
        exchange = self.authenticator.enhanced(state.method, credentials, conn.identity)
        if isinstance(exchange, Denied):
            self.broker.disconnecting.refuse(conn, exchange.reason, exchange.why)
            return
        state.exchange = exchange
        self._step(conn, packet.properties.authentication_data)

    def _step(self, conn: Connection, data: bytes | None) -> None:
        """One move of the exchange and what it brings: a challenge, or the end."""
        state: EnhancedAuthentication = conn.exchange
        if state.exchange is None:
            return
        outcome = state.exchange.take(data)
        if isinstance(outcome, Challenge):
            properties = Properties(authentication_method=state.method, authentication_data=outcome.data)
            conn.send(encoder.auth(ReasonCode.CONTINUE_AUTHENTICATION, properties))
            return
        state.exchange = None
        if conn.phase == CONNECTED:
            if isinstance(outcome, Admitted):
                properties = Properties(authentication_method=state.method, authentication_data=outcome.data or None)
                conn.send(encoder.auth(ReasonCode.SUCCESS, properties))
            else:  # [MQTT-4.12.1-2]
                self.broker.disconnecting.refuse(conn, outcome.reason, "not authenticated")
            return
        if isinstance(outcome, Admitted):
            state.data = outcome.data
        self.broker.connecting.decided(conn, outcome)

    def finish(self, conn: Connection, answer: Properties) -> None:
        """What the exchange adds to the CONNACK [MQTT-4.12.0-5]."""
        state: EnhancedAuthentication | None = conn.exchange
        if state is not None:
            answer.authentication_method = state.method
            answer.authentication_data = state.data or None

    def drop(self, conn: Connection) -> None:
        """The connection is gone in the middle of an exchange."""
        if conn.phase == CLOSING:
            conn.exchange = None


def address_of(peer: str) -> str:
    """The address without its port: `192.0.2.1:51000`, `[2001:db8::1]:51000`, `unix`."""
    host, colon, _ = peer.rpartition(":")
    return host.strip("[]") if colon else peer
