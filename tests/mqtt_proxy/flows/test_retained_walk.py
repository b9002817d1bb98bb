"""Retained messages that a new subscription is owed: what a connection's end, or the server's, leaves over comes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmq_store.api import rows
from lmq_store.api.ports import Table
from lmq_store.embedded.check import check
from tests.conformance import wire
from tests.conformance.wire import Type
from tests.mqtt_proxy.in_memory import BrokerInMemory, Client, open_unsynced

COUNT = 25
FEW = (("session_expiry", 3_600), ("receive_maximum", 4))


def retain(lab: BrokerInMemory, qos: int) -> None:
    publisher = lab.connect("p")
    publisher.send(*[wire.publish(f"state/{n:02}", b"%d" % n, qos=qos, packet_id=n + 1, retain=True) for n in range(COUNT)])
    lab.settle()
    publisher.send(*[wire.ack(Type.PUBREL, n + 1) for n in range(COUNT) if qos == 2])
    lab.settle()
    lab.advance(200)


def acknowledge(lab: BrokerInMemory, client: Client, seen: list[bytes], rounds: int) -> None:
    """Take and complete what comes, so many times."""
    for _ in range(rounds):
        for packet in client.take():
            if packet.type == Type.PUBLISH:
                assert packet.retain
                seen.append(packet.payload)
                client.send(wire.ack(Type.PUBACK if packet.qos == 1 else Type.PUBREC, packet.packet_id))
            elif packet.type == Type.PUBREL:
                client.send(wire.ack(Type.PUBCOMP, packet.packet_id))
        lab.settle()


def walks(lab: BrokerInMemory) -> int:
    return sum(len(key) == len(rows.retained_walk_key(0, 0)) for key, _ in lab.broker.meta.scan(Table.OFFSET, b""))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("killed", [False, True])
def test_a_walk_goes_on_with_the_session(tmp_path: Path, qos: int, killed: bool) -> None:
    """[MQTT-3.3.1-9]; every message once, but for what was unacknowledged at QoS 1."""
    lab = BrokerInMemory(open_unsynced(tmp_path))
    retain(lab, qos)
    client = lab.connect("c", properties=FEW)
    client.send(wire.subscribe(1, [("state/#", 2)]))
    lab.settle()
    seen: list[bytes] = []
    acknowledge(lab, client, seen, 3)
    assert 4 <= len(seen) < COUNT
    assert walks(lab) == 1
    if killed:
        lab.cut_off()
        assert check(str(tmp_path)).sound
        lab = BrokerInMemory(open_unsynced(tmp_path))
    else:
        client.drop()
    again = lab.connect("c", clean=False, properties=FEW)
    lab.settle()
    acknowledge(lab, again, seen, 2 * COUNT)
    assert set(seen) == {b"%d" % n for n in range(COUNT)}
    if qos == 2 or not killed:
        assert len(seen) <= COUNT + (4 if qos == 1 else 0)
    assert walks(lab) == 0
    lab.close()


def test_unsubscribing_ends_it(tmp_path: Path) -> None:
    lab = BrokerInMemory(open_unsynced(tmp_path))
    retain(lab, 1)
    client = lab.connect("c", properties=FEW)
    client.send(wire.subscribe(1, [("state/#", 1)]))
    lab.settle()
    assert walks(lab) == 1
    client.send(wire.unsubscribe(2, ["state/#"]))
    lab.settle()
    lab.advance(2_000)
    assert walks(lab) == 0
    lab.close()


def test_nothing_is_noted_where_nothing_matches(tmp_path: Path) -> None:
    lab = BrokerInMemory(open_unsynced(tmp_path))
    retain(lab, 1)
    client = lab.connect("c", properties=FEW)
    client.send(wire.subscribe(1, [("other/topic", 1)]))
    lab.settle()
    assert walks(lab) == 0 and client.conn.session.cursors is None
    lab.close()
