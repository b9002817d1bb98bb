"""Topic aliases (3.3.2.3.4), from the client and to it."""

from __future__ import annotations

import pytest

from . import wire
from .client import Client
from .conftest import Connect
from .covers import V5, both_versions, covers, each_qos


def aliased(topic: str, payload: bytes, alias: int, qos: int = 0, packet_id: int | None = None) -> bytes:
    return wire.publish(topic, payload, qos=qos, packet_id=packet_id, properties=[("topic_alias", alias)])


@covers(v5="3.3.2-12")
@each_qos
def test_alias_stands_for_its_topic(connect: Connect, name: str, qos: int) -> None:
    """Set, used, set anew and used; the subscriber sees names alone."""
    subscriber = connect()
    subscriber.subscribe(f"{name}/#", qos=0)
    client = connect()
    ids = iter(range(1, 10)) if qos else iter([None] * 9)
    client.send(
        aliased(f"{name}/a", b"1", 1, qos, next(ids)),
        aliased("", b"2", 1, qos, next(ids)),
        aliased(f"{name}/b", b"3", 2, qos, next(ids)),
        aliased("", b"4", 1, qos, next(ids)),
        aliased(f"{name}/c", b"5", 1, qos, next(ids)),
        aliased("", b"6", 1, qos, next(ids)),
        aliased("", b"7", 2, qos, next(ids)),
    )
    if qos == 2:
        client.send(*(wire.ack(wire.Type.PUBREL, i) for i in range(1, 8)))
    expected = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("c", 6), ("b", 7)]
    assert [(m.topic, m.payload) for m in subscriber.take(7)] == [(f"{name}/{t}".encode(), b"%d" % n) for t, n in expected]


@covers(v5="3.3.2-12 3.2.2-17")
def test_every_alias_up_to_the_maximum_is_taken(connect: Connect, name: str) -> None:
    client = connect()
    maximum = client.connack.number("topic_alias_maximum")
    assert maximum >= 1
    client.subscribe(f"{name}/#")
    client.send(*(aliased(f"{name}/{i}", b"", i) for i in range(1, maximum + 1)))
    client.send(*(aliased("", b"again", i) for i in range(1, maximum + 1)))
    topics = [m.topic for m in client.take(2 * maximum)]
    assert topics == [f"{name}/{i}".encode() for i in range(1, maximum + 1)] * 2


@covers(v5="3.3.2-8 3.3.2-9 3.2.2-17 4.13.1-1")
@pytest.mark.parametrize("beyond", [None, 1, 65535])
def test_alias_zero_or_beyond_the_maximum_ends_the_connection(connect: Connect, name: str, beyond: int | None) -> None:
    client = connect()
    maximum = client.connack.number("topic_alias_maximum")
    client.send(aliased(name, b"", 0 if beyond is None else min(maximum + beyond, 65535)))
    client.refused(0x94)


@covers(v5="4.7.3-1 4.13.1-1")
@pytest.mark.parametrize("alias", [None, 1])
def test_no_name_and_no_known_alias_ends_the_connection(connect: Connect, alias: int | None) -> None:
    client = connect()
    client.send(wire.publish("", b"x", properties=[] if alias is None else [("topic_alias", alias)]))
    client.refused(0x82, 0x94)


@covers(v5="3.3.2-7")
def test_aliases_end_with_their_connection(connect: Connect, name: str) -> None:
    client = connect(V5, name, clean=False, expiry=60)
    client.send(aliased(f"{name}/a", b"", 1))
    client.alive()
    client.drop()
    client = connect(V5, name, clean=False, expiry=60)
    client.send(aliased("", b"x", 1))
    client.refused(0x82, 0x94)


def messages_of_many_topics(publisher: Client, name: str) -> list[bytes]:
    """Publishes to six topics, three rounds; the topics in the order of sending."""
    topics = [f"{name}/{i}" for _ in range(3) for i in range(6)]
    for i, topic in enumerate(topics):
        publisher.publish(topic, b"%d" % i, qos=i % 2)
    return [topic.encode() for topic in topics]


