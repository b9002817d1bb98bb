"""Properties of PUBLISH (3.3.2.3): carried unchanged, live, stored and retained; and those that the server adds."""

from __future__ import annotations

import time

import pytest

from . import wire
from .conftest import Connect
from .covers import V5, V311, covers, each_qos
from .properties import Properties, PropertyValue

USER = [(b"b", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b""), (b"", b"x"), ("ключ".encode(), "значение".encode())]
CONTENT: list[tuple[str, PropertyValue]] = [
    ("payload_format", 1),
    ("content_type", "text/überall".encode()),
    ("response_topic", b"answer/here"),
    ("correlation_data", bytes(range(256))),
    *(("user_property", pair) for pair in USER),
]


def by_name(properties: Properties) -> list[tuple[str, PropertyValue]]:
    """Sorted by name; the order within a name stays, and only that is promised."""
    return sorted(properties, key=lambda item: item[0])


@covers(v5="3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20 3.1.3-10")
@each_qos
def test_content_properties_arrive_unchanged(connect: Connect, name: str, qos: int) -> None:
    """To one who is there, one who comes back, and one who comes later."""
    away = connect(V5, name, clean=False, expiry=60)
    away.subscribe(f"{name}/#", qos=2)
    away.drop()
    present = connect()
    present.subscribe(f"{name}/#", qos=2)
    old = connect(V311)
    old.subscribe(f"{name}/#", qos=2)
    connect().publish(f"{name}/t", b"text", qos=qos, retain=True, properties=CONTENT)
    later = connect()
    later.subscribe(f"{name}/t", qos=2)
    receivers = [present, later] + ([connect(V5, name, clean=False, expiry=60)] if qos else [])
    for receiver in receivers:
        message = receiver.message()
        assert message.payload == b"text"
        assert by_name(message.properties) == by_name(CONTENT)
    assert old.message().payload == b"text"


@covers(v5="3.3.2-4 2.2.2-1")
@pytest.mark.parametrize("format_indicator", [None, 0, 1])
def test_payload_format_is_neither_added_nor_removed(connect: Connect, name: str, format_indicator: int | None) -> None:
    properties: Properties = [] if format_indicator is None else [("payload_format", format_indicator)]
    client = connect()
    client.subscribe(name, qos=1)
    client.publish(name, b"text", qos=1, properties=properties)
    message = client.message()
    assert message.number("payload_format") == (format_indicator or 0)
    assert [p for p in message.properties if p[0] != "payload_format"] == []


@covers(v5="3.3.2-17 3.3.2-18 1.5.5-1")
@pytest.mark.parametrize("count", [1, 10, 60])
def test_many_user_properties_keep_their_order(connect: Connect, name: str, count: int) -> None:
    """Up to property lengths that need two bytes."""
    properties: Properties = [("user_property", (b"k%d" % (i % 3), b"%d" % i * 8)) for i in range(count)]
    client = connect()
    client.subscribe(name)
    client.publish(name, properties=properties)
    assert client.message().properties == properties


@covers(v5="3.3.2-5 3.3.2-6")
def test_message_expiry(connect: Connect, name: str) -> None:
    """One wait for all: expired messages are gone, stored or retained; the others tell what is left of their time."""
    away = connect(V5, name, clean=False, expiry=60)
    away.subscribe(f"{name}/t", qos=2)
    away.drop()
    publisher = connect()
    for seconds in (1, 60, 2):
        publisher.publish(f"{name}/t", b"%d" % seconds, qos=1, properties=[("message_expiry", seconds)])
    publisher.publish(f"{name}/t", b"1", qos=2, properties=[("message_expiry", 1)])
    publisher.publish(f"{name}/t", b"endless", qos=1)
    publisher.publish(f"{name}/short", b"1", qos=1, retain=True, properties=[("message_expiry", 1)])
    publisher.publish(f"{name}/long", b"60", qos=1, retain=True, properties=[("message_expiry", 60)])
    stored = time.monotonic()
    live = connect()
    live.subscribe(f"{name}/live")
    live.publish(f"{name}/live", properties=[("message_expiry", 60)])
    assert 59 <= live.message().number("message_expiry") <= 60

    time.sleep(2.1)
    away = connect(V5, name, clean=False, expiry=60)
    messages = away.take(2)
    waited = time.monotonic() - stored
    assert [m.payload for m in messages] == [b"60", b"endless"]
    assert 59 - waited <= messages[0].number("message_expiry") <= 61 - waited
    assert not messages[1].every("message_expiry")
    away.silent()
    later = connect()
    later.subscribe(f"{name}/short", f"{name}/long")
    message = later.message()
    assert message.payload == b"60"
    assert 59 - waited <= message.number("message_expiry") <= 61 - waited
    later.silent()


