"""The account of a run: what every publisher sent against what every subscription saw, merged exactly over the workers.

expected          acknowledged messages (QoS 0: sent ones) times matching subscriptions; a shared group is one subscription
lost              expected and never seen, effective QoS 1 or 2
lost_qos0         sent and never seen, effective QoS 0
delivered         different messages
redelivered       repeats with DUP, or of a message that its publisher itself sent again
duplicate         all other repeats; at QoS 2 every repeat
delivered_unacked seen although never acknowledged
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loadtest.sequences import SeenNumbers

Runs = list[tuple[int, int, int]]


@dataclass(slots=True)
class Account:
    """The figures of the ledger."""

    expected: int = 0
    lost: int = 0
    lost_qos0: int = 0
    delivered: int = 0
    duplicate: int = 0
    redelivered: int = 0
    delivered_unacked: int = 0
    misrouted: int = 0
    unacked: int = 0
    unsent: int = 0
    resent: int = 0
    losses: list[tuple[tuple[int, int], int, int, list[int]]] = field(default_factory=list)
    """For people: (row, publisher, how many, the first numbers) of the first few losses."""


@dataclass(slots=True)
class _Sent:
    """One publisher's side."""

    sent: int
    contiguous: int | None
    """Acknowledged exactly 0 … contiguous-1; None when it is not that simple."""
    qos: int
    bits: int
    """Bitmap of the acknowledged numbers, filled when it is needed."""
    rejected: int
    runs: Runs

    def owed(self) -> int:
        """Bitmap of what every subscription may expect."""
        if self.qos == 0:
            return (1 << self.sent) - 1
        return self.bits


def _mask(first: int, end: int) -> int:
    return (1 << end) - (1 << first) if end > first else 0


class _Books:
    def __init__(self, ledgers: list[dict[str, Any]], qos_of: dict[int, int]) -> None:
        self.seen = [SeenNumbers(ledger["seen"]) for ledger in ledgers]
        self.publishers: dict[int, _Sent] = {}
        for ledger in ledgers:
            acknowledged = SeenNumbers(ledger["acknowledged"])
            rejected: dict[int, int] = {}
            for publisher, number in ledger["rejected_numbers"]:
                rejected[publisher] = rejected.get(publisher, 0) | 1 << number
            for publisher, (sent, _, _, runs) in ledger["publishers"].items():
                contiguous = acknowledged.contiguous(publisher)
                self.publishers[publisher] = _Sent(
                    sent, contiguous, qos_of[publisher], acknowledged.bits(publisher), rejected.get(publisher, 0), runs
                )


def account(ledgers: list[dict[str, Any]], qos_of: dict[int, int], late_groups: set[int]) -> Account:
    """Merge the workers' ledgers; `late_groups` subscribed when all was published, so nothing was missed before."""
    result = Account()
    books = _Books(ledgers, qos_of)
    for ledger in ledgers:
        for publisher, (sent, _, waiting, _) in ledger["publishers"].items():
            result.unsent += waiting
            mine = books.publishers[publisher]
            if qos_of[publisher]:
                result.unacked += sent - mine.bits.bit_count() - mine.rejected.bit_count()
        result.duplicate += ledger["counts"]["duplicate"]
        result.redelivered += ledger["counts"]["redelivered"]
        result.resent += len(ledger["resent"])
    resent: set[tuple[int, int]] = set().union(*(ledger["resent"] for ledger in ledgers))
    flagged: set[tuple[int, int]] = set().union(*(ledger["flagged_firsts"] for ledger in ledgers))
    for ledger in ledgers:
        for key, times in ledger["repeats"].items():
            if key in resent:
                result.redelivered += times
            else:
                result.duplicate += times
    rows: dict[tuple[int, int], list[tuple[int, Any]]] = {}
    for worker, ledger in enumerate(ledgers):
        for row in ledger["rows"]:
            rows.setdefault(row[0], []).append((worker, row))
    for key, parts in rows.items():
        _row(result, books, key, parts, resent, flagged, key[0] in late_groups)
    return result


