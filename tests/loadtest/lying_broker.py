"""A small broker that lies on purpose and keeps exact books of its lies, for the harness to be held against.

It speaks MQTT 3.1.1, one thread, QoS 0 to 2, in order. For each routed (message, subscriber) a seeded dice decides: deliver,
drop, repeat, swap with the next, corrupt, delay, invent one more, or acknowledge and deliver to nobody.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from loadtest.layout import matches


@dataclass
class Lies:
    """Shares of the deliveries that are lied about."""

    drop: float = 0.0
    repeat: float = 0.0
    repeat_dup: float = 0.0
    swap: float = 0.0
    corrupt: float = 0.0
    invent: float = 0.0
    alien: float = 0.0
    ack_only: float = 0.0
    refuse: float = 0.0
    """Of the messages: PUBACK with 0x97 (MQTT 5 only)."""
    delay: float = 0.0
    seed: int = 7
    behaviour: str = "mqtt"
    """mqtt; silent (no CONNACK), refuse, garbage, mute (stops answering after some messages), closing (drops at random),
    closing-always (at every message), closing-early (right after the CONNACK)."""


@dataclass(eq=False)
class _Peer:
    sock: socket.socket
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    filters: list[tuple[str, int]] = field(default_factory=list)
    version: int = 4
    next_id: int = 0
    held: dict[bytes, bytes] = field(default_factory=dict)
    """Publisher → a frame held back to be swapped with the next of the same publisher."""
    unreleased: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)


class LyingBroker(threading.Thread):
    """Listens on a free port; `books` counts what the report must say."""

    def __init__(self, lies: Lies) -> None:
        super().__init__(daemon=True)
        self.lies = lies
        self.dice = random.Random(lies.seed)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.books: Counter[str] = Counter()
        self.poll = selectors.DefaultSelector()
        self.poll.register(self.listener, selectors.EVENT_READ)
        self.peers: set[_Peer] = set()
        self.stopped = False
        self.messages = 0
        self.later: list[tuple[float, _Peer, bytes]] = []
        self.failure: BaseException | None = None

    def __enter__(self) -> LyingBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True
        self.join(5)
        assert self.failure is None, self.failure

    def run(self) -> None:
        try:
            while not self.stopped:
                for key, _ in self.poll.select(0.005):
                    if key.fileobj is self.listener:
                        self._accept()
                    else:
                        self._read(key.data)
                self._deliver_later()
                for peer in list(self.peers):
                    self._flush(peer)
        except BaseException as failure:
            self.failure = failure
        finally:
            for peer in list(self.peers):
                self._close(peer)
            self.listener.close()
            self.poll.close()

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except BlockingIOError:
            return
        if self.lies.behaviour == "refuse":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(sock)
        self.peers.add(peer)
        self.poll.register(sock, selectors.EVENT_READ, peer)

    def _close(self, peer: _Peer) -> None:
        if peer in self.peers:
            self.peers.discard(peer)
            for frame in peer.held.values():  # held back to be swapped, and never delivered
                self._note_drop(frame[0] >> 1 & 3, 2)
            self.poll.unregister(peer.sock)
            peer.sock.close()

    def _flush(self, peer: _Peer) -> None:
        if peer.outbox and peer in self.peers:
            try:
                sent = peer.sock.send(peer.outbox)
                del peer.outbox[:sent]
            except BlockingIOError:
                return
            except OSError:
                self._close(peer)

    def _read(self, peer: _Peer) -> None:
        try:
            raw = peer.sock.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if not raw:
            self._close(peer)
            return
        peer.inbox += raw
        at = 0
        while len(peer.inbox) - at >= 2:
            length, shift, body = 0, 0, at + 1
            while True:
                if body >= len(peer.inbox):
                    length = 1 << 40
                    break
                byte = peer.inbox[body]
                length |= (byte & 127) << shift
                shift += 7
                body += 1
                if byte < 128:
                    break
            if body + length > len(peer.inbox):
                break
            self._packet(peer, peer.inbox[at], bytes(peer.inbox[body : body + length]))
            if peer not in self.peers:
                return
            at = body + length
        del peer.inbox[:at]

    def _packet(self, peer: _Peer, first: int, body: bytes) -> None:
        kind = first >> 4
        behaviour = self.lies.behaviour
        if kind == 1:
            if behaviour == "silent":
                return
            peer.version = body[6]
            if behaviour == "garbage-connack":
                peer.outbox += b"\xff\xff\xff\xff\xff\xff\xff"
                return
            if behaviour == "unwelcome":
                peer.outbox += b"\x20\x02\x00\x05" if peer.version < 5 else b"\x20\x03\x00\x87\x00"
                return
            peer.outbox += b"\x20\x02\x00\x00" if peer.version < 5 else b"\x20\x03\x00\x00\x00"
            if behaviour == "closing-early":
                self._flush(peer)
                self._close(peer)
        elif kind == 8:
            at = 2 + (1 + body[2] if peer.version == 5 else 0)
            codes = bytearray()
            while at < len(body):
                size = int.from_bytes(body[at : at + 2], "big")
                peer.filters.append((body[at + 2 : at + 2 + size].decode(), body[at + 2 + size]))
                codes.append(body[at + 2 + size])
                at += 3 + size
            answer = body[:2] + (b"\x00" if peer.version == 5 else b"") + codes
            peer.outbox += b"\x90" + bytes([len(answer)]) + answer
        elif kind == 3:
            self._publish(peer, first, body)
        elif kind == 5:
            peer.outbox += b"\x62\x02" + body[:2]
        elif kind == 6:
            peer.outbox += b"\x70\x02" + body[:2]
        elif kind == 12:
            peer.outbox += b"\xd0\x00"
        elif kind == 14:
            self._close(peer)

    def _publish(self, peer: _Peer, first: int, body: bytes) -> None:
        self.messages += 1
        behaviour = self.lies.behaviour
        if behaviour == "mute" and self.messages > 50:
            return
        if behaviour == "garbage" and self.messages > 50 and self.dice.random() < 0.05:
            peer.outbox += self.dice.randbytes(40)
            return
        if behaviour == "closing-always" or (behaviour == "closing" and self.dice.random() < 0.02):
            self._flush(peer)
            self._close(peer)
            return
        qos = first >> 1 & 3
        size = int.from_bytes(body[:2], "big")
        topic = body[2 : 2 + size]
        rest = body[2 + size :]
        if qos:
            packet_id, rest = rest[:2], rest[2:]
            refused = peer.version == 5 and self.dice.random() < self.lies.refuse
            if refused:
                self.books["rejected"] += 1
                peer.outbox += bytes([0x40 if qos == 1 else 0x50, 3]) + packet_id + b"\x97"
                return
            self.books["acked"] += 1
            peer.outbox += bytes([0x40 if qos == 1 else 0x50, 2]) + packet_id
        payload = rest[1:] if peer.version == 5 else rest
        self.books["sent"] += 1
        if self.lies.ack_only and self.dice.random() < self.lies.ack_only:
            for other in self.peers:
                self._note_drop(self._granted(other, topic), qos)
            return
        for other in list(self.peers):
            granted = self._granted(other, topic)
            if granted >= 0:
                self._route(other, topic, payload, min(qos, granted))

    def _granted(self, peer: _Peer, topic: bytes) -> int:
        return max((granted for topic_filter, granted in peer.filters if matches(topic_filter, topic.decode())), default=-1)

    def _note_drop(self, granted: int, qos: int) -> None:
        if granted >= 0:
            self.books["lost" if min(qos, granted) else "lost_qos0"] += 1

    def _frame(self, peer: _Peer, topic: bytes, payload: bytes, qos: int, dup: bool = False) -> bytes:
        body = struct.pack(">H", len(topic)) + topic
        if qos:
            peer.next_id = peer.next_id % 65535 + 1
            body += struct.pack(">H", peer.next_id)
        body += (b"\x00" if peer.version == 5 else b"") + payload
        length = bytearray()
        left = len(body)
        while True:
            length.append(left & 127 | (128 if left > 127 else 0))
            left >>= 7
            if not left:
                break
        return bytes([0x30 | qos << 1 | (8 if dup else 0)]) + bytes(length) + body

    def _route(self, peer: _Peer, topic: bytes, payload: bytes, qos: int) -> None:
        """One delivery, or the lie in its place."""
        lies, dice = self.lies, self.dice
        key = topic
        lie = dice.random()
        frame = self._frame(peer, topic, payload, qos)
        for name in ("drop", "repeat", "repeat_dup", "swap", "corrupt", "invent", "alien"):
            share = getattr(lies, name)
            if lie < share:
                break
            lie -= share
        else:
            name = ""
        held = peer.held.pop(key, None)
        if name == "drop":
            self._note_drop(qos, 2)
        elif name == "corrupt":
            damaged = bytearray(payload)
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
            self.books["corrupt"] += 1
            self._note_drop(qos, 2)
            peer.outbox += self._frame(peer, topic, bytes(damaged), qos)
        elif name == "swap" and held is None:
            peer.held[key] = frame
            return
        else:
            self._send(peer, frame)
            self.books["delivered"] += 1
            if name in ("repeat", "repeat_dup"):
                dup = name == "repeat_dup"
                self._send(peer, self._frame(peer, topic, payload, qos, dup))
                self.books["redelivered" if dup and qos < 2 else "duplicate"] += 1
            elif name == "invent":
                self._send(peer, self._frame(peer, topic, invented(payload), qos))
                self.books["phantom"] += 1
            elif name == "alien":
                self._send(peer, self._frame(peer, topic, b"who are you? " * 4, qos))
                self.books["foreign"] += 1
        if held is not None:
            self._send(peer, held)
            self.books["delivered"] += 1
            if name not in ("drop", "corrupt"):
                self.books["reordered"] += 1

    def _send(self, peer: _Peer, frame: bytes) -> None:
        if self.lies.delay:
            self.later.append((time.monotonic() + self.lies.delay, peer, frame))
        else:
            peer.outbox += frame

    def _deliver_later(self) -> None:
        now = time.monotonic()
        while self.later and self.later[0][0] <= now:
            _, peer, frame = self.later.pop(0)
            peer.outbox += frame


def invented(payload: bytes) -> bytes:
    """A valid message of the same run that nobody sent: a number far ahead, with a right checksum."""
    import zlib

    head = bytearray(payload[:20])
    number = int.from_bytes(head[4:9], "little") + 10_000_000
    head[4:9] = number.to_bytes(5, "little")
    crc = zlib.crc32(bytes(head), zlib.crc32(payload[24:]))
    return bytes(head) + struct.pack("<I", crc) + payload[24:]
