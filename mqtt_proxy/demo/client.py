"""MQTT clients by the hundred in one thread: each keeps its session over a crash of the server, as the specification asks.

No asyncio: one epoll set, one read and one write for each client and turn. What a client has published and not got
acknowledged goes out again with DUP after a reconnect [MQTT-4.4.0-1]; QoS 2 identifiers that came in are remembered for as
long as the session lives [MQTT-4.3.3-10].
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from lmq_store.api.model import Message
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.decoder import decode
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.types import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)

READ_BYTES = 262_144
PACKET_BYTES_MAX = 268_435_460
RETRY_S = 0.05
"""Time between two attempts to connect."""
WINDOW = 50
"""QoS 1 and 2 messages of one client on their way at the same time, at most the server's Receive Maximum."""
EXPIRY_S = 3_600
ABANDONED_MAX = 20
PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7

OFFLINE, CONNECTING, AWAIT_CONNACK, ONLINE = range(4)


class Refused(Exception):
    """The server said no where a client of this program is entitled to a yes."""


class Outgoing:
    """A message of ours until it is acknowledged; `token` is what its owner knows it by."""

    __slots__ = ("message", "released", "sent", "token")

    def __init__(self, token: int, message: Message) -> None:
        self.token = token
        self.message = message
        self.sent = 0
        self.released = False
        """PUBREC came: from here on only PUBREL goes out [MQTT-4.3.3-4]."""


