"""What one worker counts and measures, and the buffers that its clients share.

Counts cover the whole run, the `measured_…` ones and the latencies the measured time: messages due in it. `board` is memory
shared by all workers: how many messages each publisher has begun to send, and a row of totals per worker.
"""

from __future__ import annotations

import cython

from loadtest.histogram import Histogram
from loadtest.sequences import LATE, REPEAT, SequenceTable
from loadtest.stamp import CORRUPT, GOOD, Stamp, mix

ROW = 16
"""Numbers per worker on the board."""
SENT, ACKED, DELIVERED, EPOCH, CONNECTED, IN_FLIGHT, FORGIVEN = 0, 1, 2, 3, 4, 5, 6
FOREVER = 1 << 62
OUTBOX = 256 * 1024
HIGH_WATER = 128 * 1024
"""A client's turn stops adding messages here."""


class Row:
    """A subscription in the ledger: a client's, or that of a shared group; it expects publishers first … first+number-1."""

    __slots__ = ("cell", "first", "group", "number", "qos")

    def __init__(self, first: int, number: int, cell: int, qos: int, group: bool) -> None:
        self.first = first
        self.number = number
        self.cell = cell
        self.qos = qos
        self.group = group


class Tally:
    """One worker's counters, histograms, seen and acknowledged numbers."""

    def __init__(self, run: int, publishers: int, cells: int, workers: int, worker: int, board: memoryview) -> None:
        self.stamp = Stamp(run, publishers)
        self.publishers = publishers
        self.seen = SequenceTable(cells)
        self.acknowledged = SequenceTable(publishers)
        self.board = board
        self.row_at = publishers + ROW * worker
        self.workers = workers
        self.publisher_qos = bytearray(max(1, publishers))
        self.publisher_topics = [0] * publishers
        """How many topics a publisher draws from; 0: one topic; -1: a topic per message."""
        self.inbox = bytearray(OUTBOX)
        self.outbox = bytearray(OUTBOX)
        self.out_at = 0
        self.now = 0
        self.ledger = True
        self.measure_latency = True
        self.running = False
        """Closed loop: publishers may begin new messages."""
        self.measured_from = FOREVER
        self.measured_until = FOREVER
        self.credit = 0
        self.fan = 0.0
        self.track_epochs = False
        self.resent: set[tuple[int, int]] = set()
        self.rejected_numbers: set[tuple[int, int]] = set()
        self.repeats: dict[tuple[int, int], int] = {}
        """(publisher, number) → repeats without DUP at QoS 0 or 1: judged at the end, when it is known what was sent again."""
        self.flagged_firsts: set[tuple[int, int]] = set()
        """First deliveries to a shared group that carried DUP: another worker may hold the true first."""
        self.blocked: list[object] = []
        """Clients whose socket took less than they had: they wait for it to become writable."""
        self.clear_counts()
        self.ack = Histogram()
        self.send_to_ack = Histogram()
        self.end_to_end = Histogram()
        self.second = Histogram()
        """End to end, of the second that runs: emptied by each tick."""
        self.send_late = Histogram()
        self.connect = Histogram()
        self.subscribe = Histogram()

    def clear_counts(self) -> None:
        self.sent = self.acked = self.rejected = self.delivered = 0
        self.measured_sent = self.measured_acked = self.measured_delivered = 0
        self.duplicate = self.redelivered = self.reordered = 0
        self.corrupt = self.foreign = self.phantom = self.misrouted = self.retained_repeats = 0
        self.retransmitted = self.protocol_errors = 0
        self.last_sent = self.last_acked = self.first_delivered = self.last_delivered = self.last_pong = 0
        self.in_flight = 0

    def epoch(self) -> int:
        """Grows whenever a clean subscriber of any worker comes or goes."""
        total = 0
        for worker in range(self.workers):
            total += self.board[self.publishers + 16 * worker + 3]
        return total

    def next_epoch(self) -> int:
        self.board[self.row_at + 3] += 1
        return self.epoch()

    def publish_totals(self) -> None:
        """Put the totals where other workers and the views see them; once a turn."""
        self.board[self.row_at] = self.sent
        self.board[self.row_at + 1] = self.acked
        self.board[self.row_at + 2] = self.delivered
        self.board[self.row_at + 5] = self.in_flight

    def credit_left(self) -> bool:
        """False when the publishers together are `credit` messages ahead of what the subscribers have received."""
        sent = self.sent
        received = self.delivered
        for worker in range(self.workers):
            base = self.publishers + 16 * worker
            if base != self.row_at:
                sent += self.board[base]
                received += self.board[base + 2]
            received += self.board[base + 6]
        return sent < self.credit or (sent - self.credit) * self.fan < received

    def deliver(self, row: Row, tops: memoryview | None, frame: bytearray, at: int, size: int, flags: int) -> None:
        """Account for the payload frame[at : at+size] of one PUBLISH; `flags` is its first byte."""
        if not self.ledger:
            self._count_delivery()
            return
        verdict = self.stamp.read(frame, at, size)
        if verdict != GOOD:
            if verdict == CORRUPT:
                self.corrupt += 1
            else:
                self.foreign += 1
            return
        publisher = self.stamp.publisher
        number = self.stamp.number
        if number >= self.board[publisher]:
            self.phantom += 1  # its publisher had not begun to send it: nobody did
            return
        place = publisher - row.first
        if place < 0 or place >= row.number:
            self.misrouted += 1
            return
        verdict = self.seen.add(row.cell + place, number)
        if verdict == REPEAT:
            self._repeat(row, publisher, number, flags)
            return
        if tops is not None:
            if number < tops[publisher]:
                self.reordered += 1
            else:
                tops[publisher] = number
            if flags & 8:
                self.flagged_firsts.add((publisher, number))
        elif verdict == LATE:
            topics = self.publisher_topics[publisher]
            if topics == 0 or (topics > 0 and self._same_topic_above(row.cell + place, publisher, number)):
                self.reordered += 1
        self._count_delivery()
        due = self.stamp.due
        if self.measure_latency:
            self.second.record(self.now - due)
            if self.measured_from <= due < self.measured_until:
                self.end_to_end.record(self.now - due)

    def _count_delivery(self) -> None:
        self.delivered += 1
        if self.first_delivered == 0:
            self.first_delivered = self.now
        self.last_delivered = self.now
        if self.measured_from <= self.now < self.measured_until:
            self.measured_delivered += 1

    def _repeat(self, row: Row, publisher: int, number: int, flags: int) -> None:
        if row.qos == 2 and self.publisher_qos[publisher] == 2:
            self.duplicate += 1
        elif flags & 8:
            self.redelivered += 1
        elif flags & 1:
            self.retained_repeats += 1  # a retained message again, to a new subscription: as specified
        else:
            key = (publisher, number)
            self.repeats[key] = self.repeats.get(key, 0) + 1

    def _same_topic_above(self, cell: int, publisher: int, number: int) -> bool:
        """True when a higher number of the same publisher and topic has been seen: order holds per topic only."""
        topics = self.publisher_topics[publisher]
        topic = topic_index(publisher, number, topics)
        for higher in range(number + 1, self.seen.top(cell)):
            if topic_index(publisher, higher, topics) == topic and self.seen.has(cell, higher):
                return True
        return False


def topic_index(publisher: int, number: int, topics: int) -> int:
    """Which of its topics a publisher's message goes to: drawn from the number, so that both sides know it."""
    return mix(number, publisher * 2 + 1) % topics


COMPILED: bool = cython.compiled
