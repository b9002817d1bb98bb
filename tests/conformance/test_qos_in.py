"""QoS flows where the server receives (4.3.2, 4.3.3): acknowledged, once, and in order."""

from __future__ import annotations

import time

import pytest

from . import wire
from .client import Client
from .conftest import Connect, ConnectAs
from .covers import V5, V311, both_versions, covers
from .wire import Type


def send_qos_2(client: Client, topic: str, payload: bytes, packet_id: int, *, dup: bool = False) -> None:
    """First half of the flow: PUBLISH up to its PUBREC."""
    client.send(wire.publish(topic, payload, version=client.version, qos=2, packet_id=packet_id, dup=dup))
    assert client.expect(Type.PUBREC, packet_id).reason < 0x80


def release(client: Client, packet_id: int) -> int:
    client.send(wire.ack(Type.PUBREL, packet_id))
    return client.expect(Type.PUBCOMP, packet_id).reason


@covers(v3="4.3.2-2", v5="4.3.2-4 4.3.2-5")
@both_versions
@pytest.mark.parametrize("dup", [False, True])
def test_qos_1_packet_id_after_puback_is_a_new_message(connect: Connect, name: str, version: int, dup: bool) -> None:
    subscriber = connect(version)
    subscriber.subscribe(name, qos=1)
    publisher = connect(version)
    for payload in (b"one", b"two"):
        publisher.send(wire.publish(name, payload, version=version, qos=1, packet_id=7, dup=dup))
        publisher.expect(Type.PUBACK, 7)
    assert subscriber.payloads(2) == [b"one", b"two"]


@covers(v3="4.3.3-2", v5="4.3.3-8 4.3.3-10 4.3.3-11 4.3.3-12")
@both_versions
def test_qos_2_repeats_before_pubrel_are_no_new_message(connect: Connect, name: str, version: int) -> None:
    subscriber = connect(version)
    subscriber.subscribe(name, qos=2)
    publisher = connect(version)
    for dup in (False, True, True):
        send_qos_2(publisher, name, b"one", 7, dup=dup)
    assert release(publisher, 7) == 0
    send_qos_2(publisher, name, b"two", 7, dup=True)
    release(publisher, 7)
    assert subscriber.payloads(2) == [b"one", b"two"]
    subscriber.silent()


@covers(v3="4.3.3-2 4.4.0-1 3.1.2-4 4.1.0-1", v5="4.3.3-10 4.3.3-11 4.3.3-12 3.1.2-5")
@both_versions
def test_qos_2_repeats_over_connections_are_no_new_message(connect: Connect, name: str, version: int) -> None:
    subscriber = connect(version)
    subscriber.subscribe(name, qos=2)
    for dup in (False, True, True):
        publisher = connect(version, name, clean=False, expiry=60)
        send_qos_2(publisher, name, b"one", 7, dup=dup)
        publisher.drop()
    publisher = connect(version, name, clean=False, expiry=60)
    assert release(publisher, 7) == 0
    send_qos_2(publisher, name, b"two", 7)
    release(publisher, 7)
    assert subscriber.payloads(2) == [b"one", b"two"]
    subscriber.silent()


@covers(v3="3.1.2-6", v5="3.1.2-4")
@both_versions
def test_clean_start_forgets_received_packet_ids(connect: Connect, name: str, version: int) -> None:
    subscriber = connect(version)
    subscriber.subscribe(name, qos=2)
    publisher = connect(version, name, clean=False, expiry=60)
    send_qos_2(publisher, name, b"one", 7)
    publisher.drop()
    publisher = connect(version, name, clean=True)
    send_qos_2(publisher, name, b"two", 7)
    release(publisher, 7)
    first = subscriber.message().payload
    assert first == b"two" or subscriber.message().payload == b"two"


