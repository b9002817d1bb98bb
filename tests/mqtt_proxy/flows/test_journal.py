"""The journal of QoS 2 steps: bounded by time, however long a client stays."""

from __future__ import annotations

from pathlib import Path

from lmq_store.api.ports import Table
from tests.conformance import wire
from tests.conformance.wire import Type
from tests.mqtt_proxy.in_memory import BrokerInMemory, open_unsynced

KEPT = (("session_expiry", 3_600),)


def test_a_publisher_that_stays_leaves_no_journal_behind(tmp_path: Path) -> None:
    """It has no reader whose offset would make a snapshot due: its own releases must."""
    with BrokerInMemory(open_unsynced(tmp_path)) as lab:
        client = lab.connect("c", properties=KEPT)
        for second in range(5):
            for packet_id in range(1, 41):
                client.send(wire.publish("t", b"x", qos=2, packet_id=packet_id))
                lab.settle()
                client.send(wire.ack(Type.PUBREL, packet_id))
                lab.settle()
            lab.advance(lab.settings.offset_commit_ms + 200)
            assert len(list(lab.broker.meta.scan(Table.JOURNAL, b""))) == 0, f"second {second}"
        assert [packet.type for packet in client.take()].count(Type.PUBCOMP) == 200
