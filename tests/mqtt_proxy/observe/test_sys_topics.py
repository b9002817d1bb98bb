"""`$SYS` over sockets, and its table in the documents."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.client import Client
from tests.mqtt_proxy.server.running import RunningServer, running

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
OF_MOSQUITTO = """
bytes/received bytes/sent clients/active clients/connected clients/disconnected clients/expired clients/inactive clients/maximum
clients/total heap/current heap/maximum load/bytes/received/1min load/bytes/sent/5min load/connections/15min load/messages/received/1min
load/messages/sent/1min load/publish/dropped/1min load/publish/received/1min load/publish/sent/1min load/sockets/1min messages/inflight
messages/received messages/sent publish/bytes/received publish/bytes/sent publish/messages/dropped publish/messages/received
publish/messages/sent store/messages/bytes
subscriptions/count uptime version
""".split()


def taken(client: Client, number: int) -> dict[str, tuple[bytes, bool]]:
    return {packet.topic.decode(): (packet.payload, packet.retain) for packet in client.take(number)}


def update(server: RunningServer) -> None:
    """What an interval later would be sent."""
    sys_topics = server.broker.sys_topics
    server.call(lambda: sys_topics.update(server.broker.now_ms + 10_000))


def test_present_values_at_subscribe_and_changed_ones_later(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a")
        assert client.subscribe("$SYS/#").reasons == (0,)
        count = len(server.broker.sys_topics.values | {b"$SYS/broker/version": b""})
        first = taken(client, count)
        assert {f"$SYS/broker/{topic}" for topic in OF_MOSQUITTO} <= set(first)
        assert "$SYS/broker/retained messages/count" in first
        assert all(retain for _, retain in first.values())
        client.publish("t", b"x", qos=1)
        update(server)
        later = {}
        while "$SYS/broker/publish/bytes/received" not in later:
            later.update(taken(client, 1))
        assert later["$SYS/broker/publish/messages/received"] == (b"1", False)
        assert later["$SYS/broker/publish/bytes/received"] == (b"1", False)
        assert later["$SYS/broker/clients/connected"] == (b"1", False)
        assert "$SYS/broker/version" not in later


def test_one_filter_one_value_and_retain_handling(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a", 4)
        client.subscribe("$SYS/broker/uptime")
        assert re.fullmatch(rb"\d+ seconds", client.message().payload)
        five = server.connect("b")
        five.subscribe(("$SYS/broker/uptime", 0x20))
        five.silent()
        five.subscribe("#", "+/broker/uptime")
        five.silent()


def test_overlapping_filters_get_one_message(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a")
        client.subscribe(("$SYS/broker/clients/+", 0x20), ("$SYS/broker/clients/total", 0x20))
        server.connect("b")
        update(server)
        topics = [packet.topic for packet in client.take(4)]
        assert len(set(topics)) == 4


def test_nothing_of_it_is_logged_and_clients_may_not_publish_it(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a")
        assert client.publish("$SYS/broker/uptime", b"lie", qos=1) == 0x87
        client.subscribe("$SYS/broker/uptime")
        client.message()
        update(server)
        messages, _ = server.call(lambda: server.broker.store.scan(0, 1 << 20))
        assert not [message for message in messages if message.topic.startswith(b"$SYS")]


def test_by_right_alone_where_there_is_an_acl(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic readwrite #\ntopic read $SYS/broker/uptime\n")
    with running(tmp_path, acl=str(tmp_path / "acl")) as server:
        client = server.connect("a")
        assert client.subscribe("$SYS/#", "$SYS/broker/uptime").reasons == (0x87, 0)
        client.message()
        client.silent()


def test_off(tmp_path: Path) -> None:
    with running(tmp_path, sys_interval_s=0) as server:
        client = server.connect("a")
        client.subscribe("$SYS/#")
        client.silent()


def test_each_topic_is_documented(tmp_path: Path) -> None:
    documented = set(re.findall(r"^\| `\$SYS/broker/([^`]+)`", OPERATIONS.read_text(), re.MULTILINE))
    with running(tmp_path) as server:
        server.connect("a").subscribe("$SYS/#")
        topics = {topic.decode().removeprefix("$SYS/broker/") for topic in server.broker.sys_topics.values}
    shown = {re.sub(r"/(1|5|15)min$", "/1min", re.sub(r"^limits/.*", "limits/<name>", topic)) for topic in topics}
    unseen = {"store/syncs/mean", "limits/<name>"}
    assert shown - documented == set()
    assert documented - shown <= unseen
