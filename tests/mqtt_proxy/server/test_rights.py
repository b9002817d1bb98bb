"""Rights on wills, resumed sessions and reserved topics, over sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.wire import Will
from tests.mqtt_proxy.server.running import running

NOT_AUTHORIZED = 0x87
TOPIC_NAME_INVALID = 0x90

OPEN = "topic readwrite #\ntopic read $events/#\n"


@pytest.mark.parametrize("topic", ["$SYS/x", "$events/client/a/connected", "$share/g/t", "$replay/earliest/t", "$events"])
def test_nobody_publishes_or_leaves_a_will_to_the_brokers_own_topics(tmp_path: Path, topic: str) -> None:
    with running(tmp_path, session_events=True) as server:
        server.connect("dead", will=Will(topic), reason=NOT_AUTHORIZED)
        client = server.connect("alive")
        assert client.publish(topic, b"x", qos=1) == NOT_AUTHORIZED
        assert client.publish("$events/client/alive/connected", b"x", qos=1) == NOT_AUTHORIZED  # the broker has just done so itself


def test_a_will_is_bound_by_the_acl_and_by_the_limits_on_topics(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic write open/#\n")
    with running(tmp_path, acl=str(tmp_path / "acl")) as server:
        server.connect("a", will=Will("secret"), reason=NOT_AUTHORIZED)
        server.connect("b", will=Will("open/" + "/" * 300), reason=TOPIC_NAME_INVALID)
        server.connect("c", will=Will("$p2p/"), reason=TOPIC_NAME_INVALID)
        server.connect("d", will=Will("open/door"))


def test_a_resumed_session_gets_only_what_is_granted_now(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text(OPEN)
    with running(tmp_path, acl=str(acl)) as server:
        reader = server.connect("reader", clean=False, expiry=1000)
        assert reader.subscribe("a/#", qos=1).reasons[0] == 1
        assert reader.subscribe("$share/g/a/#", qos=1).reasons[0] == 1
        assert reader.subscribe("b", qos=1).reasons[0] == 1
        reader.disconnect()
    acl.write_text("topic write #\ntopic read a/open/#\ntopic read b\n")
    with running(tmp_path, acl=str(acl)) as server:
        reader = server.connect("reader", clean=False, expiry=1000)
        assert reader.connack.session_present
        writer = server.connect("writer")
        for topic in ("a/secret", "a/open/x", "b"):
            assert writer.publish(topic, topic.encode(), qos=1) in (0, 0x10)
        assert reader.payloads(2) == [b"a/open/x", b"b"]
        reader.silent()
        assert reader.unsubscribe("$share/g/a/#").reasons == (0x11,)  # ended, so that nobody else's messages are lost in it


def test_point_to_point_by_right_alone_and_without_a_trace_otherwise(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic write #\n")
    with running(tmp_path, acl=str(tmp_path / "acl")) as server:
        server.connect("receiver", expiry=100)
        writer = server.connect("writer")
        assert writer.publish("$p2p/receiver", b"1", qos=1) == NOT_AUTHORIZED
        assert server.broker.routes.trie.get(b"$p2p/receiver") is None


def test_point_to_point_to_a_client_that_comes_later(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        writer = server.connect("writer")
        assert writer.publish("$p2p/receiver", b"too early", qos=1) in (0, 0x10)
        receiver = server.connect("receiver")
        assert writer.publish("$p2p/receiver", b"now", qos=1) in (0, 0x10)
        assert receiver.message().payload == b"now"


def test_point_to_point_needs_no_right_to_receive(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic write $p2p/#\n")
    with running(tmp_path, acl=str(tmp_path / "acl")) as server:
        receiver = server.connect("receiver", clean=False, expiry=1000)
        writer = server.connect("writer")
        writer.publish("$p2p/receiver", b"1", qos=1)
        assert receiver.message().payload == b"1"
        receiver.disconnect()
        writer.publish("$p2p/receiver", b"2", qos=1)
        receiver = server.connect("receiver", clean=False, expiry=1000)
        assert receiver.message().payload == b"2"
