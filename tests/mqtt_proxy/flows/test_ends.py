"""How connections end while the disk still owes an answer: the order of what leaves, and what is kept of a batch never stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_proxy.settings import Settings
from tests.conformance import wire
from tests.conformance.wire import Type
from tests.mqtt_proxy.in_memory import BrokerInMemory, Client, open_unsynced

KEPT = (("session_expiry", 3_600),)
"""Session expiry of an hour."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BrokerInMemory]:
    with BrokerInMemory(open_unsynced(tmp_path)) as lab:
        yield lab


def types(client: Client) -> list[int]:
    return [packet.type for packet in client.take()]


def hold_syncs(lab: BrokerInMemory) -> None:
    """Have syncs take until `release_syncs`."""
    lab.store.commits.start = lambda: None
    lab.store.commits.sync_now = lambda: False


def release_syncs(lab: BrokerInMemory) -> None:
    del lab.store.commits.start, lab.store.commits.sync_now
    lab.store.commits.start()
    lab.settle()


def test_nothing_follows_the_disconnect_of_a_takeover(lab: BrokerInMemory) -> None:
    """[MQTT-3.14.4-1]: what was accepted before is acknowledged first."""
    first = lab.connect("c")
    hold_syncs(lab)
    first.send(wire.publish("t", qos=1, packet_id=1))
    lab.turn()
    second = lab.accept()
    second.send(wire.connect("c"))
    lab.turn()
    release_syncs(lab)
    assert types(first) == [Type.PUBACK, Type.DISCONNECT]
    assert types(second) == [Type.CONNACK]


def test_nothing_follows_the_disconnect_of_a_stop(lab: BrokerInMemory) -> None:
    client = lab.connect("c")
    hold_syncs(lab)
    client.send(wire.publish("t", qos=1, packet_id=1))
    lab.turn()
    lab.broker.disconnecting.shut_down(0x8B, "")
    release_syncs(lab)
    assert types(client) == [Type.PUBACK, Type.DISCONNECT]


@pytest.mark.parametrize("how", ["takeover", "stop"])
def test_no_disconnect_before_connack(lab: BrokerInMemory, how: str) -> None:
    """[MQTT-3.14.0-1]: a connection whose CONNACK waits for the disk is closed without a word."""
    hold_syncs(lab)
    first = lab.accept()
    first.send(wire.connect("c", properties=KEPT))
    lab.turn()
    if how == "takeover":
        second = lab.accept()
        second.send(wire.connect("c", properties=KEPT))
        lab.turn()
    else:
        lab.broker.disconnecting.shut_down(0x8B, "")
    release_syncs(lab)
    assert types(first) == [] and first.closed
    if how == "takeover":
        assert types(second) == [Type.CONNACK]


def test_a_message_that_was_not_stored_is_taken_when_it_comes_again(lab: BrokerInMemory) -> None:
    """The QoS 2 id of a refused batch is not kept as received, else the message would be acknowledged and lost."""
    reader = lab.connect("reader")
    reader.send(wire.subscribe(1, [("t", 0)]))
    lab.settle()
    reader.take()
    client = lab.connect("c", properties=KEPT)
    lab.store.disk_full = True  # since the last look of the broker
    client.send(wire.publish("t", b"once", qos=2, packet_id=7))
    lab.settle()
    assert types(client) == [Type.DISCONNECT]
    lab.store.disk_full = False
    lab.advance(200)
    again = lab.connect("c", clean=False, properties=KEPT)
    again.send(wire.publish("t", b"once", qos=2, packet_id=7, dup=True))
    lab.settle()
    assert types(again) == [Type.PUBREC]
    assert [packet.payload for packet in reader.take()] == [b"once"]


def test_an_id_is_not_kept_without_its_message(lab: BrokerInMemory) -> None:
    """PUBLISH and DISCONNECT in one read: the session's last snapshot comes before the message in the log."""
    client = lab.connect("c", properties=KEPT)
    client.send(wire.publish("t", b"x", qos=2, packet_id=7), wire.disconnect())
    seen: list[list[int]] = []
    append = lab.store.append
    sessions = lab.broker.stored_sessions

    def looked_at(batch: list, now_ms: int, done: object) -> object:  # type: ignore[type-arg]
        row = sessions.find(b"c")
        assert row is not None
        seen.append(sorted(sessions._delivery_state(row.session_id.to_bytes(8, "big")).received))
        return append(batch, now_ms, done)

    lab.store.append = looked_at
    lab.settle()
    lab.store.append = append
    row = sessions.find(b"c")
    assert row is not None
    assert seen == [[]] and sessions._delivery_state(row.session_id.to_bytes(8, "big")).received == {7}


def test_the_brokers_own_messages_wait_for_room_and_harm_nobody(tmp_path: Path) -> None:
    """A full disk with session events on: reads, pings and subscriptions go on."""
    with BrokerInMemory(open_unsynced(tmp_path), Settings(allow_anonymous=True, session_events=True)) as lab:
        client = lab.connect("c")
        lab.store.upkeep.watch_free_space = lambda: None
        lab.store.disk_full = True
        lab.advance(200)
        client.send(wire.subscribe(1, [("t", 1)]))
        other = lab.accept()
        other.send(wire.connect("d"))
        lab.settle()
        assert types(client) == [Type.SUBACK] and types(other) == [Type.CONNACK]
        assert [message.topic for message in lab.broker.publishing.own_waiting] == [b"$events/client/d/connected"]
        client.send(wire.publish("t", qos=1, packet_id=1))
        lab.settle()
        assert [(packet.type, packet.reason) for packet in client.take()] == [(Type.PUBACK, 0x97)]
        lab.store.disk_full = False
        lab.advance(200)
        assert lab.broker.publishing.own_waiting == []
        assert b"$events/client/d/connected" in [message.topic for message in lab.store.scan(0, 1 << 20)[0]]


def test_a_failed_sync_ends_the_server_where_nobody_waits_for_it(lab: BrokerInMemory) -> None:
    lab.store.commits.poison("fdatasync of the log failed")
    lab.broker.tick()
    assert lab.broker.failed is not None


def test_a_fault_in_one_delivery_ends_one_connection_and_nothing_else(lab: BrokerInMemory) -> None:
    """The others have their message, and the publisher its acknowledgement with the sync, not before."""
    publisher = lab.connect("p")
    readers = [lab.connect(name) for name in ("a", "b", "c")]
    for reader in readers:
        reader.send(wire.subscribe(1, [("t", 1)]))
        lab.turn()
        lab.settle()
        reader.take()
    reader = lab.broker.sessions[b"b"].readers[0]
    reader.receivable = lambda topic: 1 // 0
    reader.settle()
    hold_syncs(lab)
    publisher.send(wire.publish("t", qos=1, packet_id=1))
    lab.turn()
    lab.turn()
    assert types(publisher) == []
    release_syncs(lab)
    assert types(publisher) == [Type.PUBACK]
    assert [types(one) for one in readers] == [[Type.PUBLISH], [Type.DISCONNECT], [Type.PUBLISH]]
