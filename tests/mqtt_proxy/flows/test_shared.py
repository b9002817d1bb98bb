"""Shared subscriptions over ends of the process, refusals and members that do not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmq_store.embedded.consumer_groups import POP_MAX_BYTES
from tests.conformance import wire
from tests.conformance.wire import Packet, Type
from tests.mqtt_proxy.in_memory import BrokerInMemory, Client, open_unsynced
from tests.mqtt_proxy.server.running import running

KEPT = (("session_expiry", 3_600),)
SHARED = "$share/g/t"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BrokerInMemory]:
    with BrokerInMemory(open_unsynced(tmp_path)) as lab:
        yield lab


def member(lab: BrokerInMemory, client_id: str, qos: int, topic_filter: str = SHARED) -> Client:
    client = lab.connect(client_id, clean=False, properties=KEPT)
    client.send(wire.subscribe(1, [(topic_filter, qos)]))
    lab.settle()
    return client


def published(packets: list[Packet]) -> list[bytes]:
    return [packet.payload for packet in packets if packet.type == Type.PUBLISH]


def test_what_a_killed_process_had_lent_goes_to_another_member_at_once(tmp_path: Path) -> None:
    """No member holds it any more: nobody waits for the invisible time."""
    first = BrokerInMemory(open_unsynced(tmp_path))
    one = member(first, "one", 1)
    other = member(first, "other", 1)
    other.drop()
    publisher = first.connect("p")
    publisher.send(wire.publish("t", b"x", qos=1, packet_id=1))
    first.settle()
    assert published(one.take()) == [b"x"]
    first.advance(1_500)  # the group's row says that it is lent
    first.cut_off()
    with BrokerInMemory(open_unsynced(tmp_path)) as lab:
        other = member(lab, "other", 1)
        lab.settle()
        assert published(other.take()) == [b"x"]


def test_what_was_acknowledged_before_a_stop_does_not_come_again(tmp_path: Path) -> None:
    with running(tmp_path, offset_commit_ms=1_000) as server:
        one = server.connect("one", clean=False, properties=KEPT)
        one.subscribe((SHARED, 1))
        one.publish("t", b"x", qos=1)
        assert one.message().payload == b"x"  # and acknowledged
        one.alive()
    with running(tmp_path) as server:
        again = server.connect("one", clean=False, properties=KEPT)
        again.publish("t", b"y", qos=1)
        assert again.message().payload == b"y"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_goes_to_the_dead_letters(lab: BrokerInMemory, qos: int) -> None:
    """A PUBACK or PUBREC of 0x80 and above [MQTT-4.8.2-6]."""
    one = member(lab, "one", qos)
    letters = member(lab, "letters", 1, "$dlq/#")
    publisher = lab.connect("p")
    publisher.send(wire.publish("t", b"x", qos=qos, packet_id=1))
    lab.settle()
    packet = next(packet for packet in one.take() if packet.type == Type.PUBLISH)
    one.send(wire.ack(Type.PUBACK if qos == 1 else Type.PUBREC, packet.packet_id, 0x80))
    lab.settle()
    assert published(letters.take()) == [b"x"]
    assert lab.broker.sessions[b"one"].in_flight == {} and not lab.broker.sessions[b"one"].shared


def test_a_member_that_was_passed_over_goes_on_when_its_link_takes_bytes(lab: BrokerInMemory) -> None:
    """QoS 0: no acknowledgement would wake the group. What waits on the link meanwhile is bounded, however large messages are."""
    lab.turn_state.high_bytes, lab.turn_state.low_bytes = 256 << 10, 64 << 10
    one = member(lab, "one", 0)
    one.take()
    one.reads = False
    publisher = lab.connect("p")
    size, count = 100_000, 40
    for _ in range(count):
        publisher.send(wire.publish("t", bytes(size)))
    lab.settle()
    waiting = len(one.conn.out or b"")
    assert 0 < waiting <= (256 << 10) + (1 << 20) + size * 2
    one.reads = True
    lab.settle()
    assert len(published(one.take())) == count


def test_a_pop_lends_a_bounded_number_of_bytes(lab: BrokerInMemory) -> None:
    member(lab, "one", 1).drop()
    publisher = lab.connect("p")
    for packet_id in range(1, 61):
        publisher.send(wire.publish("t", bytes(100_000), qos=1, packet_id=packet_id))
    lab.settle()
    groups = lab.broker.shared.groups
    queue = lab.broker.routes.trie.get(b"t")
    for _ in range(2):  # new ones, then the same again
        lent = groups.pop(queue, b"g", 256, 1_000, lab.now_ms)
        assert 0 < sum(len(popped.message.payload) for popped in lent) <= 2 * POP_MAX_BYTES
        groups.change_invisible(queue, b"g", [popped.handle for popped in lent], 0, lab.now_ms)
