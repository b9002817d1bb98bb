"""A small blocking MQTT client for `lmq pub` and `lmq sub`: one socket, one select, no loop; starts in milliseconds."""

from __future__ import annotations

import errno
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from lmq_store.api.model import Message
from mqtt_proxy.packets import decoder, encoder
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.reason_codes import ProtocolError, ReasonCode
from mqtt_proxy.packets.types import V5, Connack, Connect, Disconnect, Puback, Subscribe, SubscriptionRequest, Unsubscribe, Will

MAX_PACKET_BYTES = 268_435_460
"""The largest packet that MQTT can express."""
READ_BYTES = 262_144
WINDOW = 20
"""QoS 1 and 2 messages on their way at the same time, at most the server's Receive Maximum."""
PINGREQ = b"\xc0\x00"
PUBACK, PUBREC, PUBREL, PUBCOMP, PINGRESP = 4, 5, 6, 7, 13

_RETURN_CODES = {
    1: "the protocol version is not supported",
    2: "the client identifier is not valid",
    3: "the server is unavailable",
    4: "bad user name or password",
    5: "not authorized",
}


class ClientError(Exception):
    """What went wrong with the server, in one line."""


class ConnectionLost(ClientError):
    """The connection ended without a DISCONNECT of ours; connecting again may help."""


@dataclass(frozen=True)
class Target:
    """Where to connect, and as whom."""

    host: str = "localhost"
    port: int = 1883
    unix: str = ""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False
    bind: str = ""
    version: int = V5
    client_id: str = ""
    username: str | None = None
    password: str | None = None
    keep_alive: int = 60
    clean: bool = True
    session_expiry_s: int = 0
    will: Will | None = None
    connect_properties: Properties = field(default_factory=Properties)
    timeout_s: float = 10.0
    debug: bool = False

    @property
    def text(self) -> str:
        """The address as people write it."""
        return f"unix://{self.unix}" if self.unix else f"{self.host}:{self.port}"


def reason_text(reason: int, version: int) -> str:
    """A reason code in words: `not authorized (0x87)`."""
    if version != V5:
        return _RETURN_CODES.get(reason, f"return code {reason}")
    try:
        return f"{ReasonCode(reason).name.lower().replace('_', ' ')} (0x{reason:02X})"
    except ValueError:
        return f"0x{reason:02X}"


def _with_reason_string(text: str, properties: Properties) -> str:
    return f"{text}: {properties.reason_string.decode()}" if properties.reason_string else text


