"""25 rounds of kill -9 under load, from one seed; and the ledger notices what it has to."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lmq_store.api.model import Message

from .campaign import Campaign
from .ledger import Publisher, Receipts, Retained, payload_of

ROUNDS = 25


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_over_25_crashes(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"again with: python -m tests.crash --rounds {ROUNDS} --seed {seed}")
    campaign = Campaign(tmp_path, seed)
    try:
        campaign.begin()
        for _ in range(ROUNDS):
            campaign.run_round()
        campaign.end()
    finally:
        campaign.clients.close()
        campaign.server.stop()
    assert campaign.server.starts >= ROUNDS + 1
    assert sum(publisher.sent for publisher in campaign.publishers) > 100 * ROUNDS


def publisher(qos: int, sent: int) -> Publisher:
    one = Publisher(0, qos)
    for _ in range(sent):
        one.acknowledge(one.next())
    return one


def message(one: Publisher, number: int) -> Message:
    return Message(b"crash/0/0", payload_of(one, number, b""), one.qos)


def test_the_ledger_misses_what_is_not_there() -> None:
    one = publisher(1, 5)
    receipts = Receipts("test", [one], 1)
    receipts.subscribed()
    assert receipts.missing() == []
    for _ in range(5):
        one.acknowledge(one.next())
    for number in (5, 6, 8, 9):
        receipts.took(message(one, number))
    assert len(receipts.missing()) == 1
    assert "[7]" in receipts.missing()[0]
    receipts.took(message(one, 7))
    assert receipts.missing() == []
    assert "7 came for the first time after 9" in receipts.faults[0]


def test_the_ledger_tells_redelivered_from_twice() -> None:
    for qos, faults in ((1, 0), (2, 1)):
        one = publisher(qos, 1)
        receipts = Receipts("test", [one], 2)
        receipts.took(message(one, 0))
        receipts.took(message(one, 0))
        assert receipts.redelivered == 1
        assert len(receipts.faults) == faults


def test_the_ledger_notices_what_was_never_sent() -> None:
    one = publisher(1, 1)
    receipts = Receipts("test", [one], 1)
    receipts.took(message(one, 1))
    assert "never sent" in receipts.faults[0]


def test_the_ledger_owes_what_was_acknowledged_before_unsubscribe() -> None:
    one = publisher(1, 0)
    receipts = Receipts("test", [one], 1)
    receipts.subscribed()
    for _ in range(3):
        one.acknowledge(one.next())
    one.next()
    receipts.unsubscribing()
    assert "3 missing: [0, 1, 2]" in receipts.missing()[0]
    for number in range(3):
        receipts.took(message(one, number))
    assert receipts.missing() == []


def test_the_ledger_compares_what_is_retained() -> None:
    retained = Retained({b"a": b"1", b"b": b""})
    assert retained.difference({b"a": b"1"}) == []
    assert len(retained.difference({b"a": b"0", b"c": b"2"})) == 2