def _row(result: Account, books: _Books, key: tuple[int, int], parts: list[tuple[int, Any]], resent: set[tuple[int, int]],
         flagged: set[tuple[int, int]], late: bool) -> None:  # fmt: skip
    """One subscription against every publisher it expects."""
    _, (_, first, number, _, qos, spans, absences, refused) = parts[0]
    wanted = {publisher for start, length in spans for publisher in range(start, start + length)}
    refused = all(part[1][7] for part in parts)
    for publisher in range(first, first + number):
        sent = books.publishers[publisher]
        cells = [(worker, row[3] + publisher - first) for worker, row in parts]
        if refused or publisher not in wanted:
            result.misrouted += sum(books.seen[worker].bits(cell).bit_count() for worker, cell in cells)
            continue
        gone = [] if late else absences
        effective = min(qos, sent.qos)
        if len(cells) == 1 and not gone and not sent.rejected:
            worker, cell = cells[0]
            seen = books.seen[worker].contiguous(cell)
            if seen is not None and (sent.contiguous is not None or sent.qos == 0):
                _straight(result, key, publisher, sent, seen, effective)
                continue
        _bitwise(result, books, key, publisher, sent, cells, effective, gone, resent, flagged)


def _straight(result: Account, key: tuple[int, int], publisher: int, sent: _Sent, seen: int, effective: int) -> None:
    """Both sides are 0 … n-1."""
    owed = sent.sent if sent.qos == 0 else sent.contiguous or 0
    result.expected += owed
    result.delivered += seen
    if sent.qos:
        result.delivered_unacked += max(0, seen - owed)
    if effective == 0:
        result.lost_qos0 += max(0, sent.sent - seen)
    elif owed > seen:
        result.lost += owed - seen
        _note(result, key, publisher, owed - seen, list(range(seen, min(owed, seen + 5))))


def _bitwise(result: Account, books: _Books, key: tuple[int, int], publisher: int, sent: _Sent, cells: list[tuple[int, int]],
             effective: int, absences: list[tuple[int, int]], resent: set[tuple[int, int]],
             flagged: set[tuple[int, int]]) -> None:  # fmt: skip
    seen = 0
    for worker, cell in cells:
        part = books.seen[worker].bits(cell)
        _overlap(result, publisher, seen & part, effective, resent, flagged)
        seen |= part
    owed = sent.owed()
    acknowledged = owed
    if sent.qos:
        for begin, end in absences:
            for epoch, first, last in sent.runs:
                if begin <= epoch < end:
                    owed &= ~_mask(first, last)
        # What was seen is owed all the same: it was acknowledged, and a subscription matched.
        owed |= seen & acknowledged
    result.expected += owed.bit_count()
    result.delivered += seen.bit_count()
    if sent.qos:
        result.delivered_unacked += (seen & ~acknowledged).bit_count()
    if effective == 0:
        result.lost_qos0 += (_mask(0, sent.sent) & ~sent.rejected & ~seen).bit_count()
        return
    missing = owed & ~seen
    if missing:
        result.lost += missing.bit_count()
        _note(result, key, publisher, missing.bit_count(), list(_lowest(missing, 5)))


def _overlap(result: Account, publisher: int, both: int, effective: int, resent: set[tuple[int, int]],
             flagged: set[tuple[int, int]]) -> None:  # fmt: skip
    """Members of one shared group in two workers got the same message: one of the two was a repeat."""
    for number in _lowest(both, both.bit_count()):
        if effective < 2 and ((publisher, number) in resent or (publisher, number) in flagged):
            result.redelivered += 1
        else:
            result.duplicate += 1


def _lowest(bits: int, how_many: int) -> Iterable[int]:
    for _ in range(how_many):
        if not bits:
            return
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _note(result: Account, key: tuple[int, int], publisher: int, how_many: int, numbers: list[int]) -> None:
    if len(result.losses) < 10:
        result.losses.append((key, publisher, how_many, numbers))