class Client:
    """One client with its session. Callbacks: `on_message`, `on_acked(token)`, `on_online(session_present)`, `on_reply`."""

    def __init__(
        self, clients: Clients, client_id: str, version: int = V5, clean: bool = False, expiry_s: int = EXPIRY_S, window: int = WINDOW
    ) -> None:
        self.clients = clients
        self.client_id = client_id
        self.version = version
        self.clean = clean
        self.expiry_s = expiry_s
        self.window = self.window_asked = window
        self.will: Will | None = None
        self.state = OFFLINE
        self.wanted = False
        self.retry_at = 0.0
        self.link: socket.socket | None = None
        self.input = bytearray()
        self.output = bytearray()
        self.to_send: deque[Outgoing] = deque()
        self.in_flight: dict[int, Outgoing] = {}
        self.received: set[int] = set()
        self.awaited: dict[int, Subscribe | Unsubscribe] = {}
        self.next_id = 0
        self.connects = 0
        self.accepted = 0
        self.session_present = False
        self.answers = True
        """False: takes messages and acknowledges none."""
        self.on_message: Callable[[Client, Message], None] = lambda client, message: None
        self.on_acked: Callable[[Client, int], None] = lambda client, token: None
        self.on_rejected: Callable[[Client, int, int], None] | None = None
        self.on_online: Callable[[Client, bool], None] = lambda client, session_present: None
        self.on_offline: Callable[[Client, int], None] = lambda client, reason: None
        self.on_reply: Callable[[Client, Subscribe | Unsubscribe, list[int]], None] = lambda client, request, reasons: None

    # --- what an owner asks for -----------------------------------------------------------------------------------------

    def go_online(self) -> None:
        """Connect, and again after each loss, until `leave` or `drop`."""
        self.wanted = True
        if self.state == OFFLINE:
            self._open()

    def publish(self, token: int, message: Message) -> None:
        """Queue a message; it goes out as the window allows."""
        self.to_send.append(Outgoing(token, message))
        self._fill()

    def subscribe(self, filters: list[tuple[str, int]], properties: Properties | None = None, retain_handling: int = 0) -> None:
        """SUBSCRIBE now (the client is online); `on_reply` gets the reasons."""
        requests = [SubscriptionRequest(name.encode(), qos, retain_handling=retain_handling) for name, qos in filters]
        packet = Subscribe(self._take_id(), requests, properties or Properties())
        self.awaited[packet.packet_id] = packet
        self._write(encoder.subscribe(packet, self.version))

    def unsubscribe(self, filters: list[str]) -> None:
        """UNSUBSCRIBE now; `on_reply` gets the reasons."""
        packet = Unsubscribe(self._take_id(), [name.encode() for name in filters])
        self.awaited[packet.packet_id] = packet
        self._write(encoder.unsubscribe(packet, self.version))

    def leave(self) -> None:
        """DISCONNECT: the session stays, a will does not fire."""
        self.wanted = False
        if self.state == ONLINE and self.link is not None:
            self._write(encoder.disconnect(self.version, 0))
            self._flush()
        self._lost(0)

    def drop(self) -> None:
        """Close without a word, as a client does whose battery dies."""
        self.wanted = False
        self._lost(0)

    def take_over(self) -> None:
        """Connect again while the old connection stands: the server has to end that one (0x8E) [MQTT-3.1.4-3]."""
        link, self.link = self.link, None
        if link is not None:
            self.clients.abandon(link)
        self._lost(0)
        self.go_online()

    @property
    def closed(self) -> bool:
        return self.link is None

    @property
    def idle(self) -> bool:
        """Everything published is acknowledged, everything asked is answered."""
        return not (self.to_send or self.in_flight or self.awaited)

    def forget_session(self) -> None:
        """The session is gone at the server (or about to be): ids mean nothing any more, unacknowledged messages start anew."""
        self.received.clear()
        waiting = [one for one in self.in_flight.values() if not one.released]
        for one in self.in_flight.values():
            if one.released:  # its PUBREC was the promise; the PUBCOMP of a dead session never comes
                self.on_acked(self, one.token)
        self.in_flight.clear()
        for one in waiting:
            one.sent = 0  # a new PUBLISH, without DUP [MQTT-3.3.1-1]
        self.to_send.extendleft(reversed(waiting))

    # --- the link -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.link = link = socket.socket(self.clients.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if self.clients.family != socket.AF_UNIX:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failure = link.connect_ex(self.clients.address)
        if failure not in (0, errno.EINPROGRESS):
            self._lost(0)
            return
        self.state = CONNECTING
        self.clients.watch(self, select.EPOLLOUT)

    def opened(self) -> None:
        """The connection stands, or failed; CONNECT goes first [MQTT-3.1.0-1]."""
        assert self.link is not None
        if self.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._lost(0)
            return
        self.state = AWAIT_CONNACK
        self.connects += 1
        properties = Properties()
        if self.version == V5:
            properties.session_expiry = self.expiry_s
            properties.receive_maximum = self.window_asked
        packet = Connect(self.version, self.client_id.encode(), self.clean, 60, will=self.will, properties=properties)
        self._write(encoder.connect(packet))
        self.clients.watch(self, select.EPOLLIN)
        self._flush()

    def _write(self, data: bytes) -> None:
        if not self.output:
            self.clients.dirty.append(self)
        self.output += data

    def _flush(self) -> None:
        if self.link is None or not self.output:
            return
        try:
            sent = self.link.send(self.output)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost(0)
            return
        del self.output[:sent]
        self.clients.watch(self, select.EPOLLIN | (select.EPOLLOUT if self.output else 0))

    def flush(self) -> None:
        """Write what the turn has collected."""
        if self.state >= AWAIT_CONNACK:
            self._flush()

    def readable(self) -> None:
        """Read once, act on every whole packet."""
        assert self.link is not None
        try:
            data = self.link.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(0)
            return
        self.input += data
        buffer, at = self.input, 0
        while True:
            packets: list[object] = []
            before = self.state
            version = self.version if before == ONLINE else 0
            at = decode(buffer, at, len(buffer), version, PACKET_BYTES_MAX, packets, False)
            for packet in packets:
                if self.closed:
                    return
                self._handle(packet)
            if self.closed:
                return
            if before == self.state:
                break
        del buffer[:at]
        self._fill()

    def _lost(self, reason: int) -> None:
        was = self.state
        link, self.link = self.link, None
        self.state = OFFLINE
        self.input.clear()
        self.output.clear()
        self.awaited.clear()
        if link is not None:
            self.clients.unwatch(link)
            link.close()
        self.retry_at = time.monotonic() + RETRY_S
        if was == ONLINE:
            self.on_offline(self, reason)

    # --- packets --------------------------------------------------------------------------------------------------------

    def _handle(self, packet: object) -> None:
        if type(packet) is Message:
            self._message(packet)
        elif type(packet) is int:
            self._acknowledged(packet >> 16, packet & 0xFFFF, 0)
        elif isinstance(packet, Puback):
            self._acknowledged(packet.kind, packet.packet_id, packet.reason)
        elif isinstance(packet, Connack):
            self._connected(packet)
        elif isinstance(packet, Suback | Unsuback):
            request = self.awaited.pop(packet.packet_id, None)
            if request is not None:
                self.on_reply(self, request, packet.reasons)
        elif isinstance(packet, Disconnect):
            self._lost(packet.reason)

    def _connected(self, packet: Connack) -> None:
        if packet.reason:
            raise Refused(f"{self.client_id}: CONNACK with reason 0x{packet.reason:02X}")
        self.state = ONLINE
        self.window = min(self.window_asked, packet.properties.receive_maximum or 65_535)
        self.session_present = packet.session_present
        self.accepted += 1
        if packet.session_present and not self.clean:
            for packet_id, one in self.in_flight.items():  # the same ids in the same order [MQTT-4.4.0-1] [MQTT-4.6.0-1]
                self._write(encoder.ack(PUBREL, packet_id) if one.released else self._frame(one, packet_id))
        else:
            self.forget_session()
        self.on_online(self, packet.session_present)
        self._fill()

    def _message(self, message: Message) -> None:
        if message.qos == 2:
            if message.packet_id not in self.received:
                self.received.add(message.packet_id)
                self.on_message(self, message)
            if self.answers:
                self._write(encoder.ack(PUBREC, message.packet_id))
            return
        self.on_message(self, message)
        if message.qos and self.answers:
            self._write(encoder.ack(PUBACK, message.packet_id))

    def _acknowledged(self, kind: int, packet_id: int, reason: int) -> None:
        if kind == PUBREL:
            self.received.discard(packet_id)
            self._write(encoder.ack(PUBCOMP, packet_id))
            return
        one = self.in_flight.get(packet_id)
        if one is None:
            return
        if reason >= 0x80 and kind != PUBCOMP:  # a PUBCOMP with 0x92: the release was done before the crash (MQTT 5.0 §3.7.2.1)
            del self.in_flight[packet_id]
            if self.on_rejected is None:
                raise Refused(f"{self.client_id}: PUBLISH answered with reason 0x{reason:02X}")
            self.on_rejected(self, one.token, reason)
        elif kind == PUBREC:
            one.released = True
            self._write(encoder.ack(PUBREL, packet_id))
        elif kind == (PUBACK if one.message.qos == 1 else PUBCOMP):
            del self.in_flight[packet_id]
            self.on_acked(self, one.token)

    def _fill(self) -> None:
        """Send what the window allows."""
        if self.state != ONLINE:
            return
        to_send, in_flight = self.to_send, self.in_flight
        while to_send:
            one = to_send[0]
            if one.message.qos == 0:
                self._write(self._frame(to_send.popleft(), 0))
                self.on_acked(self, one.token)
                continue
            if len(in_flight) >= self.window:
                return
            to_send.popleft()
            packet_id = self._take_id()
            in_flight[packet_id] = one
            self._write(self._frame(one, packet_id))

    def _frame(self, one: Outgoing, packet_id: int) -> bytes:
        message = one.message
        again = packet_id in self.in_flight and one.sent > 0 and bool(message.qos)
        one.sent += 1
        return encoder.publish(message, self.version, message.qos, message.retain, again, packet_id, expiry_s=message.expiry_s)

    def _take_id(self) -> int:
        while True:
            self.next_id = self.next_id % 65_535 + 1
            if self.next_id not in self.in_flight and self.next_id not in self.awaited:
                return self.next_id


