"""One MQTT connection of a worker: frames scanned in place, answers and new messages in one send per turn.

Everything that is not per message (CONNACK, SUBACK, DISCONNECT …) is handed to `control`, a function of the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from loadtest.publisher import Publisher
from loadtest.tally import Row, Tally

if not cython.compiled:
    from loadtest.publisher import put_ack
    from loadtest.socket_io import copy, receive, transmit

# What a turn ended with.
OPEN = 0
CLOSED = 1
"""The broker ended the connection."""
BROKEN = 2
"""The broker broke the protocol: the connection is of no use any more."""

# What a client is doing.
IDLE = 0
CONNECTING = 1
SHAKING = 2
"""TLS or WebSocket handshake."""
WAITING = 3
"""CONNECT is out."""
UP = 4
LEAVING = 5


class Client:
    """A connection and its place in the plan; counts go to the tally."""

    __slots__ = (
        "control",
        "fd",
        "group",
        "index",
        "last_sent",
        "link",
        "packet_max",
        "partial",
        "pings",
        "publisher",
        "received_ids",
        "responder",
        "row",
        "state",
        "tail",
        "tally",
        "tops",
        "turn",
        "version",
        "work",
    )

    def __init__(self, tally: Tally, index: int, version: int, control: Callable[[Client, int, bytes], None]) -> None:
        self.tally = tally
        self.index = index
        self.version = version
        self.control = control
        self.fd = -1
        self.link: Any = None
        """TLS or WebSocket: moves the bytes in place of the bare socket."""
        self.state = IDLE
        self.packet_max = 1 << 20
        self.partial: bytes | None = None
        """The beginning of a frame whose rest has not come yet."""
        self.tail: bytearray | None = None
        """Bytes that the socket would not take."""
        self.publisher: Publisher | None = None
        self.responder: Any = None
        self.row: Row | None = None
        self.tops: memoryview | None = None
        """Members of a shared group: the highest number of each publisher that came to this member."""
        self.received_ids: set[int] | None = None
        """QoS 2: packet ids received and not yet released."""
        self.pings = 0
        self.last_sent = 0
        self.group = 0
        self.work: Any = None
        """The worker's own notes: lifecycle, attempts, subscriptions."""
        self.turn = 0

    def readable(self) -> int:
        """Take what the socket holds: count, answer, publish into freed windows; OPEN, CLOSED or BROKEN."""
        tally = self.tally
        keep = 0
        if self.partial is not None:
            keep = self._restore_partial()
        box = tally.inbox
        room = len(box) - keep
        got = receive(self.fd, box, keep, room) if self.link is None else self.link.receive(box, keep, room)
        if got <= 0:
            if got == -1:
                return OPEN
            return CLOSED
        used = self.scan(box, keep + got)
        if used < 0 or self.fd < 0:
            tally.out_at = 0
            return BROKEN if used < 0 else OPEN
        self.partial = None
        if used < keep + got:
            self.partial = bytes(memoryview(box)[used : keep + got])
        if self.publisher is not None and self.state == 4 and self.tail is None:
            self.publisher.pump()
        return self.flush()

    def _restore_partial(self) -> int:
        partial = self.partial
        assert partial is not None
        box = self.tally.inbox
        if 2 * len(partial) > len(box):
            self.tally.inbox = box = bytearray(4 * len(partial))
        copy(box, 0, partial, 0, len(partial))
        self.partial = None
        return len(partial)

    def scan(self, box: bytearray, end: int) -> int:
        """Handles every whole frame of box[:end]; the first position not used, or -1 on a breach of the protocol."""
        at = 0
        tally = self.tally
        while end - at >= 2:
            length = box[at + 1]
            body = at + 2
            if length & 128:
                if end - at >= 3 and box[at + 2] < 128:
                    length = length & 127 | box[at + 2] << 7
                    body = at + 3
                else:
                    length, body = self._long_length(box, at, end)
                    if body == 0:
                        break
                    if body < 0:
                        return self._breach()
            if length > self.packet_max:
                return self._breach()
            if body + length > end:
                break
            first = box[at]
            kind = first >> 4
            if self.state != 4 and kind != 2 and kind != 14:
                return self._breach()  # before CONNACK the broker may say nothing else [MQTT-3.2.0-1]
            if kind == 3:
                if not self._publish(box, first, body, length):
                    return self._breach()
            elif kind == 4 or kind == 5 or kind == 7:
                if length < 2 or first & 15:
                    return self._breach()
                reason = box[body + 2] if length > 2 else 0
                packet_id = box[body] << 8 | box[body + 1]
                if self.publisher is None or not self.publisher.acknowledged(first, packet_id, reason):
                    tally.protocol_errors += 1
                if reason >= 128:
                    self.control(self, 0, bytes([reason]))
            elif kind == 6:
                if length < 2:
                    return self._breach()
                packet_id = box[body] << 8 | box[body + 1]
                if self.received_ids is not None:
                    self.received_ids.discard(packet_id)
                self._answer(0x70, packet_id)
            elif kind == 13:
                self.pings = max(0, self.pings - 1)
                tally.last_pong = tally.now
            else:
                self.control(self, first, bytes(memoryview(box)[body : body + length]))
                if self.fd < 0:
                    return 0
            at = body + length
        return at

    def _breach(self) -> int:
        self.tally.protocol_errors += 1
        return -1

    def _long_length(self, box: bytearray, at: int, end: int) -> tuple[int, int]:
        """(remaining length, position of the body); position 0: more is to come, -1: malformed [MQTT-1.5.5-1]."""
        length = shift = 0
        for place in range(at + 1, min(end, at + 5)):
            length |= (box[place] & 127) << shift
            shift += 7
            if box[place] < 128:
                return length, place + 1
        return 0, -1 if end >= at + 5 else 0

    def _publish(self, box: bytearray, first: int, body: int, length: int) -> bool:
        """One PUBLISH; False when it is malformed."""
        end = body + length
        if length < 2:
            return False
        at = body + 2 + (box[body] << 8 | box[body + 1])
        qos = first >> 1 & 3
        packet_id = 0
        if qos:
            if qos == 3 or at + 2 > end:
                return False
            packet_id = box[at] << 8 | box[at + 1]
            if packet_id == 0:
                return False
            at += 2
        if self.version == 5:
            if at >= end:
                return False
            if box[at] < 128:
                at += 1 + box[at]
            else:
                at = self._skip_properties(box, at, end)
        if at > end:
            return False
        if qos == 2:
            if self.received_ids is None:
                self.received_ids = set()
            if packet_id in self.received_ids:
                self.tally.retransmitted += 1  # the same message once more, not a delivery [MQTT-4.3.3-10]
                self._answer(0x50, packet_id)
                return True
            self.received_ids.add(packet_id)
        if self.responder is not None:
            self.responder(self, bytes(memoryview(box)[body:end]), at - body)
        elif self.row is not None:
            self.tally.deliver(self.row, self.tops, box, at, end - at, first)
        else:
            self.tally.misrouted += 1
        if qos:
            self._answer(0x40 if qos == 1 else 0x50, packet_id)
        return True

    def _skip_properties(self, box: bytearray, at: int, end: int) -> int:
        length, body = self._long_length(box, at - 1, end)
        return body + length if body > 0 else end + 1

    def _answer(self, first: int, packet_id: int) -> None:
        tally = self.tally
        if tally.out_at + 4 > len(tally.outbox):
            self.flush()
        put_ack(tally.outbox, tally.out_at, first, packet_id)
        tally.out_at += 4

    def flush(self) -> int:
        """Sends the tally's outbox; what the socket does not take becomes the tail."""
        tally = self.tally
        size = tally.out_at
        if size == 0:
            return OPEN
        tally.out_at = 0
        self.last_sent = tally.now
        if self.tail is not None:
            self.tail += memoryview(tally.outbox)[:size]
            return OPEN
        sent = transmit(self.fd, tally.outbox, 0, size) if self.link is None else self.link.transmit(tally.outbox, 0, size)
        if sent == -2:
            return CLOSED
        sent = max(sent, 0)
        if sent < size:
            self.tail = bytearray(memoryview(tally.outbox)[sent:size])
            tally.blocked.append(self)
        return OPEN

    def writable(self) -> int:
        """The socket takes bytes again: first the tail, then new messages."""
        if self.tail is not None:
            tail = self.tail
            sent = transmit(self.fd, tail, 0, len(tail)) if self.link is None else self.link.transmit(tail, 0, len(tail))
            if sent == -2:
                return CLOSED
            if sent > 0:
                self.tail = tail[sent:] if sent < len(tail) else None
            if self.tail is not None:
                return OPEN
        return self.pump()

    def pump(self) -> int:
        """New messages, if the connection is up and takes them."""
        if self.state != 4 or self.tail is not None or self.publisher is None:
            return OPEN
        if self.publisher.pump() == 0:
            return OPEN
        return self.flush()

    def pump_some(self) -> bool:
        """As `pump`; True when something went out."""
        if self.state != 4 or self.tail is not None or self.publisher is None:
            return False
        if self.publisher.pump() == 0:
            return False
        self.flush()
        return True

    def put(self, frame: bytes) -> int:
        """Sends a frame that is not a message."""
        tally = self.tally
        if tally.out_at:
            self.flush()
        if self.tail is not None:
            self.tail += frame
            return OPEN
        if len(frame) > len(tally.outbox):
            self.tail = bytearray(frame)
            tally.blocked.append(self)
            return OPEN
        copy(tally.outbox, 0, frame, 0, len(frame))
        tally.out_at = len(frame)
        return self.flush()

    def forget(self) -> None:
        """The connection is over: nothing of it may reach the next one."""
        self.fd = -1
        self.link = None
        self.partial = None
        self.tail = None
        self.pings = 0
        self.state = IDLE