@covers(v5="3.3.4-3 3.3.4-4 3.3.4-5")
@each_qos
def test_subscription_identifiers_of_all_matches(connect: Connect, name: str, qos: int) -> None:
    """In one copy all of them, or in each copy its own."""
    client = connect()
    for identifier, topic_filter in ((1, f"{name}/#"), (268435455, f"{name}/+"), (128, f"{name}/a"), (5, f"{name}/b")):
        client.subscribe(topic_filter, qos=2, properties=[("subscription_identifier", identifier)])
    client.subscribe(f"{name}/a/#", qos=2)
    publisher = connect()
    publisher.publish(f"{name}/a", b"x", qos=qos)
    publisher.publish(f"{name}/b", b"end", qos=qos)
    got = []
    message = client.message()
    while message.payload != b"end":
        got.append(sorted(message.every("subscription_identifier"), key=str))
        message = client.message()
    every = sorted([1, 268435455, 128], key=str)
    assert got == [every] or sorted(got) == sorted([[1], [268435455], [128], []])


@covers(v5="3.3.4-3 3.8.4-3 2.2.2-1")
def test_subscription_identifier_is_replaced_and_removed(connect: Connect, name: str) -> None:
    client = connect()
    for properties in ([("subscription_identifier", 7)], [("subscription_identifier", 8)], []):
        client.subscribe(name, qos=1, properties=properties)
        client.publish(name, b"x", qos=1)
        assert [("subscription_identifier", value) for value in client.message().every("subscription_identifier")] == properties


@covers(v5="3.3.4-3")
def test_subscription_identifier_stands_on_retained_and_stored_messages(connect: Connect, name: str) -> None:
    publisher = connect()
    publisher.publish(f"{name}/t", b"retained", qos=1, retain=True)
    client = connect(V5, name, clean=False, expiry=60)
    client.subscribe(f"{name}/t", qos=1, properties=[("subscription_identifier", 9)])
    assert client.message().every("subscription_identifier") == [9]
    client.drop()
    publisher.publish(f"{name}/t", b"stored", qos=1)
    client = connect(V5, name, clean=False, expiry=60)
    (message,) = client.take(answer=False)
    assert message.every("subscription_identifier") == [9]
    client.drop()
    client = connect(V5, name, clean=False, expiry=60)
    assert client.message().payload == b"stored"


ILL_FORMED = b"a\xed\xa0\x80b"
BAD_PUBLISH: dict[str, tuple[Properties, tuple[int, ...]]] = {
    "response topic with #": ([("response_topic", b"a/#")], (0x81, 0x82, 0x90)),
    "response topic with +": ([("response_topic", b"+")], (0x81, 0x82, 0x90)),
    "ill-formed response topic": ([("response_topic", ILL_FORMED)], (0x81,)),
    "ill-formed content type": ([("content_type", ILL_FORMED)], (0x81,)),
    "null in content type": ([("content_type", b"a\0")], (0x81,)),
    "ill-formed user property name": ([("user_property", (ILL_FORMED, b"v"))], (0x81,)),
    "ill-formed user property value": ([("user_property", (b"k", ILL_FORMED))], (0x81,)),
    "null in user property": ([("user_property", (b"k", b"\0"))], (0x81,)),
    "subscription identifier from a client": ([("subscription_identifier", 1)], (0x81, 0x82)),
    "payload format 2": ([("payload_format", 2)], (0x81, 0x82)),
    "payload format twice": ([("payload_format", 1), ("payload_format", 1)], (0x81, 0x82)),
    "expiry twice": ([("message_expiry", 1), ("message_expiry", 1)], (0x82,)),
    "response topic twice": ([("response_topic", b"a"), ("response_topic", b"a")], (0x82,)),
    "correlation data twice": ([("correlation_data", b"a"), ("correlation_data", b"a")], (0x82,)),
    "content type twice": ([("content_type", b"a"), ("content_type", b"a")], (0x82,)),
    "topic alias twice": ([("topic_alias", 1), ("topic_alias", 1)], (0x82,)),
    "property of CONNECT": ([("session_expiry", 1)], (0x81, 0x82)),
}


@covers(v5="3.3.2-13 3.3.2-14 3.3.2-19 3.3.4-6 1.5.7-1 1.5.4-1 1.5.4-2 4.13.1-1")
@pytest.mark.parametrize(("properties", "reasons"), BAD_PUBLISH.values(), ids=BAD_PUBLISH.keys())
def test_publish_with_a_bad_property_ends_the_connection(
    connect: Connect, name: str, properties: Properties, reasons: tuple[int, ...]
) -> None:
    client = connect()
    client.send(wire.publish(name, b"x", qos=1, packet_id=1, properties=properties))
    client.refused(*reasons)


def test_payload_that_is_not_the_utf8_it_claims(connect: Connect, name: str) -> None:
    """A server may check (0x99) or pass it on; the connection lives in either case."""
    client = connect()
    assert client.publish(name, b"\xff", qos=1, properties=[("payload_format", 1)]) in (0x00, 0x10, 0x99)
    client.alive()
