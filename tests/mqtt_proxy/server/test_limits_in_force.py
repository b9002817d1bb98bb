"""Each limit over sockets: what happens beyond it, and that the log names it."""

from __future__ import annotations

import logging
import socket
import struct
import time
from pathlib import Path

import pytest

from mqtt_proxy.policy.limits import LIMITS, Limits
from tests.conformance import wire
from tests.conformance.client import Client, Closed, Quiet
from tests.conformance.wire import Type, Will
from tests.mqtt_proxy.server.running import RunningServer, running, until

QUOTA_EXCEEDED = 0x97


def hits(server: RunningServer, limit: str) -> int:
    return int(server.broker.limit_log.hits.get(limit, 0))


def refused_at_once(server: RunningServer) -> None:
    client = server.dial()
    client.send(wire.connect("late"))
    with pytest.raises(Closed):
        client.read(2.0)


def test_max_connections_and_a_place_that_becomes_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path, limits=Limits(max_connections=2)) as server:
        first = server.connect("a")
        server.connect("b")
        refused_at_once(server)
        assert hits(server, "max_connections") == 1
        assert any(record.name == "lmq.limits.max_connections" for record in caplog.records)
        first.disconnect()
        until(lambda: server.server.reactor.open_links == 1)
        server.connect("c")
        until(lambda: len(server.broker.connections) == 2)


def test_connections_of_one_address(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_connections_per_address=1)) as server:
        first = server.connect("a")
        refused_at_once(server)
        assert hits(server, "max_connections_per_address") == 1
        first.disconnect()
        until(lambda: len(server.broker.admission.open) == 0)
        server.connect("b")


def test_connection_rate_of_one_address(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(connection_rate_per_address=2)) as server:
        server.connect("a")
        server.connect("b")
        refused_at_once(server)
        assert hits(server, "connection_rate_per_address") == 1


def test_behind_a_balancer_the_real_peer_counts(tmp_path: Path) -> None:
    limits = Limits(max_connections_per_address=1)
    with running(tmp_path, listen=("mqtt://127.0.0.1:0?proxy_protocol=true",), limits=limits) as server:

        def come(address: str) -> Client:
            client = server.dial()
            client.send(f"PROXY TCP4 {address} 10.0.0.1 1 1883\r\n".encode(), wire.connect(f"c-{address}-{time.monotonic_ns()}"))
            return client

        first = come("192.0.2.1")
        assert first.next().type == Type.CONNACK
        assert come("192.0.2.2").next().type == Type.CONNACK
        with pytest.raises(Closed):
            come("192.0.2.1").next()
        first.disconnect()
        until(lambda: len(server.broker.admission.open) == 1)
        assert come("192.0.2.1").next().type == Type.CONNACK


@pytest.mark.parametrize("version", [4, 5])
def test_max_properties(tmp_path: Path, version: int) -> None:
    with running(tmp_path, limits=Limits(max_properties=16)) as server:
        client = server.connect("a", version)
        if version == 4:
            return  # has no properties
        pairs = [("user_property", ("a", "b"))] * 17
        client.send(wire.publish("t", b"", qos=1, packet_id=1, properties=pairs))
        client.refused(QUOTA_EXCEEDED)
        assert hits(server, "max_properties") == 1
        many = server.dial()
        many.send(wire.connect("b", properties=pairs))
        packets = many.closed()
        assert [packet.type for packet in packets] in ([], [Type.CONNACK])


def test_max_packet_bytes(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_packet_bytes=1000)) as server:
        client = server.connect("a")
        client.send(wire.publish("t", b"x" * 1000))
        client.refused(0x95)
        assert hits(server, "max_packet_bytes") == 1


def test_filters_of_one_packet(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_filters_per_packet=2)) as server:
        client = server.connect("a")
        assert client.subscribe("a", "b", "c").reasons == (0, 0, QUOTA_EXCEEDED)
        assert client.unsubscribe("a", "b", "c").reasons == (0, 0, 0x83)
        assert hits(server, "max_filters_per_packet") == 2


def test_long_filters_are_bounded_together(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_queue_name_bytes=100_000), queue_grace_s=0) as server:
        first, second = server.connect("a"), server.connect("b")
        long = "x" * 60_000
        assert first.subscribe(f"{long}/1", f"{long}/2", "short").reasons == (0, QUOTA_EXCEEDED, 0)
        assert second.subscribe(f"{long}/1", f"{long}/2").reasons == (0, QUOTA_EXCEEDED)
        assert hits(server, "max_queue_name_bytes") == 2
        first.unsubscribe(f"{long}/1")
        second.unsubscribe(f"{long}/1")
        until(lambda: server.broker.routes.name_bytes == len("short"))
        assert second.subscribe(f"{long}/2").reasons == (0,)