class Client:
    """A connected MQTT session. Raises ClientError with a readable line whenever the server does not play along."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.version = target.version
        self.session_present = False
        self.keep_alive = target.keep_alive
        self.window = WINDOW
        self.max_packet = MAX_PACKET_BYTES
        self.unanswered: dict[int, int] = {}
        """Packet id → the acknowledgement that is awaited, for the messages that we published."""
        self.refused: list[str] = []
        """What the server said about messages that it did not take."""
        self._early: list[object] = []
        self._received: set[int] = set()
        self._buffer = bytearray()
        self._last_id = 0
        self._sent_at = self._heard_at = time.monotonic()
        self._socket = self._open()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._connect()

    def _open(self) -> socket.socket:
        target = self.target
        try:
            if target.unix:
                link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                link.settimeout(target.timeout_s)
                link.connect(target.unix)
            else:
                source = (target.bind, 0) if target.bind else None
                link = socket.create_connection((target.host, target.port), target.timeout_s, source)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._secured(link) if target.tls else link
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ConnectionLost(f"cannot connect to {target.text}: {reason}") from None

    def _secured(self, link: socket.socket) -> socket.socket:
        import ssl

        target = self.target
        try:
            context = ssl.create_default_context(cafile=target.ca or None)
            if target.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if target.cert:
                context.load_cert_chain(target.cert, target.key or None)
        except OSError as error:
            raise ClientError(f"a TLS file cannot be used: {error.strerror or error}") from None
        try:
            return context.wrap_socket(link, server_hostname=target.host)
        except ssl.SSLError as error:
            raise ClientError(f"TLS with {target.text} failed: {error.reason or error}") from None

    def _connect(self) -> None:
        target = self.target
        properties = replace(target.connect_properties)
        if target.session_expiry_s:
            properties.session_expiry = target.session_expiry_s
        user, password = target.username, target.password
        self.send(
            encoder.connect(
                Connect(
                    target.version, target.client_id.encode(), target.clean, target.keep_alive,
                    None if user is None else user.encode(), None if password is None else password.encode(), target.will, properties,
                )
            )
        )  # fmt: skip
        deadline = time.monotonic() + target.timeout_s
        self.version = 0
        packets: list[object] = []
        while not packets:
            if time.monotonic() > deadline:
                raise ConnectionLost(f"{target.text} did not answer within {target.timeout_s:g} s")
            packets = self.receive(0.5)
        answer, *self._early = packets  # a resumed session's messages follow at once
        if not isinstance(answer, Connack):
            raise ClientError(f"{target.text} answered CONNECT with {type(answer).__name__}")
        if answer.reason:
            text = _with_reason_string(reason_text(answer.reason, target.version), answer.properties)
            raise ClientError(f"{target.text} refused the connection: {text}")
        self.version = target.version
        self.session_present = answer.session_present
        told = answer.properties
        self.keep_alive = target.keep_alive if told.server_keep_alive is None else told.server_keep_alive
        self.window = min(WINDOW, told.receive_maximum or WINDOW)
        self.max_packet = told.maximum_packet_size or MAX_PACKET_BYTES

    # ------------------------------------------------------------------------------------------------ bytes

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all of it, waiting while the socket is full."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"connection to {self.target.text} lost: {error.strerror or error}") from None
        self._sent_at = time.monotonic()

    def receive(self, timeout_s: float) -> list[object]:
        """The packets that came within the time (perhaps none), acknowledgements answered; keeps the connection alive."""
        if self._early:
            early, self._early = self._early, []
            return early
        self._ping_when_due()
        pending = getattr(self._socket, "pending", None)
        if not (pending and pending()) and not self._selector.select(self._wait_s(timeout_s)):
            return []
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR) or type(error).__name__ == "SSLWantReadError":
                return []
            raise ConnectionLost(f"connection to {self.target.text} lost: {error.strerror or error}") from None
        if not data:
            raise ConnectionLost(f"{self.target.text} closed the connection")
        self._heard_at = time.monotonic()
        self._buffer += data
        packets: list[object] = []
        try:
            used = decoder.decode(self._buffer, 0, len(self._buffer), self.version, MAX_PACKET_BYTES, packets, False)
            if self.version == 0 and packets:
                used = decoder.decode(self._buffer, used, len(self._buffer), self.target.version, MAX_PACKET_BYTES, packets, False)
        except ProtocolError as error:
            raise ClientError(f"{self.target.text} broke the protocol: {error}") from None
        del self._buffer[:used]
        return [packet for packet in packets if self._handled(packet)]

    def _wait_s(self, timeout_s: float) -> float:
        if not self.keep_alive:
            return timeout_s
        return max(0.0, min(timeout_s, self._sent_at + self.keep_alive * 0.9 - time.monotonic()))

    def _ping_when_due(self) -> None:
        now = time.monotonic()
        if not self.keep_alive or self.version == 0:
            return
        if now - self._heard_at > self.keep_alive * 2:
            raise ConnectionLost(f"{self.target.text} has been silent for {now - self._heard_at:.0f} s")
        if now - self._sent_at >= self.keep_alive * 0.9:
            self.note("sending PINGREQ")
            self.send(PINGREQ)

    def _handled(self, packet: object) -> bool:
        """Does what the protocol asks for; False when the packet is none that a caller waits for."""
        if self.target.debug:
            self.note(f"received {describe(packet)}")
        if isinstance(packet, int):
            self._acknowledged(packet >> 16, packet & 0xFFFF, 0, "")
            return False
        if isinstance(packet, Puback):
            self._acknowledged(packet.kind, packet.packet_id, packet.reason, _with_reason_string("", packet.properties))
            return False
        if isinstance(packet, Disconnect):
            text = _with_reason_string(reason_text(packet.reason, V5), packet.properties)
            raise ConnectionLost(f"{self.target.text} ended the connection: {text}")
        if isinstance(packet, Message) and packet.qos == 2:
            fresh = packet.packet_id not in self._received
            self._received.add(packet.packet_id)
            return fresh
        return True

    def _acknowledged(self, kind: int, packet_id: int, reason: int, text: str) -> None:
        if kind == PUBREL:  # the release of a message that came to us [MQTT-4.3.3-13]
            self._received.discard(packet_id)
            self.send(encoder.ack(PUBCOMP, packet_id))
        elif kind == PUBREC and reason < 0x80:
            self.unanswered[packet_id] = PUBCOMP
            self.send(encoder.ack(PUBREL, packet_id))
        elif kind in (PUBACK, PUBREC, PUBCOMP):
            self.unanswered.pop(packet_id, None)
            if reason >= 0x80:
                self.refused.append(reason_text(reason, V5) + text)

    # ------------------------------------------------------------------------------------------------ packets

    def next_id(self) -> int:
        """A packet identifier that is not in use."""
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self.unanswered:
                return self._last_id

    def publish(self, message: Message) -> None:
        """Send; at QoS 1 and 2, wait first until the window has room."""
        while message.qos and len(self.unanswered) >= self.window:
            self.receive(1.0)
        packet_id = self.next_id() if message.qos else 0
        frame = encoder.publish(
            message, self.version, message.qos, message.retain, False, packet_id, expiry_s=message.expiry_s
        )  # fmt: skip
        if len(frame) > self.max_packet:
            raise ClientError(f"a message of {len(frame)} bytes: the server takes at most {self.max_packet}")
        if message.qos:
            self.unanswered[packet_id] = PUBACK if message.qos == 1 else PUBREC
        if self.target.debug:
            self.note(f"sending PUBLISH {describe(message)}")
        self.send(frame)

    def acknowledge(self, messages: list[Message]) -> None:
        """Tell the server that the messages are taken (call it once they are printed)."""
        answers = b"".join(encoder.ack(PUBACK if each.qos == 1 else PUBREC, each.packet_id) for each in messages if each.qos)
        if answers:
            self.send(answers)

    def settle(self) -> None:
        """Return once every published message is answered."""
        while self.unanswered:
            self.receive(1.0)

    def subscribe(self, requests: list[SubscriptionRequest], properties: Properties) -> int:
        """Send a SUBSCRIBE; its packet id is what the SUBACK will carry."""
        packet_id = self.next_id()
        self.note(f"sending SUBSCRIBE {', '.join(request.filter.decode() for request in requests)}")
        self.send(encoder.subscribe(Subscribe(packet_id, requests, properties), self.version))
        return packet_id

    def unsubscribe(self, filters: list[str]) -> None:
        """Send an UNSUBSCRIBE."""
        self.send(encoder.unsubscribe(Unsubscribe(self.next_id(), [text.encode() for text in filters]), self.version))

    def close(self, with_will: bool = False) -> None:
        """Say good-bye and close; never raises."""
        try:
            self.send(encoder.disconnect(self.version, 4 if with_will else 0))
            self._socket.shutdown(socket.SHUT_WR)
        except (ClientError, OSError):
            pass
        self.abandon()

    def abandon(self) -> None:
        """Close without a word."""
        self._selector.close()
        self._socket.close()

    def note(self, text: str) -> None:
        """A line for `-d`."""
        if self.target.debug:
            print(f"{self.target.client_id or 'lmq'}: {text}", file=sys.stderr)


def describe(packet: Any) -> str:
    """A packet in a few words, for `-d`."""
    if isinstance(packet, int):
        names = {PUBACK: "PUBACK", PUBREC: "PUBREC", PUBREL: "PUBREL", PUBCOMP: "PUBCOMP", PINGRESP: "PINGRESP"}
        return f"{names.get(packet >> 16, packet >> 16)} {packet & 0xFFFF or ''}".rstrip()
    if isinstance(packet, Message):
        return f"{packet.topic.decode()} (q{packet.qos}, r{int(packet.retain)}, {len(packet.payload)} bytes)"
    return repr(packet)
