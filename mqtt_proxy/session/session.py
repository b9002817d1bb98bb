"""A session and its readers: what is subscribed, what is in flight, where each reader stands. Pure; compiled.

A slow or offline client costs one integer per subscription (`Reader.next_offset`), never a buffer.
"""

from __future__ import annotations

from typing import Any

from lmq_store.api.model import LightQueue

# Why a session's delivery is not running (law five: every pause has a name).
CAUGHT_UP = 0
"""Every reader stands at the end of its queue: the next batch is delivered straight from memory."""
BEHIND = 1
"""Messages wait in the log; the session will be pumped."""
WINDOW_FULL = 2
"""Receive Maximum messages are unacknowledged; an acknowledgement goes on."""
LINK_BUSY = 3
"""The link does not take bytes; draining goes on."""
OFFLINE = 4
"""No connection."""
ASKING = 5
"""A plugin is asked whether the next message may be received; its answer goes on."""

PACKET_IDS = 65535


class Reader:
    """One subscription's place in one light queue.

    `plain` is true where a delivery needs nothing beyond the cached frame: no subscription identifier, No Local, Retain
    As Published, held-back topics, position properties or outgoing alias.
    """

    __slots__ = (
        "dirty",
        "group",
        "receivable",
        "identifier",
        "next_offset",
        "no_local",
        "plain",
        "qos",
        "queue",
        "replay",
        "retain_as_published",
        "session",
        "topic_filter",
    )

    def __init__(self, session: Session | None, topic_filter: bytes, queue: LightQueue, qos: int) -> None:
        self.session = session
        self.topic_filter = topic_filter
        self.queue = queue
        self.qos = qos
        self.next_offset = 0
        self.no_local = False
        self.retain_as_published = False
        self.identifier = 0
        self.replay = False
        self.receivable: Any = None
        self.plain = True
        self.dirty = False
        self.group: Any = None

    def settle(self) -> None:
        """Work out `plain` after the options were set."""
        special = self.no_local or self.retain_as_published or self.identifier or self.replay or self.receivable is not None
        self.plain = not special


class Session:
    """The state of one client between CONNECT and the session's end (MQTT 5.0 §4.1)."""

    __slots__ = (
        "bound",
        "client_id",
        "connection",
        "cursors",
        "online_from",
        "dirty",
        "epoch",
        "expiry_s",
        "groups",
        "id",
        "in_flight",
        "inflight_max",
        "journal",
        "merge",
        "next_packet_id",
        "persistent",
        "pump_due",
        "readers",
        "received",
        "redelivered_below",
        "shared",
        "state",
        "subscriptions",
        "touched_reader",
        "touched_run",
        "touched_runs",
        "touched_turn",
        "user",
        "version",
    )

    def __init__(self, session_id: int, client_id: bytes, version: int) -> None:
        self.id = session_id
        self.client_id = client_id
        self.version = version
        self.epoch = 1
        self.expiry_s = 0
        self.persistent = False
        self.user: bytes = b""
        self.connection: Any = None
        self.state = OFFLINE
        self.subscriptions: dict[bytes, Reader] = {}
        self.readers: list[Reader] = []
        self.groups: list[Any] | None = None
        """The shared subscriptions that this session is a member of."""
        self.shared: dict[int, Any] | None = None
        """Packet id → (group, handle) of messages lent by a shared subscription."""
        self.in_flight: dict[int, int] = {}
        self.inflight_max = 1
        self.next_packet_id = 1
        self.received: set[int] | None = None
        self.bound: set[int] | None = None
        self.redelivered_below = 0
        """QoS 1 messages below this position may have been sent before a crash: they go out with DUP."""
        self.journal: bytearray | None = None
        self.cursors: list[Any] | None = None
        """Walks through retained messages and history that are not done yet."""
        self.merge: Any = None
        self.online_from = -1
        self.dirty = False
        self.pump_due = False
        self.touched_turn = 0
        self.touched_reader: Reader | None = None
        self.touched_run: Any = None
        self.touched_runs: list[Any] | None = None

    def take_packet_id(self) -> int:
        """The next packet identifier that is not in use [MQTT-2.2.1-3]. The caller knows that the window has room."""
        packet_id = self.next_packet_id
        while packet_id in self.in_flight:
            packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
        self.next_packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
        return packet_id

    def room(self) -> int:
        """How many more QoS 1 and 2 messages may be in flight [MQTT-3.3.4-9]."""
        return self.inflight_max - len(self.in_flight)