class Clients:
    """All clients of one server, in one epoll set. Call `turn` again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.epoll = select.epoll()
        self.all: list[Client] = []
        self.by_fd: dict[int, Client] = {}
        self.masks: dict[int, int] = {}
        self.dirty: list[Client] = []
        self.abandoned: deque[socket.socket] = deque()

    def add(self, client_id: str, version: int = V5, clean: bool = False, expiry_s: int = EXPIRY_S, window: int = WINDOW) -> Client:
        client = Client(self, client_id, version, clean, expiry_s, window)
        self.all.append(client)
        return client

    def watch(self, client: Client, mask: int) -> None:
        assert client.link is not None
        fd = client.link.fileno()
        known = self.masks.get(fd)
        if known is None:
            self.epoll.register(fd, mask)
        elif known != mask:
            self.epoll.modify(fd, mask)
        self.masks[fd] = mask
        self.by_fd[fd] = client

    def unwatch(self, link: socket.socket) -> None:
        fd = link.fileno()
        if self.masks.pop(fd, None) is not None:
            self.epoll.unregister(fd)
        self.by_fd.pop(fd, None)

    def abandon(self, link: socket.socket) -> None:
        """Leave a connection open and never look at it again; the last few are kept."""
        self.unwatch(link)
        self.abandoned.append(link)
        if len(self.abandoned) > ABANDONED_MAX:
            self.abandoned.popleft().close()

    def turn(self, timeout_s: float = 0.05) -> bool:
        """Read and write once for every client that is ready. True when anything happened."""
        now = time.monotonic()
        for client in self.all:
            if client.wanted and client.state == OFFLINE and now >= client.retry_at:
                client.go_online()
        self._flush()
        ready = self.epoll.poll(timeout_s)
        for fd, mask in ready:
            ready_client = self.by_fd.get(fd)
            if ready_client is None:
                continue
            if ready_client.state == CONNECTING:
                ready_client.opened()
                continue
            if mask & select.EPOLLOUT:
                ready_client.flush()
            if mask & ~select.EPOLLOUT and ready_client.link is not None:
                ready_client.readable()
        self._flush()
        return bool(ready)

    def _flush(self) -> None:
        dirty, self.dirty = self.dirty, []
        for client in dirty:
            client.flush()

    def close(self) -> None:
        """Drop every connection."""
        for client in self.all:
            client.drop()
        for link in self.abandoned:
            link.close()
        self.epoll.close()
