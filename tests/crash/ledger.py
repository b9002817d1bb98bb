"""Who sent what, who was owed it, who got it. Numbers count per publisher from 0; every publisher has one QoS."""

from __future__ import annotations

from dataclasses import dataclass, field

from lmq_store.api.model import Message
from mqtt_proxy.topics import rules

TOPICS = 5
"""Topic names of each publisher."""
GROW = 4_096
SHOWN = 12


def first_zero(flags: bytearray, start: int) -> int:
    """The first number that is not marked yet."""
    at = flags.find(0, start)
    return len(flags) if at < 0 else at


@dataclass
class Publisher:
    """What one publisher has handed to its client, and what is acknowledged."""

    number: int
    qos: int
    client_id: str = ""
    """Where it sends to this client alone, by `$p2p/`."""
    sent: int = 0
    acked: bytearray = field(default_factory=bytearray)
    acked_below: int = 0
    """All numbers below are acknowledged."""

    def topic(self, number: int) -> bytes:
        return b"$p2p/" + self.client_id.encode() if self.client_id else b"crash/%d/%d" % (self.number, number % TOPICS)

    def last_matching(self, receipts: Receipts) -> int:
        """The last number of a topic that the receipts are for; -1 where there is none."""
        return next((number for number in range(self.sent - 1, max(-1, self.sent - 1 - TOPICS), -1) if receipts.matches(self, number)), -1)

    def next(self) -> int:
        number = self.sent
        self.sent += 1
        if len(self.acked) <= number:
            self.acked += bytes(GROW)
        return number

    def acknowledge(self, number: int) -> None:
        self.acked[number] = 1
        if number == self.acked_below:
            self.acked_below = first_zero(self.acked, number)


def payload_of(publisher: Publisher, number: int, filler: bytes) -> bytes:
    return b"%d %d " % (publisher.number, number) + filler


def parse(payload: bytes) -> tuple[int, int]:
    publisher, number = payload.split(b" ", 2)[:2]
    return int(publisher), int(number)


