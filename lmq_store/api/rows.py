"""The MetaStore's keys and rows, byte for byte (docs/formats.md). Pure.

Numbers inside a row are little-endian; numbers inside a key are big-endian, so that keys sort by them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

ROW_VERSION = 1

# Events of a session's journal: what happened since its snapshot. A journal row is a run of them.
RECEIVED = 1  # an inbound QoS 2 PUBLISH with this packet id is stored; written with the message's own record
RELEASED = 2  # its PUBREL came: the packet id is free again
BOUND = 3  # an outbound QoS 2 packet id now means this message
PUBREC = 4  # the client has it: only PUBREL may be sent from here on
DONE = 5  # the exchange is over

# The low bits of an in-flight value: `position << 3 | retain << 2 | stage`.
STAGE_QOS1 = 1  # QoS 1 sent, PUBACK awaited
STAGE_QOS2 = 2  # QoS 2 sent, PUBREC awaited
STAGE_PUBREL = 3  # PUBREL sent, PUBCOMP awaited
RETAIN_BIT = 4

_SESSION = struct.Struct("<BBBxQIIQQH")
_SUBSCRIPTION = struct.Struct("<BBBxIQ")
_SNAPSHOT = struct.Struct("<BxHHH")
_IN_FLIGHT = struct.Struct("<HQ")
_U16 = struct.Struct("<H")
_U64 = struct.Struct("<Q")
_WALK = struct.Struct("<QQQ")
_KEY64 = struct.Struct(">Q")
_KEY64_64 = struct.Struct(">QQ")
_KEY64_64_16 = struct.Struct(">QQH")
_FILTER = struct.Struct("<QQ")
_WILL = struct.Struct("<BBBxIIQHHI")


class RowError(ValueError):
    """A row that no version of this program wrote."""


@dataclass(slots=True)
class SessionRow:
    """A session that outlives its connection. `expiry_s` 0xFFFFFFFF never expires (MQTT 5.0 §3.1.2.11.2)."""

    session_id: int
    epoch: int
    version: int
    expiry_s: int
    connected: bool
    connected_ms: int
    disconnected_ms: int
    user: bytes = b""

    def encode(self) -> bytes:
        return (
            _SESSION.pack(
                ROW_VERSION,
                self.connected,
                self.version,
                self.session_id,
                self.epoch,
                self.expiry_s,
                self.connected_ms,
                self.disconnected_ms,
                len(self.user),
            )
            + self.user
        )

    @classmethod
    def decode(cls, row: bytes) -> SessionRow:
        version, connected, protocol, session_id, epoch, expiry_s, at, gone, user = _unpack(_SESSION, row)
        _check(version)
        return cls(session_id, epoch, protocol, expiry_s, bool(connected), at, gone, row[_SESSION.size : _SESSION.size + user])


@dataclass(slots=True)
class SubscriptionRow:
    """One subscription of a stored session; its filter is in the key."""

    queue_id: int
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    replay: bool = False
    identifier: int = 0

    def encode(self) -> bytes:
        options = self.no_local | self.retain_as_published << 1 | self.replay << 2
        return _SUBSCRIPTION.pack(ROW_VERSION, self.qos, options, self.identifier, self.queue_id)

    @classmethod
    def decode(cls, row: bytes) -> SubscriptionRow:
        version, qos, options, identifier, queue_id = _unpack(_SUBSCRIPTION, row)
        _check(version)
        return cls(queue_id, qos, bool(options & 1), bool(options & 2), bool(options & 4), identifier)


@dataclass(slots=True)
class OffsetRow:
    """Where a reader stands in its queue. While it still walks the log for history (`walk_until` not 0), the walk's place."""

    next_offset: int
    walk_position: int = 0
    walk_until: int = 0

    def encode(self) -> bytes:
        if not self.walk_until:
            return _U64.pack(self.next_offset)
        return _WALK.pack(self.next_offset, self.walk_position, self.walk_until)

    @classmethod
    def decode(cls, row: bytes) -> OffsetRow:
        return cls(*_unpack(_U64 if len(row) == _U64.size else _WALK, row))


@dataclass(slots=True)
class RetainedWalkRow:
    """A new subscription is still owed retained messages: those written below `as_of`, from the topic `next_topic` on."""

    as_of: int
    next_topic: bytes = b""

    def encode(self) -> bytes:
        return _U64.pack(self.as_of) + self.next_topic

    @classmethod
    def decode(cls, row: bytes) -> RetainedWalkRow:
        return cls(u64_of(row), row[_U64.size :])