@covers(v5="3.1.2-26 3.3.2-11 3.3.2-8")
@pytest.mark.parametrize("maximum", [1, 2, 65535])
def test_server_stays_within_the_clients_alias_maximum(connect: Connect, name: str, maximum: int) -> None:
    """The client resolves aliases as it reads; whatever the server chose, the names come out right."""
    client = connect(properties=[("topic_alias_maximum", maximum)])
    client.subscribe(f"{name}/#", qos=1)
    topics = messages_of_many_topics(connect(), name)
    messages = client.take(len(topics))
    assert sorted(m.topic for m in messages) == sorted(topics)
    assert {(m.topic, m.payload) for m in messages} == {(t, b"%d" % i) for i, t in enumerate(topics)}
    assert all(0 <= m.number("topic_alias") <= maximum for m in messages)


@covers(v5="3.1.2-27 3.1.2-26")
@pytest.mark.parametrize("properties", [[], [("topic_alias_maximum", 0)]], ids=["absent", "0"])
def test_no_alias_for_a_client_that_allows_none(connect: Connect, name: str, properties: list[tuple[str, int]]) -> None:
    client = connect(properties=properties)
    client.subscribe(f"{name}/#", qos=1)
    topics = messages_of_many_topics(connect(), name)
    assert not any(m.every("topic_alias") for m in client.take(len(topics)))


@covers(v5="3.1.2-26 3.1.2-25 3.3.2-7")
def test_alias_of_a_message_that_was_too_large_to_send(connect: Connect, name: str) -> None:
    """Its name never reached the client, so the next message of the topic has to bring it."""
    client = connect(properties=[("topic_alias_maximum", 5), ("maximum_packet_size", 100)])
    client.subscribe(f"{name}/#", qos=1)
    publisher = connect()
    for payload in (b"x" * 200, b"1", b"2"):
        publisher.publish(f"{name}/t", payload, qos=1)
    assert [(m.topic, m.payload) for m in client.take(2)] == [(f"{name}/t".encode(), b"1"), (f"{name}/t".encode(), b"2")]


@covers(v5="3.1.2-26 3.3.2-7")
def test_alias_is_given_before_it_is_used_over_all_qos(connect: Connect, name: str) -> None:
    """QoS 2 may leave later than QoS 0 of the same moment; the name goes with whichever is first on the wire."""
    client = connect(properties=[("topic_alias_maximum", 5)])
    client.subscribe(f"{name}/#", qos=2)
    publisher = connect()
    packets = [wire.publish(f"{name}/t", b"%d" % i, qos=q, packet_id=i + 1 if q else None) for i, q in enumerate((2, 0, 1, 2, 0))]
    publisher.send(*packets)
    for packet_id in (1, 4):
        publisher.expect(wire.Type.PUBREC, packet_id)
        publisher.send(wire.ack(wire.Type.PUBREL, packet_id))
    assert {(m.topic, m.payload) for m in client.take(5)} == {(f"{name}/t".encode(), b"%d" % i) for i in range(5)}


@covers(v5="3.3.2-7")
def test_server_gives_its_aliases_anew_on_each_connection(connect: Connect, name: str) -> None:
    """A message that comes again, too, names its topic or an alias of the new connection."""
    publisher = connect()
    client = connect(V5, name, clean=False, expiry=60, properties=[("topic_alias_maximum", 10)])
    client.subscribe(f"{name}/t", qos=1)
    for payload in (b"1", b"2"):
        publisher.publish(f"{name}/t", payload, qos=1)
    client.take(2, answer=False)
    client.drop()
    client = connect(V5, name, clean=False, expiry=60)
    publisher.publish(f"{name}/t", b"3", qos=1)
    for message in client.take(3):
        assert message.topic == f"{name}/t".encode()
        assert not message.every("topic_alias")


@covers(v5="3.3.2-11")
@both_versions
def test_alias_of_a_publisher_is_not_passed_on(connect: Connect, name: str, version: int) -> None:
    subscriber = connect(version)
    subscriber.subscribe(name, qos=1)
    connect().publish(name, b"x", qos=1, properties=[("topic_alias", 3)])
    message = subscriber.message()
    assert message.topic == name.encode()
    assert not message.every("topic_alias")
