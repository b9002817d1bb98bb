"""The answering half of request-response: each request's payload goes back to whoever asked."""

from __future__ import annotations

from loadtest import frames
from loadtest.client import Client
from loadtest.payload import BARE, Payload
from loadtest.publisher import Publisher
from loadtest.tally import HIGH_WATER, Tally

WINDOW = 1000


class Responder(Publisher):
    """Answers are no messages of the ledger: they carry the stamp of the request that they answer."""

    waiting_answers: list[tuple[bytes, bytes, bytes]]
    """(topic, properties, payload) not sent yet."""
    open_answers: dict[int, tuple[bytes, bytes, bytes]]
    """Slot → the answer in it, to be sent again after an outage."""

    @staticmethod
    def attach(client: Client, tally: Tally, qos: int, version: int) -> None:
        made = Responder(tally, 0, (b"", b""), 0, qos, False, b"", Payload(BARE, 0, 0, 0), WINDOW)
        made.waiting_answers = []
        made.open_answers = {}
        client.publisher = made
        client.responder = lambda asked, body, payload_at: made.take(body, payload_at, qos, version)

    def take(self, body: bytes, payload_at: int, qos: int, version: int) -> None:
        """A request: variable header and payload of its PUBLISH."""
        size = int.from_bytes(body[:2], "big")
        topic = body[2 : 2 + size].replace(b"/ask/", b"/answer/", 1)
        levels = topic.split(b"/")
        topic = b"/".join([*levels[:-2], levels[-1]])
        properties = b""
        if version == 5:
            found, _ = frames.properties_of(body, 2 + size + (2 if qos else 0))
            topic = bytes(found.get(0x08, topic))  # type: ignore[call-overload]
            correlation = found.get(0x09)
            properties = frames.block(b"\x09" + frames.text(correlation) if isinstance(correlation, bytes) else b"")
        self.waiting_answers.append((topic, properties, body[payload_at:]))

    def pump(self) -> int:
        tally = self.tally
        added = 0
        while self.resend and tally.out_at < HIGH_WATER:
            slot = self.resend.pop()
            self.outstanding += 1
            if self.slot_state[slot] == 2:
                self.put_ack(0x62, slot + 1)
            else:
                self._put(self.open_answers[slot], slot + 1, self.resend_dup)
            added += 1
        while self.waiting_answers and tally.out_at < HIGH_WATER and (not self.qos or self.in_flight < self.window):
            answer = self.waiting_answers.pop(0)
            packet_id = 0
            if self.qos:
                packet_id = self.take_slot(0, tally.now)
                self.open_answers[packet_id - 1] = answer
            self._put(answer, packet_id, 0)
            added += 1
        return added

    def _put(self, answer: tuple[bytes, bytes, bytes], packet_id: int, dup: int) -> None:
        topic, properties, payload = answer
        head = frames.text(topic) + (packet_id.to_bytes(2, "big") if self.qos else b"") + properties
        frame = frames.frame(0x30 | dup | self.qos << 1, head + payload)
        at = self.tally.out_at
        self.tally.outbox[at : at + len(frame)] = frame
        self.tally.out_at = at + len(frame)

    def finish(self, slot: int, refused: bool) -> None:
        """An answer is acknowledged: no message of the ledger, hence no count."""
        self.open_answers.pop(slot, None)
        self.slot_state[slot] = 0
        self.free[self.free_tail % self.slots] = slot
        self.free_tail += 1
        if self.free_head >= self.slots:
            self.free_head -= self.slots
            self.free_tail -= self.slots
        self.in_flight -= 1
        self.tally.in_flight -= 1
        self.outstanding = max(0, self.outstanding - 1)