@dataclass(slots=True)
class DeliveryState:
    """A session's packets in flight: outbound packet id → value (see STAGE_*), inbound QoS 2 ids not yet released."""

    next_packet_id: int = 1
    in_flight: dict[int, int] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    bound: set[int] = field(default_factory=set)
    """Positions that were bound to a QoS 2 id and that readers, whose offsets trail after a crash, have yet to skip."""

    def encode(self) -> bytes:
        parts = [_SNAPSHOT.pack(ROW_VERSION, self.next_packet_id, len(self.in_flight), len(self.received))]
        parts += [_IN_FLIGHT.pack(packet_id, value) for packet_id, value in self.in_flight.items()]
        parts += [_U16.pack(packet_id) for packet_id in sorted(self.received)]
        parts += [_U64.pack(position) for position in sorted(self.bound)]
        return b"".join(parts)

    @classmethod
    def decode(cls, row: bytes) -> DeliveryState:
        version, next_packet_id, in_flight, received = _unpack(_SNAPSHOT, row)
        _check(version)
        state = cls(next_packet_id)
        at = _SNAPSHOT.size
        for _ in range(in_flight):
            packet_id, value = _IN_FLIGHT.unpack_from(row, at)
            state.in_flight[packet_id] = value
            at += _IN_FLIGHT.size
        for _ in range(received):
            state.received.add(_U16.unpack_from(row, at)[0])
            at += 2
        while at < len(row):
            state.bound.add(_U64.unpack_from(row, at)[0])
            at += 8
        return state

    def apply(self, events: bytes) -> None:
        """Replay one journal row."""
        at = 0
        while at < len(events):
            event = events[at]
            packet_id = _U16.unpack_from(events, at + 1)[0]
            at += 3
            if event == RECEIVED:
                self.received.add(packet_id)
            elif event == RELEASED:
                self.received.discard(packet_id)
            elif event == BOUND:
                value = _U64.unpack_from(events, at)[0]
                at += 8
                self.in_flight.pop(packet_id, None)
                self.in_flight[packet_id] = value
                self.bound.add(value >> 3)
                self.next_packet_id = packet_id % 65535 + 1
            elif event == PUBREC:
                if packet_id in self.in_flight:
                    self.in_flight[packet_id] = self.in_flight[packet_id] | STAGE_PUBREL
            elif event == DONE:
                self.in_flight.pop(packet_id, None)
            else:
                raise RowError(f"unknown journal event {event}")


@dataclass(slots=True)
class WillRow:
    """A will and when to publish it: `due_ms` 0 while the client is connected."""

    client_id: bytes
    topic: bytes
    payload: bytes
    properties: bytes
    qos: int
    retain: bool
    delay_s: int
    expiry_s: int
    due_ms: int = 0

    def encode(self) -> bytes:
        head = _WILL.pack(
            ROW_VERSION,
            self.qos,
            self.retain | (self.expiry_s >= 0) << 1,
            self.delay_s,
            max(self.expiry_s, 0),
            self.due_ms,
            len(self.client_id),
            len(self.topic),
            len(self.payload),
        )
        return head + self.client_id + self.topic + self.payload + self.properties

    @classmethod
    def decode(cls, row: bytes) -> WillRow:
        version, qos, flags, delay_s, expiry_s, due_ms, client, topic, payload = _unpack(_WILL, row)
        _check(version)
        a = _WILL.size
        b, c = a + client, a + client + topic
        d = c + payload
        return cls(
            row[a:b], row[b:c], row[c:d], row[d:], qos, bool(flags & 1), delay_s, expiry_s if flags & 2 else -1, due_ms
        )


def event(kind: int, packet_id: int) -> bytes:
    """One journal event without a value."""
    return bytes((kind, packet_id & 255, packet_id >> 8))


def bound_event(packet_id: int, value: int) -> bytes:
    """BOUND: the in-flight value goes with it."""
    return bytes((BOUND, packet_id & 255, packet_id >> 8)) + _U64.pack(value)


def session_key(session_id: int) -> bytes:
    """Key of SNAPSHOT and WILL rows; prefix of a session's SUBSCRIPTION, OFFSET and JOURNAL rows."""
    return _KEY64.pack(session_id)


def subscription_key(session_id: int, topic_filter: bytes) -> bytes:
    return _KEY64.pack(session_id) + topic_filter


def offset_key(session_id: int, queue_id: int) -> bytes:
    """Key of an OffsetRow; prefix of all that OFFSET has of one reader."""
    return _KEY64_64.pack(session_id, queue_id)


def retained_walk_key(session_id: int, queue_id: int) -> bytes:
    """Key of a RetainedWalkRow, in OFFSET behind its reader's own."""
    return offset_key(session_id, queue_id) + b"r"


def journal_key(session_id: int, position: int, sequence: int) -> bytes:
    """Key of a journal row written by a proxy: sorts after the record that ends at `position`."""
    return _KEY64_64_16.pack(session_id, position, sequence)


def filter_row(queue_id: int, since: int) -> bytes:
    """A registered filter: its queue, and the log position from which on the queue has every message that matches."""
    return _FILTER.pack(queue_id, since)


def filter_row_of(row: bytes) -> tuple[int, int]:
    """(queue id, since) of a FILTER row."""
    queue_id, since = _unpack(_FILTER, row)
    return queue_id, since


def u64_row(value: int) -> bytes:
    return _U64.pack(value)


def u64_of(row: bytes) -> int:
    return int(_unpack(_U64, row)[0])


def _unpack(layout: struct.Struct, row: bytes) -> tuple[int, ...]:
    try:
        return layout.unpack_from(row)
    except struct.error:
        raise RowError(f"row of {len(row)} bytes is too short") from None


def _check(version: int) -> None:
    if version != ROW_VERSION:
        raise RowError(f"row version {version} is not {ROW_VERSION}")


def filter_of(key: bytes) -> bytes:
    """The topic filter in a SUBSCRIPTION key."""
    return key[8:]