def test_subscriptions_queues_topics_client_ids_and_sessions(tmp_path: Path) -> None:
    limits = Limits(
        max_subscriptions_per_client=2, max_queues=3, max_topic_levels=3, max_topic_bytes=20, max_client_id_bytes=23, max_sessions=1
    )
    with running(tmp_path, limits=limits) as server:
        client = server.connect("a", expiry=100)
        assert client.subscribe("a", "b", "c").reasons == (0, 0, QUOTA_EXCEEDED)
        assert hits(server, "max_subscriptions_per_client") == 1
        other = server.connect("b")
        assert other.subscribe("c", "d").reasons == (0, QUOTA_EXCEEDED)
        assert hits(server, "max_queues") == 1
        third = server.connect("c")
        assert third.subscribe("a/b/c/d", "t" * 21).reasons == (0x8F, 0x8F)
        assert third.publish("a/b/c/d", b"", qos=1) == 0x90
        assert hits(server, "max_topic_levels") == 2
        assert hits(server, "max_topic_bytes") == 1
        server.connect("x" * 24, reason=0x85)
        server.connect("d", expiry=100, reason=QUOTA_EXCEEDED)
        assert (hits(server, "max_client_id_bytes"), hits(server, "max_sessions")) == (1, 1)


def test_the_deepest_filter_that_a_setting_allows_is_held(tmp_path: Path) -> None:
    (most,) = [row.high for row in LIMITS if row.name == "max_topic_levels"]
    with running(tmp_path, limits=Limits(max_topic_levels=most)) as server:
        client = server.connect("a")
        topic = "/".join(["x"] * most)
        assert client.subscribe(topic, f"{topic[:-1]}+", f"{topic}/x").reasons == (0, 0, 0x8F)
        assert server.connect("b").publish(topic, b"deep", qos=1) == 0
        assert client.message().payload == b"deep"


def test_max_retained(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_retained=2)) as server:
        client = server.connect("a")
        assert client.publish("r/1", b"x", qos=1, retain=True) in (0, 0x10)
        assert client.publish("r/2", b"x", qos=2, retain=True) in (0, 0x10)
        assert client.publish("r/3", b"x", qos=1, retain=True) == QUOTA_EXCEEDED
        assert client.publish("r/2", b"other", qos=1, retain=True) in (0, 0x10)  # a topic that has one
        assert hits(server, "max_retained") == 1
        old = server.connect("old", 4)
        old.send(wire.publish("r/4", b"x", version=4, qos=1, packet_id=1, retain=True))
        assert old.closed() == []
        reader = server.connect("reader")
        reader.subscribe("r/+")
        assert sorted(reader.payloads(2)) == [b"other", b"x"]
        client.publish("r/5", b"live", retain=True)  # QoS 0: delivered, not kept
        assert reader.message().payload == b"live"
        client.publish("r/1", b"", qos=1, retain=True)
        assert reader.message().payload == b""
        assert client.publish("r/6", b"x", qos=1, retain=True) in (0, 0x10)
        assert reader.message().payload == b"x"
        assert server.broker.retained_quota.count == 2
    with running(tmp_path, limits=Limits(max_retained=2)) as server:
        until(lambda: server.broker.retained_quota.complete)
        assert server.broker.retained_quota.count == 2


def test_max_retained_bytes_within_one_batch_too(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_retained_bytes=1000)) as server:
        client = server.connect("a")
        client.send(*[wire.publish(f"r{n}", b"x" * 298, qos=1, packet_id=n, retain=True) for n in range(1, 6)])
        reasons = {packet.packet_id: packet.reason for packet in (client.expect(Type.PUBACK) for _ in range(5))}
        assert [reasons[n] >= 0x80 for n in range(1, 6)] == [False, False, False, True, True]
        assert hits(server, "max_retained_bytes") == 2


def test_a_will_beyond_max_retained_is_published_and_not_kept(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_retained=0)) as server:
        reader = server.connect("reader")
        reader.subscribe("will")
        server.connect("dying", will=Will("will", b"gone", retain=True)).drop()
        assert reader.message().payload == b"gone"
        late = server.connect("late")
        late.subscribe("will")
        late.silent()


