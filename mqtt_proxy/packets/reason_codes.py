"""Every MQTT 5 reason code, and the errors that carry one. MQTT 5.0 §2.4."""

from __future__ import annotations

from enum import IntEnum


class ReasonCode(IntEnum):
    """MQTT 5.0 §2.4, with the specification's names. From 0x80 on they tell of a failure."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


_R = ReasonCode

ACK_REASONS: dict[int, frozenset[int]] = {
    # PUBACK and PUBREC share a table [MQTT-3.4.2-1] [MQTT-3.5.2-1], PUBREL and PUBCOMP another [MQTT-3.6.2-1] [MQTT-3.7.2-1].
    4: frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)),
    5: frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)),
    6: frozenset((0x00, 0x92)),
    7: frozenset((0x00, 0x92)),
}
"""Packet type → the reasons that it may carry."""

CONNACK_REASONS = frozenset((0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F))
"""[MQTT-3.2.2-8]"""

SUBACK_REASONS = frozenset((0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2))
"""[MQTT-3.9.3-2]"""

UNSUBACK_REASONS = frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91))
"""[MQTT-3.11.3-2]"""

CLIENT_DISCONNECT_REASONS = frozenset((0x00, 0x04, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A)))
SERVER_DISCONNECT_REASONS = frozenset((0x00, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)))
"""Who may end a connection with what. [MQTT-3.14.2-1]"""

CLIENT_AUTH_REASONS = frozenset((0x18, 0x19))
SERVER_AUTH_REASONS = frozenset((0x00, 0x18))
"""[MQTT-3.15.2-1]"""


class ProtocolError(Exception):
    """The other side broke the protocol; `reason` is what a DISCONNECT or CONNACK tells it. `str(error)` is one line."""

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(message)
        self.reason = ReasonCode(reason)


class MalformedPacket(ProtocolError):
    """The bytes can't be parsed as the specification says. MQTT 5.0 §4.13 [MQTT-4.13.1-1]"""

    def __init__(self, message: str) -> None:
        super().__init__(_R.MALFORMED_PACKET, message)


class ProtocolViolation(ProtocolError):
    """A well-formed packet that is not allowed here, or whose fields contradict each other."""

    def __init__(self, message: str) -> None:
        super().__init__(_R.PROTOCOL_ERROR, message)


class PacketTooLarge(ProtocolError):
    """A fixed header claims more than the Maximum Packet Size."""

    def __init__(self, message: str) -> None:
        super().__init__(_R.PACKET_TOO_LARGE, message)


class QuotaExceeded(ProtocolError):
    """More of something in one packet than this side takes."""

    def __init__(self, message: str) -> None:
        super().__init__(_R.QUOTA_EXCEEDED, message)


class TopicNameInvalid(ProtocolError):
    """A topic name with a wildcard in it. [MQTT-3.3.2-2]"""

    def __init__(self, message: str) -> None:
        super().__init__(_R.TOPIC_NAME_INVALID, message)


class TopicAliasInvalid(ProtocolError):
    """Topic Alias 0, or one above the maximum that was granted. [MQTT-3.3.2-8] [MQTT-3.3.2-9]"""

    def __init__(self, message: str) -> None:
        super().__init__(_R.TOPIC_ALIAS_INVALID, message)


class UnsupportedProtocolVersion(ProtocolError):
    """A CONNECT for a protocol that isn't served; `version` is the level it asked for, or 5 for a later one in the form of 5.0.

    [MQTT-3.1.2-2] of 3.1.1 wants return code 0x01, that of 5.0 allows reason 0x84: each can be told in its own form only.
    """

    def __init__(self, message: str, version: int) -> None:
        super().__init__(_R.UNSUPPORTED_PROTOCOL_VERSION, message)
        self.version = version


_CONNACK_311: dict[int, int] = {
    _R.SUCCESS: 0,
    _R.UNSUPPORTED_PROTOCOL_VERSION: 1,
    _R.CLIENT_IDENTIFIER_NOT_VALID: 2,
    _R.SERVER_UNAVAILABLE: 3,
    _R.SERVER_BUSY: 3,
    _R.SERVER_SHUTTING_DOWN: 3,
    _R.QUOTA_EXCEEDED: 3,
    _R.USE_ANOTHER_SERVER: 3,
    _R.SERVER_MOVED: 3,
    _R.CONNECTION_RATE_EXCEEDED: 3,
    _R.BAD_USER_NAME_OR_PASSWORD: 4,
    _R.NOT_AUTHORIZED: 5,
    _R.BANNED: 5,
    _R.BAD_AUTHENTICATION_METHOD: 5,
}


def connack_311(reason: int) -> int | None:
    """The MQTT 3.x CONNACK return code for a reason; None where none fits and the connection is just closed.

    MQTT 3.1.1 §3.2.2.3 [MQTT-3.2.2-6]
    """
    return _CONNACK_311.get(reason)
