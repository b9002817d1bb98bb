"""Rights in force: what the ACL says about connections and subscriptions that are already there (resumed, or after a reload)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqtt_proxy.connection import CLOSING, Connection
from mqtt_proxy.flows.plugin_gate import PluginGate
from mqtt_proxy.flows.publish import P2P
from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.session.session import Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

STEP_CONNECTIONS = 1_000
"""Connections that one tick brings under a new ACL."""


class RightsFlow:
    """Gives connections their rights, and subscriptions what of their filters may still be received."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.plugins: Any = None
        """amqtt's plugins; set by the wiring."""
        self._to_reapply: deque[Connection] = deque()

    def grant(self, conn: Connection) -> None:
        """The rights of a connection that has just been authenticated."""
        acl = self.broker.acl
        identity = conn.identity
        if identity is None:
            return
        if self.plugins is not None and self.plugins.judges_topics:
            if conn.gate is None:
                credentials = self.broker.authenticating.credentials(conn, conn.connect)
                conn.gate = PluginGate(self.broker, conn, self.plugins.topic_rights(identity, credentials))
            else:
                conn.gate.rights.forget()
        conn.rights = acl.rights(identity) if acl.restricted or conn.gate is not None else None

    def may_subscribe(self, conn: Connection, topic_filter: bytes) -> bool:
        """By the ACL, and by the plugins, whose answer has been waited for."""
        if conn.rights is not None and not conn.rights.may_subscribe(topic_filter):
            return False
        return conn.gate is None or bool(conn.gate.may_subscribe(topic_filter))

    def receivable(self, conn: Connection, topic_filter: bytes) -> Callable[[bytes], bool] | None:
        """What a subscription has to ask about each message; None where it may have all that its filter matches."""
        by_acl: Callable[[bytes], bool] | None = conn.rights.receivable(topic_filter) if conn.rights is not None else None
        return by_acl if conn.gate is None else conn.gate.receivable(by_acl)

    def apply(self, conn: Connection, session: Session) -> None:
        """Hold back from each subscription what is not granted (any more).

        A shared subscription that is not granted as a whole ends, since what its member held back nobody would get.
        """
        rights = conn.rights
        for topic_filter, reader in list(session.subscriptions.items()):
            if topic_filter.startswith(P2P):  # delivered without a SUBSCRIBE, by no right but being that client
                continue
            if reader.group is not None and rights is not None and not rights.may_subscribe(topic_filter):
                self.broker.shared.unsubscribe(session, topic_filter)
                continue
            reader.receivable = self.receivable(conn, topic_filter)
            reader.settle()

    # --- after a reload -----------------------------------------------------------------------------------------------------

    def reapply(self) -> None:
        """Users or rules have changed: bring every connection under them, the first ones at once, the others tick by tick."""
        self._to_reapply = deque(self.broker.connections.values())
        self.step()

    def step(self) -> None:
        """The next connections, if a reload left some."""
        for _ in range(min(STEP_CONNECTIONS, len(self._to_reapply))):
            self._reapply(self._to_reapply.popleft())

    def _reapply(self, conn: Connection) -> None:
        broker = self.broker
        identity = conn.identity
        session = conn.session
        if conn.phase == CLOSING or identity is None or session is None:
            return
        if not broker.authenticating.authenticator.still_known(identity):
            broker.disconnecting.refuse(conn, ReasonCode.NOT_AUTHORIZED, "the user is not known any more")
            return
        self.grant(conn)
        self.apply(conn, session)
        if conn.rights is not None:
            broker.wills.recheck(session, conn.rights)