@covers(v3="4.3.3-2 2.3.1-6", v5="4.3.3-11 2.2.1-5 3.7.2-1")
@both_versions
def test_pubrel_is_always_answered(connect: Connect, name: str, version: int) -> None:
    """Twice for one message, and for an identifier that nobody used: 0x92 where there is a reason code."""
    client = connect(version)
    send_qos_2(client, name, b"x", 3)
    assert release(client, 3) == 0
    assert release(client, 3) in ((0,) if version == V311 else (0, 0x92))
    assert release(client, 999) == (0 if version == V311 else 0x92)


@covers(v3="4.3.3-2", v5="4.3.3-11 3.6.2-1")
@pytest.mark.parametrize("reason", [None, 0x00, 0x92])
def test_pubrel_in_each_form(connect: Connect, name: str, reason: int | None) -> None:
    client = connect()
    send_qos_2(client, name, b"x", 3)
    client.send(wire.ack(Type.PUBREL, 3, reason))
    client.expect(Type.PUBCOMP, 3)
    send_qos_2(client, name, b"x", 4)
    client.send(wire.ack(Type.PUBREL, 4, reason or 0, [("reason_string", b"why"), ("user_property", (b"k", b"v"))]))
    client.expect(Type.PUBCOMP, 4)


@covers(v5="4.3.3-13")
def test_expiry_does_not_stop_the_flow(connect: Connect, name: str) -> None:
    client = connect()
    client.send(wire.publish(name, b"x", qos=2, packet_id=5, properties=[("message_expiry", 1)]))
    client.expect(Type.PUBREC, 5)
    time.sleep(1.2)
    assert release(client, 5) == 0


@covers(v5="4.3.3-9")
def test_refused_qos_2_frees_its_packet_id(guarded: ConnectAs, name: str) -> None:
    watcher = guarded("alice")
    watcher.subscribe(f"open/{name}", qos=2)
    client = guarded("bob")
    client.send(wire.publish(f"secret/{name}", b"no", qos=2, packet_id=7))
    assert client.expect(Type.PUBREC, 7).reason == 0x87
    send_qos_2(client, f"open/{name}", b"yes", 7)
    assert release(client, 7) == 0
    assert watcher.payloads(1) == [b"yes"]


@covers(v3="2.3.1-6 4.3.3-2 4.6.0-6", v5="2.2.1-5 4.3.3-8 4.6.0-5")
@both_versions
def test_flows_interleave(connect: Connect, name: str, version: int) -> None:
    """Flows of both QoS side by side, each answered with its own identifier; delivery keeps the order of sending."""
    subscriber = connect(version)
    subscriber.subscribe(name, qos=2)
    client = connect(version)
    for packet_id in range(1, 10):
        client.send(wire.publish(name, b"%d" % packet_id, version=version, qos=2, packet_id=packet_id))
    for packet_id in range(10, 19):
        client.send(wire.publish(name, b"%d" % packet_id, version=version, qos=1, packet_id=packet_id))
    for packet_id in range(1, 10):
        client.expect(Type.PUBREC, packet_id)
    for packet_id in range(1, 10):
        client.send(wire.ack(Type.PUBREL, packet_id))
    for packet_id in range(1, 10):
        client.expect(Type.PUBCOMP, packet_id)
    for packet_id in range(10, 19):
        client.expect(Type.PUBACK, packet_id)
    arrived = [(message.qos, int(message.payload)) for message in subscriber.take(18)]
    for qos in (1, 2):
        numbers = [number for got, number in arrived if got == qos]
        assert numbers == sorted(numbers)
    assert len(set(arrived)) == 18


@covers(v5="3.1.2-5")
def test_qos_2_state_is_part_of_the_session_in_both_versions(connect: Connect, name: str) -> None:
    for version in (V311, V5):
        publisher = connect(version, f"{name}{version}", clean=False, expiry=60)
        send_qos_2(publisher, name, b"x", 9)
        publisher.drop()
        publisher = connect(version, f"{name}{version}", clean=False, expiry=60)
        assert release(publisher, 9) == 0
