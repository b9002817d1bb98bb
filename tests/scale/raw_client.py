"""Raw MQTT 3.1.1 clients that keep a server busy from Python: packets are made before the clock starts, acknowledgements counted in bytes.

`Client` is one blocking connection. `flood` drives many publishers with windows through one epoll. `Drain` reads frames of
one known length, of which a million a second are looked at without an object each.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence

from lmq_store.api.model import Message
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.types import V311, Connect, Subscribe, SubscriptionRequest

PATIENCE_S = 120.0
FILTERS_PER_PACKET = 500
BLOCK = 250
"""Messages of one block: what a publisher sends at once, and has acknowledged as a whole."""
BLOCKS_OUTSTANDING = 4
"""Blocks of one publisher on the way: a window of 1,000 messages."""
PUBACK_BYTES = 4
_PUBACK = struct.Struct(">HH")


class Client:
    """One blocking connection."""

    def __init__(self, port: int, client_id: bytes, clean: bool = True, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(encoder.connect(Connect(V311, client_id, clean_start=clean)))
        connack = self.exactly(4)
        assert connack[0] == 0x20 and connack[3] == 0, connack
        self.session_present = bool(connack[2] & 1)

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes."""
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            assert part, "the server has closed the connection"
            data += part
        return bytes(data)

    def subscribe(self, filters: Sequence[bytes], qos: int = 1) -> None:
        """Subscribe to all of them, many filters a packet; returns when all are granted."""
        for number, start in enumerate(range(0, len(filters), FILTERS_PER_PACKET), 1):
            asked = [SubscriptionRequest(one, qos) for one in filters[start : start + FILTERS_PER_PACKET]]
            self.socket.sendall(encoder.subscribe(Subscribe(number, asked), V311))
            answer = self.packet()
            assert answer[0] == 0x90, answer
            assert answer.endswith(bytes([qos]) * len(asked)), "a filter was refused"

    def packet(self) -> bytes:
        """The next whole packet."""
        head = self.exactly(2)
        length, shift = head[1] & 0x7F, 7
        while head[-1] & 0x80:
            head += self.exactly(1)
            length |= (head[-1] & 0x7F) << shift
            shift += 7
        return head + self.exactly(length)

    def disconnect(self) -> None:
        self.socket.sendall(b"\xe0\x00")
        self.socket.close()

    def close(self) -> None:
        """Away without DISCONNECT."""
        self.socket.close()


def publish_frame(topic: bytes, payload: bytes, qos: int = 1, packet_id: int = 1, retain: bool = False) -> bytes:
    return encoder.publish(Message(topic, payload, qos, retain), V311, qos, retain, False, packet_id)


def blocks(messages: Iterable[tuple[bytes, bytes]], retain: bool = False) -> list[bytes]:
    """The (topic, payload) pairs as QoS 1 PUBLISH frames, BLOCK of them joined, packet ids in a circle of one window."""
    made, frames = [], []
    for number, (topic, payload) in enumerate(messages):
        frames.append(publish_frame(topic, payload, 1, number % (BLOCK * BLOCKS_OUTSTANDING) + 1, retain))
        if len(frames) == BLOCK:
            made.append(b"".join(frames))
            frames = []
    assert not frames, f"not a multiple of {BLOCK} messages"
    return made


class Publisher:
    """One connection that sends its blocks, at most BLOCKS_OUTSTANDING of them unacknowledged."""

    def __init__(self, client: Client, source: Iterator[bytes]) -> None:
        self.socket = client.socket
        self.socket.setblocking(False)
        self.source = source
        self.out = memoryview(b"")
        self.outstanding = 0
        """Bytes of PUBACK packets that are still to come."""
        self.acknowledged = 0
        self.ended = False
        self.idle = False
        """The next block is not due yet."""

    def fill(self) -> None:
        """Send as long as the window and the socket allow."""
        while True:
            if not self.out:
                if self.ended or self.outstanding > (BLOCKS_OUTSTANDING - 1) * BLOCK * PUBACK_BYTES:
                    return
                block = next(self.source, None)
                if block is None:
                    self.ended = True
                    return
                if not block:
                    self.idle = True
                    return
                self.idle = False
                self.out = memoryview(block)
                self.outstanding += BLOCK * PUBACK_BYTES
            try:
                self.out = self.out[self.socket.send(self.out) :]
            except BlockingIOError:
                return

    def take(self) -> None:
        """Count what was acknowledged."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        assert data, "the server has closed a publisher's connection"
        self.outstanding -= len(data)
        self.acknowledged += len(data)

    @property
    def done(self) -> bool:
        return self.ended and not self.out and self.outstanding == 0


def paced(source: Iterator[bytes], per_s: float) -> Iterator[bytes]:
    """The blocks of the source, or nothing while the next one is not due: so many messages a second."""
    due = time.monotonic()
    for block in source:
        while time.monotonic() < due:
            yield b""
        due += BLOCK / per_s
        yield block


def flood(publishers: Sequence[Publisher], seconds: float = PATIENCE_S) -> tuple[int, float]:
    """Run the publishers to their ends, or for so long; (messages acknowledged, seconds)."""
    poll = select.epoll()
    by_fd = {one.socket.fileno(): one for one in publishers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    began = now = time.monotonic()
    busy = set(by_fd)
    while busy and now - began < seconds:
        idle = [fd for fd in busy if by_fd[fd].idle]
        for fd in {fd for fd, _ in poll.poll(0.001 if idle else 0.2)}.union(idle):
            one = by_fd[fd]
            before = -1
            while before != one.acknowledged:
                before = one.acknowledged
                one.take()
            one.fill()
            if one.done:
                busy.discard(fd)
        now = time.monotonic()
    poll.close()
    return sum(one.acknowledged for one in publishers) // PUBACK_BYTES, now - began


class Drain:
    """Receives QoS 1 messages of one topic length and one payload length, acknowledges them in batches, and yields what was in them."""

    def __init__(self, client: Client, topic_bytes: int, payload: struct.Struct) -> None:
        self.socket = client.socket
        rest = 2 + topic_bytes + 2 + payload.size
        assert rest < 128, "frames of one length byte only"
        self.length = 2 + rest
        self.frame = struct.Struct(f">{4 + topic_bytes}xH{payload.format.lstrip('>')}")
        assert self.frame.size == self.length
        self.rest = b""

    def batch(self) -> list[tuple[int, ...]]:
        """What the next read brings: (packet id, payload fields) each; acknowledged when this returns."""
        data = self.rest + self.socket.recv(1 << 20)
        assert len(data) > len(self.rest), "the server has closed the connection"
        whole = len(data) - len(data) % self.length
        self.rest = data[whole:]
        found = list(self.frame.iter_unpack(data[:whole]))
        if found:
            self.socket.sendall(b"".join([_PUBACK.pack(0x4002, one[0]) for one in found]))
        return found
