"""UNSUBSCRIBE and UNSUBACK (3.10, 3.11)."""

from __future__ import annotations

import pytest

from . import wire
from .conftest import Connect
from .covers import V5, V311, both_versions, covers
from .properties import Properties, text
from .wire import Type


@covers(v3="3.10.4-4 3.10.4-5 2.3.1-7", v5="3.10.4-4 3.10.4-5 2.2.1-6 3.11.3-2 2.2.2-1")
@both_versions
@pytest.mark.parametrize("packet_id", [1, 256, 65535])
@pytest.mark.parametrize("subscribed", [True, False])
def test_unsuback_answers_with_the_id(connect: Connect, name: str, version: int, packet_id: int, subscribed: bool) -> None:
    """Also where nothing was subscribed; MQTT 5.0 says which it was."""
    client = connect(version)
    if subscribed:
        client.subscribe(name)
    client.send(wire.unsubscribe(packet_id, [name], version=version))
    unsuback = client.next()
    assert (unsuback.type, unsuback.packet_id) == (Type.UNSUBACK, packet_id)
    assert unsuback.reasons == (() if version == V311 else (0x00,) if subscribed else (0x11,))


@covers(v3="3.10.4-2 3.10.4-1", v5="3.10.4-2 3.10.4-1")
@both_versions
@pytest.mark.parametrize("topic_filter", ["{}", "{}/#", "{}/+", "{}/a/b"])
def test_no_message_after_unsuback(connect: Connect, name: str, version: int, topic_filter: str) -> None:
    topic_filter = topic_filter.format(name)
    topic = topic_filter.replace("#", "x").replace("+", "x")
    client = connect(version)
    client.subscribe(topic_filter, qos=1)
    publisher = connect(version)
    publisher.publish(topic, b"x", qos=1)
    assert client.message().payload == b"x"
    client.unsubscribe(topic_filter)
    publisher.publish(topic, b"y", qos=1)
    client.silent()


@covers(v3="3.10.4-1", v5="3.10.4-1")
@both_versions
def test_filters_are_compared_character_by_character(connect: Connect, name: str, version: int) -> None:
    """Neither a filter that covers another nor one that only looks alike takes it away."""
    client = connect(version)
    client.subscribe(f"{name}/a", qos=1)
    near = [f"{name}/#", f"{name}/+", f"{name}/A", f"{name}/a/", f"/{name}/a", f"{name}//a", f"{name}/a/#", f"{name}/ a"]
    unsuback = client.unsubscribe(*near)
    assert unsuback.reasons in ((), (0x11,) * len(near))
    client.publish(f"{name}/a", b"x", qos=1)
    assert client.message().payload == b"x"


@covers(v3="3.10.4-6", v5="3.10.4-6 3.11.3-1 3.11.3-2")
@both_versions
def test_many_filters_are_one_answer_in_their_order(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    client.subscribe(*(f"{name}/{i}" for i in (0, 2, 3)))
    unsuback = client.unsubscribe(*(f"{name}/{i}" for i in (0, 1, 2, 9)))
    assert unsuback.reasons == (() if version == V311 else (0x00, 0x11, 0x00, 0x11))
    for i in range(4):
        client.publish(f"{name}/{i}", b"%d" % i)
    assert client.payloads(1) == [b"3"]
    client.silent(0.05)


@covers(v3="3.10.4-3", v5="3.10.4-3")
@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_delivery_that_has_begun_is_completed(connect: Connect, name: str, version: int, qos: int) -> None:
    """The flow goes on after UNSUBACK, and over connections until it is acknowledged."""
    client = connect(version, name, clean=False, expiry=60)
    client.subscribe(f"{name}/t", qos=2)
    publisher = connect(version)
    for _ in range(2):
        publisher.publish(f"{name}/t", b"x", qos=qos)
    first, second = client.take(2, answer=False)
    client.unsubscribe(f"{name}/t")
    client.answer(first)
    client.alive()
    client.drop()
    client = connect(version, name, clean=False, expiry=60)
    assert [(m.packet_id, m.dup) for m in client.take()] == [(second.packet_id, True)]
    client.silent(0.05)


@covers(v3="3.10.4-2", v5="3.10.4-2")
@both_versions
def test_unsubscribing_outlives_the_connection(connect: Connect, name: str, version: int) -> None:
    client = connect(version, name, clean=False, expiry=60)
    client.subscribe(f"{name}/a", f"{name}/b", qos=1)
    client.unsubscribe(f"{name}/a")
    client.drop()
    for topic in ("a", "b"):
        connect(version).publish(f"{name}/{topic}", topic.encode(), qos=1)
    client = connect(version, name, clean=False, expiry=60)
    assert client.payloads(1) == [b"b"]
    client.silent()


@covers(
    v3="3.10.3-1 3.10.3-2 3.10.1-1 2.3.1-1 2.2.2-1 2.2.2-2 1.5.3-1 4.8.0-1",
    v5="3.10.3-1 3.10.3-2 3.10.1-1 2.2.1-3 2.1.3-1 1.5.4-1 4.13.1-1",
)
@both_versions
@pytest.mark.parametrize(
    ("header", "packet_id", "payload"),
    [
        (0xA2, 1, b""),
        (0xA2, 0, text("a")),
        (0xA2, 1, text(b"a\xff")),
        (0xA2, 1, text(b"a\0")),
        (0xA2, 1, b"\x00\x05a"),
        (0xA2, 1, text("a") + b"\0"),
        *((0xA0 | flags, 1, text("a")) for flags in (0, 1, 3, 6, 10, 15)),
    ],
    ids=["no filter", "id 0", "ill-formed", "null", "cut", "rest", *(f"flags {n}" for n in (0, 1, 3, 6, 10, 15))],
)
def test_unsubscribe_that_breaks_a_rule_ends_the_connection(
    connect: Connect, version: int, header: int, packet_id: int, payload: bytes
) -> None:
    client = connect(version)
    properties = b"\0" if version == V5 else b""
    client.send(wire.frame(header, packet_id.to_bytes(2, "big") + properties + payload))
    client.refused(0x81, 0x82, 0x8F)


@covers(v5="4.13.1-1")
@pytest.mark.parametrize("properties", [[("reason_string", b"x")], [("subscription_identifier", 1)]], ids=["reason", "identifier"])
def test_unsubscribe_with_a_bad_property_ends_the_connection(connect: Connect, properties: Properties) -> None:
    client = connect()
    client.send(wire.unsubscribe(1, ["a"], properties=properties))
    client.refused(0x81, 0x82)
