"""What is planned for later: session expiry, wills, the grace time of queues. It stays as small as what it is about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_proxy.flows import sessions, will
from mqtt_proxy.settings import Settings
from tests.conformance import wire
from tests.mqtt_proxy.in_memory import BrokerInMemory, open_unsynced

COMINGS = 3_000
WILL = wire.Will("gone", b"c", properties=(("will_delay", 60),))


def kept(expiry_s: int) -> tuple[tuple[str, int], ...]:
    return (("session_expiry", expiry_s),)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BrokerInMemory]:
    with BrokerInMemory(open_unsynced(tmp_path), Settings(allow_anonymous=True, queue_grace_s=60)) as lab:
        yield lab


@pytest.mark.parametrize("clean", [False, True])
def test_a_client_that_comes_and_goes_costs_no_memory(lab: BrokerInMemory, clean: bool) -> None:
    for _ in range(COMINGS):
        lab.connect("c", clean=clean, properties=kept(86_400), will=WILL).drop()
        lab.now_ms += 1
    lab.settle()
    assert len(lab.broker.stored_sessions.expiries) <= sessions.STALE_MAX + 3
    assert len(lab.broker.wills.due) <= will.STALE_MAX + 3


def test_a_session_expires_in_its_time_whatever_was_planned_before(lab: BrokerInMemory) -> None:
    stored = lab.broker.stored_sessions
    lab.connect("c", properties=kept(30)).drop()
    lab.settle()
    lab.advance(20_000)
    lab.connect("c", clean=False, properties=kept(30)).drop()
    lab.settle()
    lab.advance(20_000)
    assert stored.stored == 1  # looked at 30 s after the first end, and left
    lab.advance(11_000)
    assert stored.stored == 0 and not stored.expiries and not stored.looks
    lab.connect("c", properties=kept(30)).drop()
    lab.settle()
    lab.connect("c", clean=False, properties=kept(5)).drop()  # sooner than what is planned
    lab.settle()
    lab.advance(6_000)
    assert stored.stored == 0


def test_a_filter_that_is_held_again_gets_its_whole_grace(lab: BrokerInMemory) -> None:
    client = lab.connect("c")
    trie = lab.broker.routes.trie
    for packet_id in (1, 3):
        client.send(wire.subscribe(packet_id, [("t", 0)]))
        lab.settle()
        client.send(wire.unsubscribe(packet_id + 1, ["t"]))
        lab.settle()
        lab.advance(50_000)
        assert trie.get(b"t") is not None, packet_id
    lab.advance(11_000)
    assert trie.get(b"t") is None and not lab.broker.routes.unheld


def test_a_will_waits_for_the_grace_after_a_crash_also_where_the_session_expires_before(tmp_path: Path) -> None:
    """The server was away, not the client: it gets `will_grace_s` to come back."""
    settings = Settings(allow_anonymous=True, will_grace_s=30)
    first = BrokerInMemory(open_unsynced(tmp_path), settings)
    for client_id in ("c", "back"):
        first.connect(client_id, properties=kept(5), will=WILL)
    first.cut_off()
    with BrokerInMemory(open_unsynced(tmp_path), settings) as lab:
        reader = lab.connect("reader")
        reader.send(wire.subscribe(1, [("gone", 0)]))
        lab.settle()
        reader.take()
        lab.advance(20_000)
        assert lab.broker.stored_sessions.stored == 0
        assert reader.take() == []
        lab.connect("back")
        lab.advance(11_000)
        assert [packet.payload for packet in reader.take()] == [b"c"]
