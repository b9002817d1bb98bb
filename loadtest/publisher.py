"""A client's sending half: PUBLISH packets from a schedule or a window, and what of them is unacknowledged.

Open loop: message n is due at a fixed instant; what a window, a full socket or an outage holds back stays due, as numbers
(`scheduled - next_number`), and goes out in order. Closed loop: the window is the only brake. After an outage everything
unacknowledged goes out again in order before anything new: with DUP and its packet id where the session lives [MQTT-4.4.0-1],
else as a new PUBLISH with the same ledger number.
"""

from __future__ import annotations

from array import array

import cython

from loadtest.payload import Payload
from loadtest.tally import FOREVER, Tally, topic_index

if not cython.compiled:
    from loadtest.socket_io import copy

# States of a slot: 0 free, 1 published, 2 released (QoS 2: PUBREC has come, PUBREL is out [MQTT-4.3.3-4]).
# First bytes of acknowledgements: 0x40 PUBACK, 0x50 PUBREC, 0x62 PUBREL, 0x70 PUBCOMP. Written as numbers below, since a
# module-level name is an object to the compiled loop. 131072 is tally.HIGH_WATER.
FIRST_SLOTS = 16


class Publisher:
    """One publisher of the ledger; `number` is its place there."""

    __slots__ = (
        "ack_runs",
        "due_from",
        "due_step",
        "free",
        "free_head",
        "free_tail",
        "in_flight",
        "limit",
        "next_number",
        "number",
        "open_loop",
        "outstanding",
        "payload",
        "properties",
        "qos",
        "receive_maximum",
        "resend",
        "resend_dup",
        "retain",
        "scheduled",
        "slot_due",
        "slot_number",
        "slot_sent",
        "slot_state",
        "slots",
        "tally",
        "topic_head",
        "topic_prefix",
        "topic_suffix",
        "topics",
        "window",
    )

    def __init__(self, tally: Tally, number: int, topic: tuple[bytes, bytes], topics: int, qos: int, retain: bool,
                 properties: bytes, payload: Payload, window: int) -> None:  # fmt: skip
        self.tally = tally
        self.number = number
        self.topic_prefix, self.topic_suffix = topic
        self.topics = topics
        """-1: one topic per message, its number; 0: a fixed topic; else the number of topics to draw from."""
        whole = self.topic_prefix + self.topic_suffix
        self.topic_head = len(whole).to_bytes(2, "big") + whole
        self.qos = qos
        self.retain = retain
        self.properties = properties
        """The MQTT 5 property block with its length; empty before MQTT 5."""
        self.payload = payload
        self.window = window
        self.receive_maximum = 65535
        self.open_loop = False
        self.due_from = 0.0
        self.due_step = 0.0
        self.next_number = 0
        self.scheduled = 0
        self.limit = FOREVER
        self.in_flight = 0
        """Slots taken: sent at least once, not acknowledged."""
        self.outstanding = 0
        """Of these, sent on the present connection: what the window and Receive Maximum bound."""
        self.resend: list[int] = []
        """Slots to send again, the lowest number last."""
        self.resend_dup = 0
        self.ack_runs: list[tuple[int, int, int]] = []
        """(epoch, first number, one above the last): when each was acknowledged, kept only where subscribers come and go."""
        self.slots = 0
        self.slot_number: memoryview = memoryview(array("Q"))
        self.slot_due: memoryview = memoryview(array("q"))
        self.slot_sent: memoryview = memoryview(array("q"))
        self.slot_state = bytearray()
        self.free: memoryview = memoryview(array("H"))
        self.free_head = self.free_tail = 0
        self._grow(min(FIRST_SLOTS, window) if qos else 0)

    def _grow(self, slots: int) -> None:
        """Room for `slots` messages in flight; packet id = slot + 1."""
        old = self.slots
        added = max(1, slots) - len(self.slot_state)
        self.slot_number = _longer(self.slot_number, "Q", added)
        self.slot_due = _longer(self.slot_due, "q", added)
        self.slot_sent = _longer(self.slot_sent, "q", added)
        self.slot_state = self.slot_state + bytearray(added)
        waiting = [self.free[place % old] for place in range(self.free_head, self.free_tail)] if old else []
        waiting += range(old, slots)
        self.free = memoryview(array("H", waiting + [0] * (max(1, slots) - len(waiting))))
        self.free_head = 0
        self.free_tail = len(waiting)
        self.slots = slots

    def due_of(self, number: int) -> int:
        """Open loop: when message `number` is due, ns."""
        return int(self.due_from + number * self.due_step)

    def pump(self) -> int:
        """Adds what may go out now to the tally's outbox; the number of messages added."""
        tally = self.tally
        added = 0
        if self.resend:
            added = self._pump_again()
            if self.resend:
                return added
        high = 131072
        if self.qos == 0 and not self.open_loop:
            high = min(high, tally.out_at + 65536)  # in turns, so that one publisher's full socket holds up no other
        while True:
            if self.next_number >= self.limit:
                break
            if self.open_loop:
                if self.next_number >= self.scheduled:
                    break
            elif not tally.running:
                break
            if self.qos and (self.in_flight >= self.window or self.outstanding >= self.receive_maximum):
                break
            if tally.out_at >= high:
                break
            if tally.credit and not tally.credit_left():
                break
            self._send_next()
            added += 1
        return added

    def _send_next(self) -> None:
        """The next new message."""
        tally = self.tally
        number = self.next_number
        now = tally.now
        due = now
        if self.open_loop:
            due = self.due_of(number)
            if tally.measured_from <= due < tally.measured_until:
                tally.send_late.record(now - due)
        packet_id = 0
        if self.qos:
            packet_id = self.take_slot(number, due)
        # On the board before the bytes leave, so that no subscriber can see a number that is not there.
        tally.board[self.number] = number + 1
        self.next_number = number + 1
        tally.sent += 1
        if tally.measured_from <= now < tally.measured_until:
            tally.measured_sent += 1
        tally.last_sent = now
        self.encode(number, due, packet_id, 0)

    def take_slot(self, number: int, due: int) -> int:
        if self.free_head == self.free_tail:
            self._grow(min(2 * self.slots, self.window))
        slot = self.free[self.free_head % self.slots]
        self.free_head += 1
        self.slot_number[slot] = number
        self.slot_due[slot] = due
        self.slot_sent[slot] = self.tally.now
        self.slot_state[slot] = 1
        self.in_flight += 1
        self.outstanding += 1
        self.tally.in_flight += 1
        return slot + 1

    def encode(self, number: int, due: int, packet_id: int, dup: int) -> None:
        """One PUBLISH into the outbox; the caller has seen to it that it is below the high water mark."""
        tally = self.tally
        out = tally.outbox
        size = self.payload.size_of(self.number, number)
        head = self.topic_head
        if self.topics:
            drawn = number if self.topics < 0 else topic_index(self.number, number, self.topics)
            topic = self.topic_prefix + str(drawn).encode() + self.topic_suffix
            head = len(topic).to_bytes(2, "big") + topic
        length = len(head) + (2 if self.qos else 0) + len(self.properties) + size
        at = tally.out_at
        out[at] = 0x30 | dup | self.qos << 1 | (1 if self.retain else 0)
        at = put_length(out, at + 1, length)
        copy(out, at, head, 0, len(head))
        at += len(head)
        if self.qos:
            out[at] = packet_id >> 8
            out[at + 1] = packet_id & 255
            at += 2
        if self.properties:
            copy(out, at, self.properties, 0, len(self.properties))
            at += len(self.properties)
        self.payload.write(out, at, size, self.number, number, due)
        tally.out_at = at + size

    def put_ack(self, first: int, packet_id: int) -> None:
        put_ack(self.tally.outbox, self.tally.out_at, first, packet_id)
        self.tally.out_at += 4

    def acknowledged(self, first: int, packet_id: int, reason: int) -> bool:
        """PUBACK, PUBREC or PUBCOMP; False when it answers nothing that is open."""
        slot = packet_id - 1
        if slot < 0 or slot >= self.slots or self.slot_state[slot] == 0:
            return False
        state = self.slot_state[slot]
        if first == 0x50:
            if self.qos != 2:
                return False
            if reason >= 0x80:
                self.finish(slot, True)
            else:
                self.slot_state[slot] = 2
                self.put_ack(0x62, packet_id)
            return True
        if first == 0x40 and self.qos == 1:
            self.finish(slot, reason >= 0x80)
            return True
        if first == 0x70 and state == 2:
            self.finish(slot, False)
            return True
        return False

    def finish(self, slot: int, refused: bool) -> None:
        tally = self.tally
        now = tally.now
        number = self.slot_number[slot]
        if refused:
            tally.rejected += 1
            tally.rejected_numbers.add((self.number, number))
        else:
            tally.acked += 1
            tally.last_acked = now
            if tally.measured_from <= now < tally.measured_until:
                tally.measured_acked += 1
            tally.acknowledged.add(self.number, number)
            due = self.slot_due[slot]
            if tally.measured_from <= due < tally.measured_until:
                tally.ack.record(now - due)
                tally.send_to_ack.record(now - self.slot_sent[slot])
            if tally.track_epochs:
                self._note_run(number)
        self.slot_state[slot] = 0
        self.free[self.free_tail % self.slots] = slot
        self.free_tail += 1
        if self.free_head >= self.slots:
            self.free_head -= self.slots
            self.free_tail -= self.slots
        self.in_flight -= 1
        tally.in_flight -= 1
        if self.outstanding > 0:
            self.outstanding -= 1

    def _note_run(self, number: int) -> None:
        epoch = self.tally.epoch()
        if self.ack_runs:
            last = self.ack_runs[len(self.ack_runs) - 1]
            if last[0] == epoch and last[2] == number:
                self.ack_runs[len(self.ack_runs) - 1] = (epoch, last[1], number + 1)
                return
        self.ack_runs.append((epoch, number, number + 1))

    def reconnected(self, session_present: bool) -> None:
        """The connection is new: what was unacknowledged is to be sent again, in order."""
        self.outstanding = 0
        waiting = [slot for slot in range(self.slots) if self.slot_state[slot] != 0]
        if not session_present:
            # The broker owns a message once PUBREC has come [MQTT-4.3.3-6]: it must not be published again.
            for slot in [slot for slot in waiting if self.slot_state[slot] == 2]:
                self.finish(slot, False)
            waiting = [slot for slot in waiting if self.slot_state[slot] != 0]
        by_number = sorted([(self.slot_number[slot], slot) for slot in waiting], reverse=True)
        self.resend = [slot for _, slot in by_number]
        self.resend_dup = 8 if session_present else 0

    def _pump_again(self) -> int:
        tally = self.tally
        added = 0
        while self.resend and tally.out_at < 131072 and self.outstanding < self.receive_maximum:
            slot = self.resend.pop()
            self.outstanding += 1
            added += 1
            if self.slot_state[slot] == 2:
                self.put_ack(0x62, slot + 1)
                continue
            tally.resent.add((self.number, self.slot_number[slot]))
            self.encode(self.slot_number[slot], self.slot_due[slot], slot + 1, self.resend_dup)
        return added

    def waiting(self) -> int:
        """Messages that are due and were never sent."""
        return max(0, min(self.scheduled, self.limit) - self.next_number) if self.open_loop else 0


def _longer(view: memoryview, kind: str, added: int) -> memoryview:
    return memoryview(array(kind, bytes(view)) + array(kind, bytes(8 * added)))


def put_length(b: bytearray, at: int, length: int) -> int:
    """The remaining length as a variable byte integer; the position after it."""
    while length > 127:
        b[at] = length & 127 | 128
        length = length >> 7
        at += 1
    b[at] = length
    return at + 1


def put_ack(b: bytearray, at: int, first: int, packet_id: int) -> None:
    b[at] = first
    b[at + 1] = 2
    b[at + 2] = packet_id >> 8
    b[at + 3] = packet_id & 255