class Receipts:
    """What one subscription (or one shared group) has got, and what it is owed.

    Owed is a list of ranges per publisher. `open_from` is where the range begins that is still growing; None while nothing is
    subscribed. Faults are texts; there should be none.
    """

    def __init__(self, name: str, publishers: list[Publisher], qos: int, ordered: bool = True) -> None:
        self.name = name
        self.publishers = publishers
        self.qos = qos
        self.ordered = ordered
        self.seen = [bytearray() for _ in publishers]
        self.last = [-1] * len(publishers)
        self.complete_below = [0] * len(publishers)
        self.open_from: list[int] | None = None
        self.owed: list[list[tuple[int, int]]] = [[] for _ in publishers]
        self.taken = 0
        self.redelivered = 0
        self.faults: list[str] = []
        self.only = b"crash/#"
        """The filter, as far as it matters."""

    def took(self, message: Message) -> None:
        """A message came."""
        which, number = parse(message.payload)
        publisher = self.publishers[which]
        if number >= publisher.sent:
            self.fault(f"publisher {which} never sent {number}")
            return
        seen = self.seen[which]
        if len(seen) <= number:
            seen += bytes(number - len(seen) + GROW)
        self.taken += 1
        if seen[number]:
            if min(publisher.qos, self.qos) == 2:
                self.fault(f"publisher {which}: {number} came twice at QoS 2 (dup={message.dup}, packet id {message.packet_id})")
            self.redelivered += 1
            return
        seen[number] = 1
        if self.ordered and publisher.qos:
            if number < self.last[which]:
                self.fault(f"publisher {which}: {number} came for the first time after {self.last[which]} (dup={message.dup})")
            else:
                self.last[which] = number

    def fault(self, text: str) -> None:
        if len(self.faults) < SHOWN:
            self.faults.append(f"{self.name}: {text}")

    # --- what is owed ---------------------------------------------------------------------------------------------------

    def subscribed(self) -> None:
        """SUBACK is here: all that is sent from now on is owed."""
        if self.open_from is None:
            self.open_from = [publisher.sent for publisher in self.publishers]

    def unsubscribing(self) -> None:
        """UNSUBSCRIBE leaves: what was acknowledged before is owed, the rest may or may not come."""
        if self.open_from is not None:
            for which, start in enumerate(self.open_from):
                self.owed[which].append((start, self.publishers[which].acked_below))
            self.open_from = None

    def session_ended(self) -> None:
        """Nothing is owed any more."""
        self.open_from = None
        self.owed = [[] for _ in self.publishers]

    def forgive_before(self, starts: list[int]) -> None:
        """Retention took what was before."""
        self.owed = [[] for _ in self.publishers]
        if self.open_from is not None:
            self.open_from = [max(old, new) for old, new in zip(self.open_from, starts, strict=True)]

    def matches(self, publisher: Publisher, number: int) -> bool:
        return rules.matches(self.only, publisher.topic(number))

    def missing(self) -> list[str]:
        """What is owed and acknowledged and not here, in words."""
        texts = []
        for which, publisher in enumerate(self.publishers):
            if not publisher.qos:
                continue
            seen = self.seen[which]
            if len(seen) < publisher.sent:
                seen += bytes(publisher.sent - len(seen) + GROW)
            ranges = list(self.owed[which])
            if self.open_from is not None:
                ranges.append((self.open_from[which], publisher.acked_below))
            lacking: list[int] = []
            still = []
            for start, stop in ranges:
                before = len(lacking)
                at = first_zero(seen, start)
                while at < stop:
                    if self.matches(publisher, at):
                        lacking.append(at)
                    at = first_zero(seen, at + 1)
                if len(lacking) > before:
                    still.append((start, stop))
            self.owed[which] = [one for one in still if one in self.owed[which]]
            if self.open_from is not None and not lacking:
                self.open_from[which] = max(self.open_from[which], publisher.acked_below)
            if lacking:
                texts.append(f"{self.name}: publisher {which} (QoS {publisher.qos}): {len(lacking)} missing: {lacking[:SHOWN]}")
        return texts

    def behind(self) -> bool:
        """The last message of some publisher is not here yet."""
        for which, publisher in enumerate(self.publishers):
            last = publisher.last_matching(self) if publisher.qos else -1
            if last >= 0 and (len(self.seen[which]) <= last or not self.seen[which][last]):
                return True
        return False

    def history_fault(self) -> str:
        """For a reader of history: what it has must be one piece that reaches to the end, whatever retention has left of it."""
        texts = []
        for which, publisher in enumerate(self.publishers):
            numbers = [number for number in range(publisher.sent) if publisher.qos and self.matches(publisher, number)]
            seen = self.seen[which]
            flags = bytes(seen[number] if number < len(seen) else 0 for number in numbers)
            first = len(flags) - len(flags.lstrip(b"\0"))
            lacking = [numbers[at] for at in range(first, len(flags)) if not flags[at]]
            if lacking:
                texts.append(f"publisher {which} {lacking[:SHOWN]} of {numbers[first]} to {numbers[-1]}")
        return f"{self.name}: missing in history: {'; '.join(texts)}" if texts else ""

    def suffix_fault(self) -> str:
        """For a reader that retention has overtaken: what it has since `open_from` must be one piece that reaches to the end."""
        for which, publisher in enumerate(self.publishers):
            if not publisher.qos or publisher.client_id or self.open_from is None:
                continue
            start = self.open_from[which]
            piece = self.seen[which][start : publisher.sent].lstrip(b"\0")
            if b"\0" in piece or len(piece) + start > publisher.sent:
                at = piece.find(0)
                upto = at + len(piece[at:]) - len(piece[at:].lstrip(b"\0"))
                first = publisher.sent - len(piece)
                return f"{self.name}: publisher {which}: nothing from {first + at} to {first + upto} after a long absence"
            if start < publisher.sent and not piece:
                return f"{self.name}: publisher {which}: nothing came after a long absence"
        return ""


@dataclass
class Retained:
    """The last value of each retained topic, by the one client that writes them all."""

    values: dict[bytes, bytes] = field(default_factory=dict)

    def difference(self, found: dict[bytes, bytes]) -> list[str]:
        texts = []
        for topic in sorted(self.values.keys() | found.keys()):
            wanted, got = self.values.get(topic, b""), found.get(topic, b"")
            if wanted != got:
                texts.append(f"retained {topic.decode()}: {got[:20]!r}, should be {wanted[:20]!r}")
        return texts
