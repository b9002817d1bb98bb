"""Every limit of the proxy by name, with its unit, default and range; the defaults are fit for a public port.

One table (the fields of `Limits`) drives the settings, their check and the documents. 0 means "off" where a limit says
so. The rate limiters that apply them are in rates.py.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

NEVER_EXPIRES: Final = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (MQTT 5.0 §3.1.2.11.2)."""

MIB: Final = 1 << 20


class LimitError(ValueError):
    """A limit is out of its range; the text names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit as the documents and `lmq config` show it. `off` tells that 0 switches it off."""

    name: str
    unit: str
    default: int
    low: int
    high: int
    off: bool
    about: str

    def allowed(self) -> str:
        """The range in words, for an error or a document."""
        return f"{self.low} to {self.high}" + (", 0 is off" if self.off else "")

    def check(self, value: object) -> int:
        """The value, if it is one; LimitError otherwise."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise LimitError(f"{self.name} = {value!r}: a whole number of {self.unit} is needed ({self.allowed()})")
        if not (self.low <= value <= self.high or (self.off and value == 0)):
            raise LimitError(f"{self.name} = {value}: allowed are {self.allowed()} ({self.unit})")
        return value


def _limit(default: int, unit: str, low: int, high: int, about: str, off: bool = False) -> Any:
    return field(default=default, metadata={"unit": unit, "low": low, "high": high, "about": about, "off": off})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in force. Immutable: a reload makes a new one. Raises LimitError for a value out of range."""

    # Connections
    max_connections: int = _limit(50_000, "connections", 1, 1_000_000, "Open at the same time; one more is closed at accept.")
    max_connections_per_address: int = _limit(
        0, "connections", 1, 1_000_000, "Open at the same time from one address (IPv6: one /64 network).", off=True
    )
    connection_rate_per_address: int = _limit(
        0, "connections/s", 1, 100_000, "New connections from one address (IPv6: /64) each second; a burst of one second's worth.", off=True
    )
    connect_timeout_s: int = _limit(10, "s", 1, 3_600, "From accept to a complete CONNECT, TLS and WebSocket handshakes included.")
    auth_timeout_s: int = _limit(15, "s", 1, 3_600, "From CONNECT to the end of the authentication.")
    max_keepalive_s: int = _limit(
        0, "s", 1, 65_535, "Longest keep alive; a client that asks for more, or for none, gets this one (MQTT 5 is told).", off=True
    )
    max_client_id_bytes: int = _limit(1_024, "bytes", 23, 65_535, "Client identifier; longer ones are refused with 0x85.")

    # Packets and topics
    max_packet_bytes: int = _limit(MIB, "bytes", 128, 268_435_460, "Whole packet; announced as Maximum Packet Size, beyond it 0x95.")
    max_properties: int = _limit(256, "properties", 16, 65_535, "Properties of one packet, user properties counted each.")
    max_topic_bytes: int = _limit(65_535, "bytes", 1, 65_535, "Topic name or filter.")
    # No more than FilterTrie holds.
    max_topic_levels: int = _limit(201, "levels", 2, 512, "Levels of a topic name or filter (one more than it has `/`).")
    max_filters_per_packet: int = _limit(
        10_000, "filters", 1, 1_000_000, "Filters of one SUBSCRIBE or UNSUBSCRIBE; each one beyond it gets 0x97 (UNSUBACK: 0x83)."
    )
    topic_alias_in_max: int = _limit(10, "aliases", 0, 65_535, "Topic aliases that a client may set; announced.", off=True)
    topic_alias_out_max: int = _limit(16, "aliases", 0, 65_535, "Topic aliases used towards a client, at most what it announced.", off=True)

    # Windows, buffers, rates
    inflight_in_max: int = _limit(
        100, "messages", 1, 65_535, "QoS 1 and 2 taken from a client and not answered yet: announced as Receive Maximum, beyond it 0x93."
    )
    inflight_out_max: int = _limit(
        1_024, "messages", 1, 65_535, "QoS 1 and 2 on the way to a client, at most its Receive Maximum; what MQTT 3 clients get."
    )
    max_buffered_bytes: int = _limit(
        262_144,
        "bytes",
        4_096,
        1 << 30,
        "Waiting to be sent on one connection; above it deliveries to it pause, above four times of it reading from it too.",
    )
    link_stalled_s: int = _limit(
        0, "s", 1, 86_400, "A connection that takes nothing for so long while bytes wait for it is closed.", off=True
    )
    message_rate_per_client: int = _limit(
        0, "messages/s", 1, 10_000_000, "Messages published by one client; beyond it, its socket is not read for a while.", off=True
    )
    message_burst_per_client: int = _limit(
        0, "messages", 1, 10_000_000, "Messages that may come at once under that rate; 0 is one second's worth.", off=True
    )

    # State
    max_sessions: int = _limit(1_000_000, "sessions", 1, 100_000_000, "Connected or not; a new one beyond it is refused with 0x97.")
    session_expiry_max_s: int = _limit(
        NEVER_EXPIRES, "s", 0, NEVER_EXPIRES, "Longest session expiry, MQTT 3 sessions included; 4294967295 is never."
    )
    will_delay_max_s: int = _limit(NEVER_EXPIRES, "s", 0, NEVER_EXPIRES, "Longest will delay; longer ones are shortened to it.")
    max_subscriptions_per_client: int = _limit(10_000, "subscriptions", 1, 10_000_000, "Of one session; one more is refused with 0x97.")
    max_queues: int = _limit(2_000_000, "queues", 1, 100_000_000, "Light queues: different filters that any session holds; beyond it 0x97.")
    max_queue_name_bytes: int = _limit(512 * MIB, "bytes", 1 << 16, 1 << 40, "All those filters together; beyond it 0x97.")
    max_retained: int = _limit(
        1_000_000,
        "messages",
        0,
        100_000_000,
        "Retained messages; a new topic beyond it is refused with 0x97 (QoS 0: delivered, but not kept).",
    )
    max_retained_bytes: int = _limit(1 << 30, "bytes", 1, 1 << 50, "Topics, payloads and properties of all retained messages.", off=True)

    # Authentication
    auth_threads: int = _limit(1, "threads", 1, 64, "Verify passwords beside the loop.")
    auth_queue_max: int = _limit(10_000, "logins", 1, 1_000_000, "Waiting for a password check; one more is refused with 0x89.")
    auth_cache_s: int = _limit(300, "s", 1, 86_400, "A password found right is taken again without the slow hash.", off=True)
    auth_cache_max: int = _limit(100_000, "logins", 1, 10_000_000, "Passwords remembered so (a keyed digest each, never the password).")
    auth_failures_max: int = _limit(
        20, "failures", 1, 1_000_000, "Failed logins of a user from one address (IPv6: /64) in the window before a ban.", off=True
    )
    auth_failures_per_address_max: int = _limit(
        200, "failures", 1, 1_000_000, "Failed logins from one address (IPv6: /64) in the window, any users; then it is banned.", off=True
    )
    auth_failure_window_s: int = _limit(60, "s", 1, 86_400, "Failures are counted over this time.")
    auth_ban_s: int = _limit(60, "s", 1, 86_400, "The banned get 0x8A without a look at their password.")
    max_tracked_addresses: int = _limit(65_536, "addresses", 16, 10_000_000, "Addresses remembered for rates and failures, latest first.")

    def __post_init__(self) -> None:
        for row in LIMITS:
            row.check(getattr(self, row.name))

    def keepalive_s(self, asked_s: int) -> int:
        """The keep alive in force; other than asked, it goes out as Server Keep Alive (MQTT 5.0 §3.2.2.3.14)."""
        longest = self.max_keepalive_s
        if longest and (asked_s == 0 or asked_s > longest):
            return longest
        return asked_s

    def session_expiry_s(self, asked_s: int) -> int:
        """The session expiry in force; other than asked, CONNACK tells it (MQTT 5.0 §3.2.2.3.2)."""
        return min(asked_s, self.session_expiry_max_s)

    def will_delay_s(self, asked_s: int) -> int:
        return min(asked_s, self.will_delay_max_s)

    def exceeded_by_topic(self, topic: bytes) -> str:
        """The limit that a topic name or filter exceeds, by its name; "" where it exceeds none."""
        if len(topic) > self.max_topic_bytes:
            return "max_topic_bytes"
        return "max_topic_levels" if topic.count(b"/") >= self.max_topic_levels else ""

    def inflight_out(self, receive_maximum: int) -> int:
        """The window towards a client that announced this Receive Maximum (65,535 when it announced none)."""
        return min(receive_maximum, self.inflight_out_max)


def _row(of: Field[Any]) -> LimitRow:
    default: Any = of.default
    about = of.metadata
    return LimitRow(of.name, about["unit"], default, about["low"], about["high"], about["off"], about["about"])


LIMITS: Final[tuple[LimitRow, ...]] = tuple(_row(of) for of in fields(Limits))
"""All limits in the order of the documents."""