def test_an_expired_retained_message_is_removed(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a")
        client.publish("r", b"x", qos=1, retain=True, properties=[("message_expiry", 1)])
        quota = server.broker.retained_quota
        until(lambda: quota.complete)
        assert quota.count == 1
        time.sleep(1.1)
        server.call(quota.recount)
        until(lambda: quota.expired == 1)
        until(lambda: quota.count == 0)


def test_will_delay_max(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(will_delay_max_s=1)) as server:
        reader = server.connect("reader")
        reader.subscribe("will")
        server.connect("dying", expiry=1000, will=Will("will", b"gone", properties=[("will_delay", 500)])).drop()
        began = time.monotonic()
        assert reader.message().payload == b"gone"
        assert 0.7 < time.monotonic() - began < 3


def test_connect_timeout_counts_from_accept_whatever_trickles_in(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(connect_timeout_s=1), listen=("mqtt://127.0.0.1:0", "ws://127.0.0.1:0")) as server:
        slow = [server.dial(), server.dial(listener=1)]
        began = time.monotonic()
        sent = [wire.connect("slow"), b"GET /mqtt HTTP/1.1\r\nHost: x\r\n"]
        at = 0
        ended: set[int] = set()
        while len(ended) < 2 and time.monotonic() - began < 5:
            for number, client in enumerate(slow):
                client.send(sent[number][at : at + 1])
                try:
                    client.read(0.1)
                except Closed:
                    ended.add(number)
                except Quiet:
                    pass
            at += 1
        assert 0.9 < time.monotonic() - began < 3.5
        assert hits(server, "connect_timeout_s") == 2
        assert not server.broker.connections


def test_link_stalled(tmp_path: Path) -> None:
    limits = Limits(link_stalled_s=1, max_buffered_bytes=65_536)
    with running(tmp_path, limits=limits) as server:
        stalled = server.connect("stalled")
        stalled.subscribe("big")
        writer = server.connect("writer")
        for _ in range(12):
            writer.publish("big", b"x" * 1_000_000)
        until(lambda: hits(server, "link_stalled_s") == 1)
        until(lambda: b"stalled" not in server.broker.sessions)
        assert writer.publish("big", b"", qos=1) in (0, 0x10)


def test_max_buffered_bytes_bounds_what_a_deaf_subscriber_costs(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_buffered_bytes=65_536)) as server:
        deaf = server.connect("deaf")
        deaf.subscribe("big", qos=1)
        writer = server.connect("writer")
        for _ in range(40):
            writer.publish("big", b"x" * 200_000, qos=1)

        def waiting() -> int:
            return int(server.broker.sessions[b"deaf"].connection.pending_bytes())

        assert server.call(waiting) < 65_536 + 2 * 200_100
        assert [len(payload) for payload in deaf.payloads(40)] == [200_000] * 40


def test_message_rate_is_paced_and_named(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(message_rate_per_client=100, message_burst_per_client=10)) as server:
        client = server.connect("a")
        began = time.monotonic()
        for _ in range(2):
            client.send(*[wire.publish("t", b"x", qos=1, packet_id=n) for n in range(1, 41)])
            for _ in range(40):
                client.expect(Type.PUBACK)
        client.alive()
        assert time.monotonic() - began > 0.2
        assert hits(server, "message_rate_per_client") >= 1


def test_in_flight_beyond_receive_maximum(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(inflight_in_max=2)) as server:
        client = server.connect("a")
        client.send(*[wire.publish("t", b"x", qos=2, packet_id=n) for n in range(1, 5)])
        packets = client.closed()
        assert packets[-1].reason == 0x93
        assert hits(server, "inflight_in_max") == 1


def test_a_paused_client_is_not_silent(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(message_rate_per_client=10, message_burst_per_client=1)) as server:
        client = server.connect("a", keep_alive=1)
        client.send(*[wire.publish("t", b"x") for _ in range(30)], wire.PINGREQ)
        assert client.next().type == Type.PINGRESP
        client.send(wire.PINGREQ)
        assert client.next(6).type == Type.PINGRESP  # after about three seconds of not being read


def test_storms_leave_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from mqtt_proxy.log_lines import STORM_LINES, StormFilter

    storm = StormFilter()
    passed = []
    with running(tmp_path, limits=Limits(max_connections=1)) as server:
        server.connect("a")
        for _ in range(60):
            with socket.create_connection(server.address()) as stream:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: hits(server, "max_connections") == 60)
    passed = [record for record in caplog.records if record.name.startswith("lmq.limits") and storm.filter(record)]
    assert len(passed) == STORM_LINES
    assert passed[0].levelno == logging.WARNING
