"""SUBSCRIBE and SUBACK (3.8, 3.9)."""

from __future__ import annotations

import pytest

from . import wire
from .conftest import Connect, ConnectAs
from .covers import V5, V311, both_versions, covers, each_qos
from .properties import Properties, text
from .wire import Type, options


@covers(v3="3.8.4-1 3.8.4-2 3.8.4-5 2.3.1-7 3.9.3-2", v5="3.8.4-1 3.8.4-2 3.8.4-6 3.8.4-7 2.2.1-6 3.9.3-2 3.2.2-10 2.2.2-1")
@both_versions
@each_qos
@pytest.mark.parametrize("packet_id", [1, 256, 65535])
def test_suback_answers_with_id_and_granted_qos(connect: Connect, name: str, version: int, qos: int, packet_id: int) -> None:
    client = connect(version)
    client.send(wire.subscribe(packet_id, [(name, qos)], version=version))
    suback = client.next()
    assert (suback.type, suback.packet_id, suback.reasons) == (Type.SUBACK, packet_id, (qos,))


@covers(v3="3.8.4-4 3.9.3-1 3.8.4-5 3.8.4-6", v5="3.8.4-5 3.9.3-1 3.8.4-6 3.8.4-8")
@both_versions
def test_many_filters_are_one_answer_in_their_order(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    granted = [2, 0, 1, 1, 0, 2, 0, 1]
    assert client.subscribe(*((f"{name}/{i}", qos) for i, qos in enumerate(granted))).reasons == tuple(granted)
    publisher = connect(version)
    for i, qos in enumerate(granted):
        publisher.publish(f"{name}/{i}", b"x", qos=2)
        assert client.message().qos == qos
    client.silent(0.03)


@covers(v3="3.8.4-4 3.8.4-3", v5="3.8.4-5 3.8.4-3")
@both_versions
def test_one_filter_twice_in_a_packet_is_the_last(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    assert client.subscribe((name, 2), (name, 0)).reasons == (2, 0)
    connect(version).publish(name, b"x", qos=2)
    assert client.message().qos == 0
    client.silent(0.05)


@covers(v3="3.8.4-6", v5="3.8.4-8")
@both_versions
@each_qos
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_message_has_the_lower_of_both_qos(connect: Connect, name: str, version: int, qos: int, granted: int) -> None:
    client = connect(version)
    client.subscribe(name, qos=granted)
    connect(version).publish(name, b"x", qos=qos)
    assert client.message().qos == min(qos, granted)


@covers(v3="3.8.4-3", v5="3.8.4-3 3.8.4-4")
@both_versions
def test_subscribing_again_replaces(connect: Connect, name: str, version: int) -> None:
    """One copy, at the new QoS, and nothing lost while it changes."""
    client = connect(version)
    publisher = connect(version)
    sent = []
    for i in range(12):
        client.subscribe(name, qos=(2, 1, 0)[i % 3])
        payload = b"%d" % i
        publisher.publish(name, payload, qos=2)
        sent.append((payload, (2, 1, 0)[i % 3]))
    assert [(m.payload, m.qos) for m in client.take(12)] == sent
    client.silent()


@covers(v3="3.8.4-3", v5="3.8.4-4")
@both_versions
def test_replacing_loses_nothing_in_flight(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    client.subscribe(name, qos=1)
    publisher = connect(version)
    ids = range(1, 16)
    publisher.send(*(wire.publish(name, b"%d" % i, version=version, qos=1, packet_id=i) for i in ids))
    for _ in range(5):
        client.subscribe(name, qos=1)
    assert {int(payload) for payload in client.payloads(15)} == set(ids)


@covers(v5="3.8.3-3")
@each_qos
def test_no_local(connect: Connect, name: str, qos: int) -> None:
    """The client's own messages stay away, those of others come; an overlapping subscription without the option gets both."""
    client, other = connect(), connect()
    client.subscribe((f"{name}/#", options(2, no_local=True)))
    client.publish(f"{name}/a", b"own", qos=qos)
    other.publish(f"{name}/a", b"other", qos=qos)
    assert client.payloads(1) == [b"other"]
    client.silent(0.05)
    client.subscribe((f"{name}/b", options(2)))
    client.publish(f"{name}/b", b"own", qos=qos)
    assert client.payloads(1) == [b"own"]
    client.silent(0.05)


@covers(v5="3.8.3-3")
def test_no_local_knows_the_client_over_connections(connect: Connect, name: str) -> None:
    client = connect(V5, name, clean=False, expiry=60)
    client.subscribe((f"{name}/t", options(1, no_local=True)))
    client.publish(f"{name}/t", b"own", qos=1)
    client.drop()
    connect().publish(f"{name}/t", b"other", qos=1)
    client = connect(V5, name, clean=False, expiry=60)
    assert client.payloads(1) == [b"other"]
    client.silent(0.05)


@covers(v5="3.8.3-4 4.13.1-1")
def test_no_local_on_a_shared_subscription_ends_the_connection(connect: Connect, name: str) -> None:
    client = connect()
    client.send(wire.subscribe(1, [(f"$share/g/{name}", options(1, no_local=True))]))
    client.refused(0x82)


@covers(v3="4.8.0-1", v5="3.8.3-5 4.13.1-1")
@pytest.mark.parametrize(
    ("version", "option"),
    [(V311, 3), *((V311, 1 << bit) for bit in range(2, 8)), (V5, 3), (V5, 0x30), (V5, 0x40), (V5, 0x80), (V5, 0xC1)],
)
def test_reserved_option_bits_end_the_connection(connect: Connect, name: str, version: int, option: int) -> None:
    """QoS 3 and Retain Handling 3 as well; in 3.1.1 it is MQTT-3-8.3-4, all bits but the QoS."""
    client = connect(version)
    client.send(wire.subscribe(1, [(name, option)], version=version))
    client.refused(0x81, 0x82)


@covers(v3="3.8.3-3 2.3.1-1 3.8.3-1 3.8.1-1 2.2.2-1 2.2.2-2 1.5.3-1 1.5.3-2", v5="3.8.3-2 2.2.1-3 3.8.3-1 3.8.1-1 2.1.3-1 1.5.4-1 1.5.4-2")
@both_versions
@pytest.mark.parametrize(
    ("header", "packet_id", "payload"),
    [
        (0x82, 1, b""),
        (0x82, 0, text("a") + b"\0"),
        (0x82, 1, text("a")),
        (0x82, 1, text(b"a\xff") + b"\0"),
        (0x82, 1, text(b"a\0") + b"\0"),
        (0x82, 1, text(b"\xed\xa0\x80") + b"\0"),
        (0x82, 1, b"\x00\x05a\0"),
        *((0x80 | flags, 1, text("a") + b"\0") for flags in (0, 1, 3, 6, 10, 15)),
    ],
    ids=["no filter", "id 0", "no options", "ill-formed", "null", "surrogate", "cut", *(f"flags {n}" for n in (0, 1, 3, 6, 10, 15))],
)
def test_subscribe_that_breaks_a_rule_ends_the_connection(
    connect: Connect, version: int, header: int, packet_id: int, payload: bytes
) -> None:
    client = connect(version)
    properties = b"\0" if version == V5 else b""
    client.send(wire.frame(header, packet_id.to_bytes(2, "big") + properties + payload))
    client.refused(0x81, 0x82, 0x8F)


@covers(v5="4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        [("subscription_identifier", 0)],
        [("subscription_identifier", 1), ("subscription_identifier", 1)],
        [("content_type", b"x")],
        [("user_property", (b"k", b"\xff"))],
    ],
    ids=["identifier 0", "identifier twice", "property of PUBLISH", "ill-formed user property"],
)
def test_subscribe_with_a_bad_property_ends_the_connection(connect: Connect, name: str, properties: Properties) -> None:
    client = connect()
    client.send(wire.subscribe(1, [(name, 0)], properties=properties))
    client.refused(0x81, 0x82)


def assert_not_subscribed(connect: Connect, version: int, topic_filter: str) -> None:
    """Either way of saying no: a failure in the SUBACK, or the close."""
    client = connect(version)
    client.send(wire.subscribe(1, [(topic_filter, 0)], version=version))
    client.send(wire.DISCONNECT)
    for packet in client.closed():
        assert packet.type in (Type.SUBACK, Type.DISCONNECT)
        assert packet.reasons in ((), (0x80,), (0x8F,)), f"{topic_filter} was granted"
        assert packet.type == Type.SUBACK or packet.reason in (0x81, 0x82, 0x8F)


@covers(v3="4.7.1-2 4.7.1-3 4.7.3-1", v5="4.7.1-1 4.7.1-2 4.7.3-1")
@both_versions
@pytest.mark.parametrize("topic_filter", ["", "a#", "#a", "a/#/b", "#/a", "##", "a/b#", "a+", "+a", "a/+b", "a/b+/c", "++", "a/#b", "+#"])
def test_misplaced_wildcards_are_not_subscribed(connect: Connect, version: int, topic_filter: str) -> None:
    assert_not_subscribed(connect, version, topic_filter)


@covers(v5="4.8.2-1 4.8.2-2")
@pytest.mark.parametrize(
    "topic_filter", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/#/a", "$share/+/a", "$share/g/a#"]
)
def test_malformed_shared_filters_are_not_subscribed(connect: Connect, topic_filter: str) -> None:
    assert_not_subscribed(connect, V5, topic_filter)


@covers(v3="3.8.3-2")
def test_wildcards_are_supported_or_refused(connect: Connect, name: str) -> None:
    """This server supports them: granted, and they match."""
    client = connect(V311)
    assert client.subscribe(f"{name}/+", f"{name}/#").reasons == (0, 0)
    client.publish(f"{name}/a", b"x")
    assert client.message().payload == b"x"


@covers(v3="3.8.4-5 3.9.3-1 3.9.3-2", v5="3.8.4-7 3.9.3-1 3.9.3-2")
@both_versions
def test_filter_without_right_fails_alone(guarded: ConnectAs, name: str, version: int) -> None:
    client = guarded("bob", version)
    reasons = client.subscribe((f"open/{name}", 1), (f"secret/{name}", 1), (f"own/bob/{name}", 2)).reasons
    assert reasons == (1, 0x80 if version == V311 else 0x87, 2)


@covers(v5="3.9.3-2")
def test_no_system_filter_is_granted_beyond_its_place(connect: Connect, name: str) -> None:
    """Subscribing to one's peer-to-peer queue is refused, with a reason of the table."""
    client = connect()
    reasons = client.subscribe(f"$p2p/{name}").reasons
    assert reasons[0] in (0, 0x80, 0x87, 0x8F)
    client.alive()
