"""PUBLISH from a client (3.3): its header, its topic name, its way to the subscribers."""

from __future__ import annotations

from contextlib import suppress

import pytest

from . import wire
from .client import Closed
from .conftest import Connect, ConnectAs, Dial
from .covers import V5, V311, both_versions, covers, each_qos
from .wire import Type


@covers(v3="3.3.1-3 3.3.1-2 4.3.1-1 4.3.2-1 4.3.3-1", v5="3.3.1-3 3.3.1-2 4.3.1-1 4.3.2-2 4.3.3-2")
@both_versions
@each_qos
@pytest.mark.parametrize("dup", [False, True])
def test_dup_is_not_passed_on(connect: Connect, name: str, version: int, qos: int, dup: bool) -> None:
    subscriber = connect(version)
    subscriber.subscribe(name, qos=2)
    connect(version).publish(name, b"x", qos=qos, dup=dup and qos > 0)
    message = subscriber.message()
    assert (message.qos, message.dup) == (qos, False)


@covers(v3="3.3.1-2 4.8.0-1", v5="3.3.1-2 4.13.1-1")
@both_versions
def test_dup_with_qos_0_ends_the_connection(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    client.send(wire.publish(name, version=version, header=0x38))
    client.refused(0x81, 0x82)


@covers(v3="3.3.1-4", v5="3.3.1-4 4.13.1-1")
@both_versions
def test_qos_3_ends_the_connection(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    client.send(wire.publish(name, version=version, packet_id=1, header=0x36))
    client.refused(0x81)


@covers(v3="2.3.1-1", v5="2.2.1-3")
@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_packet_identifier_zero_ends_the_connection(connect: Connect, name: str, version: int, qos: int) -> None:
    client = connect(version)
    client.send(wire.publish(name, version=version, qos=qos, packet_id=0))
    client.refused(0x81, 0x82)


@covers(v3="2.3.1-5 4.3.1-1", v5="2.2.1-2 4.3.1-1")
@both_versions
def test_qos_0_has_no_packet_identifier(connect: Connect, name: str, version: int) -> None:
    """Bytes that could be one are payload, both ways."""
    client = connect(version)
    client.subscribe(name)
    client.publish(name, b"\x00\x01rest")
    assert client.message().payload == b"\x00\x01rest"


@covers(v3="3.3.4-1 2.3.1-6 4.3.2-2 4.3.3-2", v5="3.3.4-1 2.2.1-5 4.3.2-4 4.3.3-8 4.3.3-11 3.4.2-1 3.5.2-1 3.7.2-1")
@both_versions
@pytest.mark.parametrize("packet_id", [1, 2, 255, 256, 32768, 65535])
def test_each_qos_has_its_answer(connect: Connect, name: str, version: int, packet_id: int) -> None:
    client = connect(version)
    client.send(wire.publish(name, version=version))
    client.send(wire.publish(name, version=version, qos=1, packet_id=packet_id))
    acknowledged = client.next()
    assert (acknowledged.type, acknowledged.packet_id) == (Type.PUBACK, packet_id)
    client.send(wire.publish(name, version=version, qos=2, packet_id=packet_id))
    received = client.next()
    assert (received.type, received.packet_id) == (Type.PUBREC, packet_id)
    client.send(wire.ack(Type.PUBREL, packet_id))
    complete = client.next()
    assert (complete.type, complete.packet_id) == (Type.PUBCOMP, packet_id)
    client.silent(0.03)


@covers(v5="3.4.2-1")
def test_puback_says_where_nobody_listens_or_success(connect: Connect, name: str) -> None:
    client = connect()
    assert client.publish(name, qos=1) in (0x00, 0x10)
    client.subscribe(name)
    assert client.publish(name, qos=1) == 0x00


@covers(v3="3.3.2-2 4.7.1-1 4.8.0-1", v5="3.3.2-2 4.7.0-1 4.13.1-1")
@both_versions
@each_qos
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a#", "+b", "a/b+"])
def test_wildcard_in_a_topic_name_ends_the_connection(connect: Connect, version: int, qos: int, topic: str) -> None:
    client = connect(version)
    client.send(wire.publish(topic, version=version, qos=qos, packet_id=1 if qos else None))
    client.refused(0x81, 0x82, 0x90)


@covers(v3="4.7.3-1 3.3.2-1", v5="4.7.3-1 3.3.2-1")
@both_versions
def test_empty_topic_name_ends_the_connection(connect: Connect, version: int) -> None:
    client = connect(version)
    client.send(wire.publish("", b"x", version=version))
    client.refused(0x81, 0x82, 0x90)


@covers(v3="4.7.3-3 4.7.3-1 3.3.2-1", v5="4.7.3-3 4.7.3-1 3.3.2-1 1.5.5-1")
@both_versions
@pytest.mark.parametrize("length", [1, 127, 128, 16383, 65535])
def test_topic_name_of_each_length(connect: Connect, name: str, version: int, length: int) -> None:
    client = connect(version)
    topic = (name * 65535)[:length] if length > 1 else "~"
    assert client.subscribe(topic).reasons == (0,)
    client.publish(topic, b"x")
    assert client.message().topic == topic.encode()


@covers(v5="1.5.5-1 2.2.2-1")
@both_versions
@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16383, 16384, 65536, 500_000])
def test_payload_of_each_size_arrives_whole(connect: Connect, name: str, version: int, size: int) -> None:
    client = connect(version)
    client.subscribe(name, qos=1)
    payload = bytes(i % 251 for i in range(size))
    client.publish(name, payload, qos=1)
    assert client.message().payload == payload


