"""Session events: connects, disconnects, takeovers and expiries as logged JSON messages (setting `session_events`).

`$events/client/<escaped client id>/<what>` in the parent topic `lmq-events`, readable only by right.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lmq_store.api.model import Message
from mqtt_proxy.connection import Connection
from mqtt_proxy.session.session import Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker


class SessionEvents:
    """Writes the events, if the setting asks for them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def connected(self, conn: Connection) -> None:
        self._log(conn.client_id, "connected", address=conn.peer, version=conn.version, user=_user(conn))

    def disconnected(self, conn: Connection, session: Session, reason: str) -> None:
        self._log(session.client_id, "disconnected", address=conn.peer, reason=reason)

    def taken_over(self, conn: Connection) -> None:
        self._log(conn.client_id, "taken-over", address=conn.peer)

    def expired(self, client_id: bytes) -> None:
        self._log(client_id, "expired")

    def _log(self, client_id: bytes, what: str, **details: Any) -> None:
        if not self.broker.settings.session_events:
            return
        name = client_id.decode("utf-8", "surrogateescape")
        topic = f"$events/client/{quote(name, safe='', errors='surrogateescape')}/{what}".encode()
        body = {"event": what, "client_id": name, "at_ms": self.broker.now_ms, **details}
        message = Message(topic, json.dumps(body).encode(), 1)
        message.client_id = client_id
        self.broker.publishing.publish(message)


def _user(conn: Connection) -> str | None:
    identity = conn.identity
    return identity.user.decode("utf-8", "replace") if identity is not None and identity.user is not None else None
