"""A SUBSCRIBE of thousands of filters is done in steps: the answers are whole and in order, and others don't wait for it."""

from __future__ import annotations

import time
from pathlib import Path

from mqtt_proxy.policy.limits import Limits
from tests.conformance import wire
from tests.conformance.wire import Type
from tests.mqtt_proxy.server.running import running

MANY = [(f"many/{number}/{'#' if number % 3 else 'x'}", 1) for number in range(3_000)]


def test_what_comes_behind_waits_for_it(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_subscriptions_per_client=2_500)) as server:
        client = server.connect("a")
        client.send(
            wire.subscribe(1, MANY),
            wire.publish("many/1/now", b"mine", qos=1, packet_id=2),
            wire.subscribe(3, [("one/more", 1)]),
            wire.unsubscribe(4, [name for name, _ in MANY]),
            wire.publish("many/1/now", b"nobody's", qos=1, packet_id=5),
            wire.PINGREQ,
        )
        suback = client.expect(Type.SUBACK, 1)
        assert suback.reasons == (1,) * 2_500 + (0x97,) * 500
        client.expect(Type.PUBACK, 2)
        assert client.message().payload == b"mine"
        assert client.expect(Type.SUBACK, 3).reasons == (0x97,)
        assert client.expect(Type.UNSUBACK, 4).reasons == (0,) * 2_500 + (0x11,) * 500
        client.expect(Type.PUBACK, 5)
        client.expect(Type.PINGRESP)
        assert not [packet for packet in client.inbox if packet.type == Type.PUBLISH]


def test_others_do_not_wait_for_it(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        greedy, other = server.connect("greedy"), server.connect("other")
        greedy.send(wire.subscribe(1, [(f"many/{number}/#", 1) for number in range(10_000)]))
        time.sleep(0.005)
        other.alive()
        assert not greedy.inbox
        assert len(greedy.expect(Type.SUBACK, 1).reasons) == 10_000


def test_retained_messages_of_all_steps(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a")
        for number in (0, 1_500, 2_999):
            client.publish(f"kept/{number}", b"%d" % number, qos=1, retain=True)
        client.send(wire.subscribe(1, [(f"kept/{number}", 1) for number in range(3_000)]))
        client.expect(Type.SUBACK, 1)
        assert sorted(client.payloads(3)) == [b"0", b"1500", b"2999"]


def test_a_connection_that_ends_in_the_middle(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        leaving = server.connect("leaving")
        leaving.send(wire.subscribe(1, MANY * 3))
        leaving.close()
        again = server.connect("leaving")
        again.send(wire.subscribe(1, MANY))
        assert len(again.expect(Type.SUBACK, 1).reasons) == 3_000
        assert not server.broker.subscribing.under_way
