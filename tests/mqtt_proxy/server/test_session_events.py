"""Session events: logged messages about connects, disconnects, takeovers and expiries."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.client import Client
from tests.mqtt_proxy.server.running import running, until


def event(client: Client) -> tuple[str, dict[str, object]]:
    packet = client.message()
    return packet.topic.decode(), json.loads(packet.payload)


def test_connects_takeovers_disconnects_and_expiries(tmp_path: Path) -> None:
    with running(tmp_path, session_events=True) as server:
        watcher = server.connect("watcher")
        watcher.subscribe("$events/client/+/+", qos=1)
        server.connect("a/b", version=5, expiry=1, clean=True)
        topic, body = event(watcher)
        assert topic == "$events/client/a%2Fb/connected"
        assert body["event"] == "connected"
        assert body["client_id"] == "a/b"
        again = server.connect("a/b", version=5, expiry=1, clean=False)
        assert [event(watcher)[0].rpartition("/")[2] for _ in range(3)] == ["taken-over", "disconnected", "connected"]
        again.disconnect()
        topic, body = event(watcher)
        assert topic.endswith("disconnected")
        assert body["reason"] == "client disconnected"
        assert event(watcher)[0] == "$events/client/a%2Fb/expired"


def test_they_lie_in_a_parent_topic_of_their_own(tmp_path: Path) -> None:
    with running(tmp_path, session_events=True) as server:
        server.connect("device")
        until(lambda: b"lmq-events" in server.broker.routes.parents)
        parent_id, partitions = server.broker.routes.parents[b"lmq-events"]

        def logged() -> list[bytes]:
            store = server.broker.store
            queues = [store.open_queue((1 << 40) + parent_id * 256 + partition, b"lmq-events") for partition in range(partitions)]
            return [message.topic for queue in queues for message in store.pull(queue, 0, 10, 1 << 20, lambda _: None).messages]

        assert server.call(logged) == [b"$events/client/device/connected"]


def test_none_unless_asked_for(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        watcher = server.connect("watcher")
        watcher.subscribe("$events/#")
        server.connect("other")
        watcher.silent()


def test_readable_by_right_alone(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite #\n")
    with running(tmp_path, session_events=True, acl=str(acl)) as server:
        assert server.connect("watcher").subscribe("$events/#").reasons[0] == 0x87
