"""Which connections are taken in at all: limits on their number, on each address's number, and on their rate.

Behind a balancer (a listener with `proxy_protocol=true`) the address in the PROXY header counts, not the balancer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqtt_proxy.connection import Connection
from mqtt_proxy.policy.identity import split_peer
from mqtt_proxy.policy.rates import AddressCount, AddressRate

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.net.listener import Listener
    from mqtt_proxy.net.turn import Turn

UNIX = "unix"
"""All that come by a Unix socket have this address, which limits on addresses don't bind."""


class Admission:
    """Makes the connections, unless a limit says no."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        limits = broker.limits
        self.accepted = 0
        self.newcomers: set[int] = set()
        """Descriptors of connections that have no CONNACK yet; the reactor gives them a small share of its turns."""
        self.open = AddressCount(limits.max_connections_per_address)
        self.rate = AddressRate(limits.connection_rate_per_address, limits.max_tracked_addresses)
        self._rate_limits = (limits.connection_rate_per_address, limits.max_tracked_addresses)

    def reload(self) -> None:
        """Take the limits in force; who is connected stays."""
        limits = self.broker.limits
        self.open.max_each = limits.max_connections_per_address
        rate_limits = (limits.connection_rate_per_address, limits.max_tracked_addresses)
        if rate_limits != self._rate_limits:
            self._rate_limits = rate_limits
            self.rate = AddressRate(*rate_limits)

    def accept(self, turn: Turn, fd: int, peer: str, listener: Listener) -> Connection | None:
        """A new connection; None where a limit refuses it (the caller closes the socket)."""
        broker = self.broker
        most = broker.limits.max_connections
        if turn.open_links >= most:
            broker.limit_log.hit("max_connections", peer, f"refused: {most} connections are open")
            return None
        address: str | None = None
        if not listener.options.proxy_protocol:
            address = split_peer(peer)[0]
            if not self._enter(address, turn.now_ms):
                return None
        conn = Connection(broker, turn, fd, peer, listener)
        conn.address = address
        broker.connections[fd] = conn
        self.newcomers.add(fd)
        self.accepted += 1
        return conn

    def readdressed(self, conn: Connection) -> bool:
        """A PROXY header has named the real peer."""
        address = split_peer(conn.peer)[0]
        if not self._enter(address, conn.turn.now_ms):
            return False
        conn.address = address
        return True

    def left(self, conn: Connection) -> None:
        """The connection is over, whoever ended it."""
        if self.broker.connections.get(conn.fd) is conn:
            del self.broker.connections[conn.fd]
            self.newcomers.discard(conn.fd)
        if conn.address is not None:
            self.open.leave(conn.address)
            conn.address = None

    def _enter(self, address: str, now_ms: int) -> bool:
        if address == UNIX:
            return True
        limits = self.broker.limits
        if not self.rate.admit(address, now_ms):
            most = limits.connection_rate_per_address
            self.broker.limit_log.hit("connection_rate_per_address", address, f"refused: more than {most} new connections a second")
            return False
        if not self.open.enter(address):
            most = limits.max_connections_per_address
            self.broker.limit_log.hit("max_connections_per_address", address, f"refused: {most} connections of this address are open")
            return False
        return True
