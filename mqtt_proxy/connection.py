"""One MQTT connection: bytes to packets on a link, and what the protocol knows of this connection alone. Compiled.

Everything that outlives the connection is in the session (session/session.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqtt_proxy.net.link import Link
from mqtt_proxy.packets import decoder
from mqtt_proxy.packets.reason_codes import ProtocolError

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.net.listener import Listener
    from mqtt_proxy.net.turn import Turn
    from mqtt_proxy.policy.identity import Identity
    from mqtt_proxy.session.session import Session

# The phases of a connection; which packets each allows: flows/dispatch.py.
AWAIT_CONNECT = 0
AUTHENTICATING = 1
"""CONNECT came; its answer waits for a password check, a challenge or the disk."""
CONNECTED = 2
CLOSING = 3
HELD = 4
"""A packet waits for a plugin's answer; those behind it wait too, in order."""

PACKET_IDS_IN_FLIGHT_3 = 1000
"""Unacknowledged messages of a 3.x client, which knows no Receive Maximum, at which the proxy stops reading from it."""

UNLIMITED = 268_435_460
"""The largest packet that the protocol can express (MQTT 5.0 §2.1.4)."""


class Connection(Link):
    """A link that speaks MQTT. `after_sync` holds bytes that may leave only when this turn's batch is durable."""

    __slots__ = (
        "after_count",
        "after_sync",
        "address",
        "alias_max_in",
        "alias_max_out",
        "aliases_in",
        "aliases_out",
        "broker",
        "client_id",
        "connect",
        "connected_ms",
        "exchange",
        "gate",
        "held",
        "identity",
        "keep_alive_ms",
        "last_read_ms",
        "max_packet_in",
        "max_packet_out",
        "rights",
        "normal_close",
        "partition",
        "paused_until_ms",
        "phase",
        "plain",
        "problem_information",
        "rate",
        "receive_max_in",
        "session",
        "unacked_in",
        "version",
        "waiting",
        "waiting_window",
        "will_wanted",
    )

    def __init__(self, broker: Broker, turn: Turn, fd: int, peer: str, listener: Listener | None = None) -> None:
        super().__init__(turn, fd, peer, listener)
        self.broker = broker
        self.session: Session | None = None
        self.identity: Identity | None = None
        self.connect: Any = None
        self.exchange: Any = None
        self.waiting: list[Any] | None = None
        self.waiting_window = False
        self.client_id = b""
        self.version = 0
        self.phase = AWAIT_CONNECT
        self.partition = 0
        self.keep_alive_ms = 0
        self.last_read_ms = turn.now_ms
        self.connected_ms = 0
        self.after_sync: bytearray | None = None
        self.after_count = 0
        self.held = 0
        """Batches that are not durable yet and hold bytes for this connection."""
        self.unacked_in = 0
        self.receive_max_in = 0
        self.max_packet_in = broker.max_packet
        self.max_packet_out = UNLIMITED
        self.alias_max_in = 0
        self.alias_max_out = 0
        self.aliases_in: dict[int, bytes] | None = None
        self.aliases_out: dict[bytes, int] | None = None
        self.rights: Any = None
        """What the ACL allows this identity (policy/acl.py Rights); None where nothing is restricted."""
        self.gate: Any = None
        """What plugins say beside the ACL, which may take a while (flows/plugin_gate.py); None without such plugins."""
        self.address: str | None = None
        """The address that this connection counts for (flows/admission.py)."""
        self.plain = True
        self.problem_information = True
        self.normal_close = False
        self.will_wanted = True
        self.rate: Any = None
        self.paused_until_ms = 0

    def received(self, buffer: bytearray, start: int, end: int) -> int:
        """Decode and act on every complete packet of `buffer[start:end]`; the position of the first byte left over."""
        broker = self.broker
        self.last_read_ms = self.turn.now_ms
        items: list[Any] = []
        at = start
        try:
            at = decoder.decode(buffer, start, end, self.version, self.max_packet_in, items, True, broker.max_properties)
            if self.version == 0 and items:  # the CONNECT; what follows it is in that version's language
                broker.inbound.take(self, items)
                if self.phase == AUTHENTICATING and self.exchange is None:
                    self.pause_reading()  # what it sends behind its CONNECT stays bytes until CONNACK (MQTT 5.0 §3.1.4)
                    return at
                if self.version and self.phase != CLOSING and at < end:
                    items = []
                    at = decoder.decode(buffer, at, end, self.version, self.max_packet_in, items, True, broker.max_properties)
                else:
                    return end if self.phase == CLOSING else at
        except ProtocolError as error:
            if items:
                broker.inbound.take(self, items)
            broker.refuse(self, error)
            return end
        if items:
            broker.inbound.take(self, items)
        return end if self.phase == CLOSING else at

    def needed(self, buffer: bytearray, start: int, end: int) -> int:
        """The length of the packet that begins at `start`; 0 while its header is incomplete."""
        return decoder.frame_length(buffer, start, end)

    def drained(self) -> None:
        """The link takes bytes again: go on where delivery stood."""
        session = self.session
        if session is not None:
            self.broker.deliverer.wake(session)
            if session.groups is not None:  # a member that was passed over
                self.broker.deliverer.wake_groups(session)

    def takes_peer(self, peer: str) -> bool:
        """The peer behind a balancer: its own address counts."""
        self.peer = peer
        return self.broker.admission.readdressed(self)

    def lost(self, reason: str) -> None:
        """The link is gone."""
        self.broker.connection_lost(self, reason)

    def alias_for(self, topic: bytes, may_give: bool) -> tuple[int, bool]:
        """The outgoing alias of a topic, and whether the name has to go with it (MQTT 5.0 §3.3.2.3.4).

        A packet that leaves later than what comes after it may use an alias but not give one.
        """
        known = self.aliases_out
        if known is None:
            known = self.aliases_out = {}
        alias = known.get(topic)
        if alias is not None:
            return alias, False
        if not may_give or len(known) >= self.alias_max_out:  # [MQTT-3.3.2-11]
            return 0, True
        alias = len(known) + 1
        known[topic] = alias
        return alias, True

    def take_back_alias(self, topic: bytes) -> None:
        """The packet that was to give the topic its alias is not sent."""
        if self.aliases_out is not None:
            self.aliases_out.pop(topic, None)
