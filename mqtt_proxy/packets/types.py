"""The control packets as objects, except PUBLISH (which is `lmq_store.api.model.Message`).

Strings are the UTF-8 bytes as received. Times are in seconds, as on the wire (`*_s`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from mqtt_proxy.packets.properties import Properties

V31 = 3
V311 = 4
V5 = 5
"""Protocol levels, as a CONNECT names them. [MQTT-3.1.2-2]"""


class PacketType(IntEnum):
    """The upper four bits of the first byte. MQTT 5.0 §2.1.2"""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(slots=True)
class Will:
    """The message a server publishes for a client that is gone. `properties` is ready for `Message.properties`."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""
    delay_s: int = 0
    expiry_s: int = -1
    """-1: never expires."""


@dataclass(slots=True)
class Connect:
    version: int
    client_id: bytes
    clean_start: bool = True
    keep_alive: int = 0
    """Seconds; 0 turns it off."""
    username: bytes | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Connack:
    session_present: bool
    reason: int
    """An MQTT 3.x return code (0 to 5) or an MQTT 5 reason code."""
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Puback:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (`kind`) with a reason or properties; the plain ones are decoded to an int."""

    kind: PacketType
    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class SubscriptionRequest:
    """One filter of a SUBSCRIBE with its options. MQTT 5.0 §3.8.3.1"""

    filter: bytes
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    packet_id: int
    filters: list[SubscriptionRequest]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Suback:
    packet_id: int
    reasons: list[int]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Unsubscribe:
    packet_id: int
    filters: list[bytes]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Unsuback:
    packet_id: int
    reasons: list[int]
    """Empty in MQTT 3.x."""
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Pingreq:
    """Decoded to the int `12 << 16`; this class only names the packet."""


@dataclass(slots=True)
class Pingresp:
    """Decoded to the int `13 << 16`; this class only names the packet."""


@dataclass(slots=True)
class Disconnect:
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Auth:
    reason: int = 0
    properties: Properties = field(default_factory=Properties)
