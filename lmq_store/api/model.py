"""The values that cross the store's ports. Compiled from this very file; every field is a byte string or an int.

Units: times are milliseconds since the Unix epoch (`*_ms`), lengths are bytes.

Compiled, the cycle collector does not know them (`no_gc`): they are by far the most objects there are, and its passes over
a million queues and fifty thousand fresh messages would show as pauses. So whoever hangs readers on a queue takes them off.
"""

from __future__ import annotations

from typing import Any

import cython

NEVER = 0
"""`Message.expires_ms` of a message without an expiry."""

UNKNOWN = -1
"""A queue offset that has not been looked up yet."""


@cython.no_gc
@cython.cclass
class LightQueue:
    """A named, ordered list of messages (LMQ): the handle that the store gives and the proxy keeps.

    `name` is the topic filter it serves (or another internal name, see docs/formats.md). `readers` belongs to whoever
    opened the queue: the store only looks whether it is empty, to know if a batch is to be handed over. `holders` counts
    the sessions and groups that hold the queue, connected or not, and `since` is the log position from which on the queue
    has every message of its filter; they too belong to the proxy.
    """

    __slots__ = ("holders", "id", "name", "next_offset", "readers", "run", "since")

    def __init__(self, id: int, name: bytes, next_offset: int = UNKNOWN) -> None:
        self.id = id
        self.name = name
        self.next_offset = next_offset
        self.readers: list[Any] = []
        self.run: Run | None = None
        self.holders = 0
        self.since = 0


@cython.no_gc
@cython.cclass
class Run:
    """The consecutive messages that one append added to one light queue, at `first_offset` and up."""

    __slots__ = ("first_offset", "messages", "queue", "wire")

    def __init__(self, queue: LightQueue, first_offset: int) -> None:
        self.queue = queue
        self.first_offset = first_offset
        self.messages: list[Message] = []
        self.wire: Any = None


@cython.no_gc
@cython.cclass
class Route:
    """Where messages of one topic go: the parent topic's partitions and the light queues that match."""

    __slots__ = ("lights", "parent_id", "parents", "topic")

    def __init__(self, topic: bytes, parent_id: int, parents: list[LightQueue], lights: list[LightQueue]) -> None:
        self.topic = topic
        self.parent_id = parent_id
        self.parents = parents
        self.lights = lights


@cython.no_gc
@cython.cclass
class Message:
    """One application message, as decoded, stored and delivered.

    `properties` is the MQTT 5 PUBLISH property block as received, byte for byte, without its length, Topic Alias and
    Message Expiry Interval (those live in `topic_alias`, `expiry_s`, `expires_ms`). `position` is the physical offset,
    `size` the record's length; both are set at append. `wire4`/`wire5` cache the PUBLISH frame (QoS > 0, retain 0,
    packet id 0) for MQTT 3.x and 5 subscribers, so that a fan-out encodes once.
    """

    __slots__ = (
        "born_ms",
        "client_id",
        "dup",
        "expires_ms",
        "expiry_s",
        "packet_id",
        "partition",
        "payload",
        "position",
        "properties",
        "qos",
        "retain",
        "route",
        "session_id",
        "size",
        "stored_ms",
        "topic",
        "topic_alias",
        "will",
        "wire4",
        "wire5",
    )

    def __init__(self, topic: bytes, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = False
        self.will = False
        self.properties: bytes = b""
        self.client_id: bytes = b""
        self.packet_id = 0
        self.topic_alias = 0
        self.expiry_s = -1
        self.expires_ms = NEVER
        self.born_ms = 0
        self.stored_ms = 0
        self.session_id = 0
        self.partition = 0
        self.position = -1
        self.size = 0
        self.route: Route | None = None
        self.wire4: bytes | None = None
        self.wire5: bytes | None = None

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.payload)} B, qos={self.qos}, position={self.position})"


@cython.no_gc
@cython.cclass
class Pulled:
    """The answer to a pull: messages at offsets `first_offset`, +1, …; go on at `next_offset`.

    `offsets` names each message's queue offset (holes are possible where retention or collection took records).
    """

    __slots__ = ("messages", "next_offset", "offsets")

    def __init__(self, messages: list[Message], offsets: list[int], next_offset: int) -> None:
        self.messages = messages
        self.offsets = offsets
        self.next_offset = next_offset
