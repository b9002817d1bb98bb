"""One connection of the sink: every packet answered at once, every PUBLISH forwarded to whoever matches; nothing is kept.

No session, retained message, will or redelivery: it is what the harness is measured against, not a broker.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from loadtest.publisher import put_ack, put_length
    from loadtest.socket_io import copy, receive, transmit

INBOX = 256 * 1024
OUTBOX = 256 * 1024


class Hub:
    """What all connections of a sink share: subscriptions, and the matches of topics seen."""

    __slots__ = ("blocked", "dirty", "dropped", "inbox", "matched", "packets", "subscriptions")

    def __init__(self) -> None:
        self.inbox = bytearray(INBOX)
        self.subscriptions: list[tuple[str, int, SinkLink]] = []
        self.matched: dict[bytes, list[tuple[int, SinkLink]]] = {}
        """Topic → (granted QoS, connection), forgotten whenever a subscription changes."""
        self.dirty: list[SinkLink] = []
        self.blocked: list[SinkLink] = []
        self.dropped = 0
        self.packets = 0

    def match(self, topic: bytes) -> list[tuple[int, SinkLink]]:
        from loadtest.layout import matches

        name = topic.decode("utf-8", "replace")
        best: dict[SinkLink, int] = {}
        shares: dict[str, SinkLink] = {}
        for topic_filter, qos, link in self.subscriptions:
            if matches(topic_filter, name):
                if topic_filter.startswith("$share/"):
                    if topic_filter in shares:
                        continue
                    shares[topic_filter] = link
                best[link] = max(best.get(link, 0), qos)
        found = [(qos, link) for link, qos in best.items()]
        self.matched[topic] = found
        return found

    def forget(self, link: SinkLink) -> None:
        self.subscriptions = [one for one in self.subscriptions if one[2] is not link]
        self.matched.clear()


class SinkLink:
    """A client of the sink."""

    __slots__ = ("fd", "hub", "is_dirty", "next_id", "out_at", "outbox", "partial", "tail", "version")

    def __init__(self, hub: Hub, fd: int) -> None:
        self.hub = hub
        self.fd = fd
        self.version = 4
        self.outbox = bytearray(1024)
        self.out_at = 0
        self.partial: bytes | None = None
        self.tail: bytearray | None = None
        self.next_id = 0
        self.is_dirty = False

    def readable(self) -> bool:
        """Takes what is there; False when the connection is over."""
        box = self.hub.inbox
        keep = 0
        partial = self.partial
        if partial is not None:
            if 2 * len(partial) > len(box):
                self.hub.inbox = box = bytearray(4 * len(partial))
            keep = len(partial)
            copy(box, 0, partial, 0, keep)
            self.partial = None
        got = receive(self.fd, box, keep, len(box) - keep)
        if got == -1:
            if keep:
                self.partial = partial
            return True
        if got <= 0:
            return False
        end = keep + got
        at = self.scan(box, end)
        if at < 0:
            return False
        if at < end:
            self.partial = bytes(memoryview(box)[at:end])
        self.mark()
        return True

    def scan(self, box: bytearray, end: int) -> int:
        """Answers every whole frame; the first position not used, or -1 to close."""
        at = 0
        while end - at >= 2:
            length = box[at + 1] & 127
            body = at + 2
            shift = 7
            while box[body - 1] & 128:
                if shift > 21:
                    return -1
                if body >= end:
                    return at
                length |= (box[body] & 127) << shift
                shift += 7
                body += 1
            if body + length > end:
                break
            kind = box[at] >> 4
            if kind == 3:
                self._publish(box, box[at], body, length)
            elif kind == 6:
                self._answer(0x70, box[body] << 8 | box[body + 1])
            elif kind == 5:
                self._answer(0x62, box[body] << 8 | box[body + 1])
            elif kind == 4 or kind == 7:
                pass
            elif kind == 14 or not self._rare(box[at], bytes(memoryview(box)[body : body + length])):
                return -1
            self.hub.packets += 1
            at = body + length
        return at

    def _publish(self, box: bytearray, first: int, body: int, length: int) -> None:
        qos = first >> 1 & 3
        size = box[body] << 8 | box[body + 1]
        at = body + 2 + size
        if qos:
            self._answer(0x40 if qos == 1 else 0x50, box[at] << 8 | box[at + 1])
            at += 2
        if not self.hub.subscriptions:
            return
        topic = bytes(memoryview(box)[body + 2 : body + 2 + size])
        links = self.hub.matched.get(topic)
        if links is None:
            links = self.hub.match(topic)
        for granted, link in links:
            link.forward(box, body, size + 2, at, body + length - at, min(granted, qos), self.version)

    def forward(self, box: bytearray, body: int, head: int, rest: int, rest_size: int, qos: int, version: int) -> None:
        """A message for this subscriber: topic from box[body:], the rest (properties and payload) from box[rest:]."""
        extra = 1 if self.version == 5 and version != 5 else 0
        skip = 0
        if version == 5 and self.version != 5:
            skip = 1 + box[rest]
        size = head + (2 if qos else 0) + extra + rest_size - skip
        self.reserve(size + 8)
        out = self.outbox
        at = self.out_at
        out[at] = 0x30 | qos << 1
        at = put_length(out, at + 1, size)
        copy(out, at, box, body, head)
        at += head
        if qos:
            self.next_id = self.next_id + 1 if self.next_id < 65535 else 1
            out[at] = self.next_id >> 8
            out[at + 1] = self.next_id & 255
            at += 2
        if extra:
            out[at] = 0
            at += 1
        copy(out, at, box, rest + skip, rest_size - skip)
        self.out_at = at + rest_size - skip
        self.mark()

    def mark(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self.hub.dirty.append(self)

    def reserve(self, size: int) -> None:
        if self.out_at + size > len(self.outbox):
            self.outbox.extend(bytes(max(size, len(self.outbox))))

    def _answer(self, first: int, packet_id: int) -> None:
        self.reserve(4)
        put_ack(self.outbox, self.out_at, first, packet_id)
        self.out_at += 4
        self.mark()

    def say(self, frame: bytes) -> None:
        self.reserve(len(frame))
        copy(self.outbox, self.out_at, frame, 0, len(frame))
        self.out_at += len(frame)
        self.mark()

    def _rare(self, first: int, body: bytes) -> bool:
        """CONNECT, SUBSCRIBE and PINGREQ; False for anything else."""
        kind = first >> 4
        if kind == 1:
            self.version = body[2 + body[1]]
            self.say(b"\x20\x03\x00\x00\x00" if self.version == 5 else b"\x20\x02\x00\x00")
        elif kind == 12:
            self.say(b"\xd0\x00")
        elif kind == 8:
            at = 3 + body[2] if self.version == 5 else 2
            codes = b""
            while at < len(body):
                size = body[at] << 8 | body[at + 1]
                qos = body[at + 2 + size] & 3
                self.hub.subscriptions.append((body[at + 2 : at + 2 + size].decode(), qos, self))
                codes += bytes([qos])
                at += 3 + size
            self.hub.matched.clear()
            answer = body[:2] + (b"\x00" if self.version == 5 else b"") + codes
            self.say(bytes([0x90]) + _length(len(answer)) + answer)
        else:
            return False
        return True

    def flush(self) -> bool:
        """Sends what there is; False when the connection is over."""
        self.is_dirty = False
        if self.tail is not None:
            if self.out_at:
                self.tail += memoryview(self.outbox)[: self.out_at]
                self.out_at = 0
            sent = transmit(self.fd, self.tail, 0, len(self.tail))
            if sent > 0:
                self.tail = self.tail[sent:] if sent < len(self.tail) else None
        else:
            size = self.out_at
            if size == 0:
                return True
            sent = transmit(self.fd, self.outbox, 0, size)
            self.out_at = 0
            if sent < size and sent != -2:
                self.tail = bytearray(memoryview(self.outbox)[max(sent, 0) : size])
        if sent == -2:
            return False
        if self.tail is not None:
            self.hub.blocked.append(self)
        return True


def _length(size: int) -> bytes:
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out)
