"""Who is late: silent clients, connections without a CONNECT, logins without an end, links that take nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqtt_proxy.connection import AUTHENTICATING, AWAIT_CONNECT, Connection

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

SLICES = 5
"""Each tick looks at one of so many parts of the connections: at all of them once a second."""


class Timeouts:
    """Ends connections that are late, by the links' monotonic clock: a step of the wall clock disconnects nobody."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._slice = 0

    def sweep(self) -> None:
        """One slice of the connections."""
        self._slice = (self._slice + 1) % SLICES
        for fd, conn in list(self.broker.connections.items()):
            if fd % SLICES == self._slice:
                self._look_at(conn)

    def _look_at(self, conn: Connection) -> None:
        broker = self.broker
        limits = broker.limits
        link_now_ms = conn.turn.now_ms
        if conn.blocked and limits.link_stalled_s and link_now_ms - conn.moved_ms > limits.link_stalled_s * 1000:
            said = f"closed: {conn.pending_bytes()} bytes wait and none was taken"
            broker.limit_log.hit("link_stalled_s", conn.client_id or conn.peer, said)
            broker.disconnecting.finish(conn, "link stalled", "", gone=True)
            conn.abort("link stalled")
        elif conn.phase == AWAIT_CONNECT:
            # From accept on, whatever trickles in: TLS and WebSocket handshakes count too.
            if link_now_ms - conn.opened_ms > limits.connect_timeout_s * 1000:
                broker.limit_log.hit("connect_timeout_s", conn.peer, f"closed: no CONNECT within {limits.connect_timeout_s} s")
                broker.disconnecting.timed_out(conn)
        elif conn.phase == AUTHENTICATING:
            if conn.session is None and link_now_ms - conn.connected_ms > limits.auth_timeout_s * 1000:
                broker.limit_log.hit("auth_timeout_s", conn.client_id, f"closed: not authenticated within {limits.auth_timeout_s} s")
                broker.disconnecting.timed_out(conn)
        elif conn.keep_alive_ms:
            if conn.paused:  # nothing is read from it: its silence is ours
                conn.last_read_ms = link_now_ms
            elif link_now_ms - conn.last_read_ms > conn.keep_alive_ms:  # [MQTT-3.1.2-22]
                broker.disconnecting.timed_out(conn)