@covers(v3="4.5.0-1 3.3.2-3", v5="4.5.0-1 3.3.2-3")
@both_versions
@each_qos
def test_every_matching_subscriber_gets_a_copy(connect: Connect, name: str, version: int, qos: int) -> None:
    filters = [f"{name}/a/b", f"{name}/+/b", f"{name}/#", f"{name}/a/+", f"{name}/a/b/#"]
    subscribers = [connect(version) for _ in filters]
    for subscriber, topic_filter in zip(subscribers, filters, strict=True):
        subscriber.subscribe(topic_filter, qos=2)
    other = connect(version)
    other.subscribe(f"{name}/a", f"{name}/a/b/c", f"{name}/+", qos=2)
    publisher = connect(version)
    publisher.publish(f"{name}/a/b", b"x", qos=qos)
    for subscriber in subscribers:
        message = subscriber.message()
        assert (message.topic, message.payload, message.qos) == (f"{name}/a/b".encode(), b"x", qos)
    other.silent()


@covers(v3="3.3.5-1 3.8.4-6", v5="3.3.4-2 3.8.4-8")
@both_versions
@each_qos
def test_overlapping_subscriptions_respect_the_highest_qos(connect: Connect, name: str, version: int, qos: int) -> None:
    """Copies are the server's choice; one of them has the highest QoS that was granted, none more."""
    subscriber = connect(version)
    subscriber.subscribe((f"{name}/#", 0), (f"{name}/+", 1), (f"{name}/a", 2))
    connect(version).publish(f"{name}/a", b"x", qos=qos)
    copies = [subscriber.message()]
    connect(version).publish(f"{name}/end", b"end", qos=qos)
    while (message := subscriber.message()).payload != b"end":
        copies.append(message)
    assert max(message.qos for message in copies) == qos
    assert len(copies) in (1, 3)


@covers(v3="3.14.4-1 3.14.4-2", v5="3.14.4-1 3.14.4-2")
@both_versions
def test_nothing_after_disconnect_is_processed(connect: Connect, name: str, version: int) -> None:
    """A client must not send after DISCONNECT; what it sends all the same has no effect."""
    subscriber = connect(version)
    subscriber.subscribe(name)
    client = connect(version)
    client.send(wire.DISCONNECT, wire.publish(name, b"x", version=version, retain=True))
    assert client.closed() == []
    subscriber.silent()


@covers(v3="3.3.5-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_publish_without_right_is_acknowledged_or_closed(guarded: ConnectAs, name: str, qos: int) -> None:
    """3.1.1 can't say no: a positive acknowledgement or the close, and nobody gets the message."""
    watcher = guarded("alice", V311)
    watcher.subscribe(f"secret/{name}", qos=2)
    client = guarded("bob", V311)
    with suppress(Closed):
        assert client.publish(f"secret/{name}", b"x", qos=qos) == 0
    watcher.silent()


@covers(v5="4.13.1-1 3.4.2-1 3.5.2-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_publish_without_right_is_told(guarded: ConnectAs, name: str, qos: int) -> None:
    watcher = guarded("alice", V5)
    watcher.subscribe(f"secret/{name}", qos=2)
    client = guarded("bob", V5)
    assert client.publish(f"secret/{name}", b"x", qos=qos) == 0x87
    client.alive()
    watcher.silent()


@covers(v3="4.8.0-2")
def test_publish_that_the_disk_cannot_take_ends_the_connection(full_dial: Dial, name: str) -> None:
    """A transient error: MQTT 3.1.1 has no way to tell but the close."""
    client = full_dial(V311)
    client.connect(name)
    client.send(wire.publish(name, b"x", version=V311, qos=1, packet_id=1))
    assert client.closed() == []


@covers(v5="3.4.2-1")
def test_publish_that_the_disk_cannot_take_is_told(full_dial: Dial, name: str) -> None:
    client = full_dial()
    client.connect(name)
    assert client.publish(name, b"x", qos=1) == 0x97
    assert client.publish(name, b"x", qos=2) == 0x97
    client.alive()
