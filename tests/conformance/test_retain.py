"""Retained messages (3.3.1.3) and the subscription options about them (3.8.3.1)."""

from __future__ import annotations

import pytest

from .conftest import Connect
from .covers import V5, V311, both_versions, covers, each_qos
from .wire import options


@covers(v3="3.3.1-5 3.3.1-6 3.3.1-8 3.3.1-9", v5="3.3.1-5 3.3.1-9 3.3.1-12")
@both_versions
@each_qos
def test_retained_message_waits_for_later_subscribers(connect: Connect, name: str, version: int, qos: int) -> None:
    """It keeps its QoS; RETAIN is 1 for who comes later and 0 for who was there."""
    present = connect(version)
    present.subscribe(name, qos=2)
    publisher = connect(version)
    publisher.publish(name, b"first", qos=qos, retain=True)
    publisher.publish(name, b"second", qos=qos, retain=True)
    assert [(m.payload, m.retain) for m in present.take(2)] == [(b"first", False), (b"second", False)]
    later = connect(version)
    later.subscribe(name, qos=2)
    message = later.message()
    assert (message.payload, message.qos, message.retain) == (b"second", qos, True)
    later.silent(0.05)


@covers(v3="3.3.1-6 3.8.4-4", v5="3.3.1-9 3.8.4-5")
@both_versions
def test_wildcard_subscription_gets_each_retained_match(connect: Connect, name: str, version: int) -> None:
    publisher = connect(version)
    for level in ("a", "b", "a/c", "$x"):
        publisher.publish(f"{name}/{level}", level.encode(), retain=True)
    for topic_filter, expected in [
        (f"{name}/#", {b"a", b"b", b"a/c", b"$x"}),
        (f"{name}/+", {b"a", b"b", b"$x"}),
        (f"{name}/a/#", {b"a", b"a/c"}),
    ]:
        subscriber = connect(version)
        subscriber.subscribe(topic_filter)
        assert set(subscriber.payloads(len(expected))) == expected
        subscriber.silent(0.03)


@covers(v3="3.3.1-7", v5="3.3.1-5")
@both_versions
def test_qos_0_replaces_what_was_retained(connect: Connect, name: str, version: int) -> None:
    """The new message may be kept or not: the old one is gone in any case. This server keeps it."""
    publisher = connect(version)
    publisher.publish(name, b"old", qos=2, retain=True)
    publisher.publish(name, b"new", qos=0, retain=True)
    later = connect(version)
    later.subscribe(name, qos=2)
    assert [(m.payload, m.qos) for m in later.take(1)] == [(b"new", 0)]
    later.silent(0.05)


@covers(v3="3.3.1-10 3.3.1-11", v5="3.3.1-6 3.3.1-7")
@both_versions
@each_qos
def test_empty_payload_removes_what_was_retained(connect: Connect, name: str, version: int, qos: int) -> None:
    publisher = connect(version)
    publisher.publish(name, b"old", qos=1, retain=True)
    present = connect(version)
    present.subscribe(name, qos=2)
    assert present.message().payload == b"old"
    publisher.publish(name, b"", qos=qos, retain=True)
    message = present.message()
    assert (message.payload, message.retain, message.qos) == (b"", False, qos)
    later = connect(version)
    later.subscribe(name)
    later.silent()


@covers(v3="3.3.1-12", v5="3.3.1-8")
@both_versions
def test_plain_message_neither_stores_nor_replaces(connect: Connect, name: str, version: int) -> None:
    publisher = connect(version)
    publisher.publish(f"{name}/kept", b"kept", qos=1, retain=True)
    publisher.publish(f"{name}/kept", b"plain", qos=1)
    publisher.publish(f"{name}/kept", b"", qos=1)
    publisher.publish(f"{name}/none", b"plain", qos=1)
    later = connect(version)
    later.subscribe(f"{name}/#")
    assert later.payloads(1) == [b"kept"]
    later.silent()


@covers(v3="3.8.4-3", v5="3.8.4-3 3.8.4-4 3.3.1-9")
@both_versions
def test_subscribing_again_sends_retained_again(connect: Connect, name: str, version: int) -> None:
    client = connect(version)
    client.publish(name, b"kept", qos=1, retain=True)
    for _ in range(3):
        client.subscribe(name, qos=1)
        assert [(m.payload, m.retain) for m in client.take()] == [(b"kept", True)]
    client.publish(name, b"live", qos=1)
    assert client.message().payload == b"live"
    client.silent(0.05)


@covers(v5="3.3.1-9 3.3.1-10 3.3.1-11 3.8.4-4")
def test_retain_handling(connect: Connect, name: str) -> None:
    publisher = connect()
    publisher.publish(name, b"kept", qos=1, retain=True)
    for handling, first, again in [(0, 1, 1), (1, 1, 0), (2, 0, 0)]:
        client = connect()
        for expected in (first, again):
            client.subscribe((name, options(1, retain_handling=handling)))
            assert client.payloads(expected) == [b"kept"] * expected
            client.silent(0.05)


@covers(v5="3.3.1-10")
def test_retain_handling_1_knows_subscriptions_of_the_session(connect: Connect, name: str) -> None:
    connect().publish(name, b"kept", qos=1, retain=True)
    client = connect(V5, name, clean=False, expiry=60)
    client.subscribe((name, options(1, retain_handling=1)))
    assert client.message().payload == b"kept"
    client.drop()
    client = connect(V5, name, clean=False, expiry=60)
    client.subscribe((name, options(1, retain_handling=1)))
    client.silent()
    client.unsubscribe(name)
    client.subscribe((name, options(1, retain_handling=1)))
    assert client.message().payload == b"kept"


@covers(v5="3.3.1-12 3.3.1-13")
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published(connect: Connect, name: str, as_published: bool, retain: bool) -> None:
    client = connect()
    client.subscribe((name, options(1, retain_as_published=as_published)))
    connect().publish(name, b"x", qos=1, retain=retain)
    assert client.message().retain == (as_published and retain)


@covers(v5="3.3.1-12 3.3.1-13")
@pytest.mark.parametrize("as_published", [(False, False), (True, False), (False, True)])
def test_retain_as_published_of_overlapping_subscriptions(connect: Connect, name: str, as_published: tuple[bool, bool]) -> None:
    """A single copy has RETAIN where one of them asks for it; separate copies have it each as asked."""
    client = connect()
    for topic_filter, asked in zip((f"{name}/a", f"{name}/#"), as_published, strict=True):
        client.subscribe((topic_filter, options(1, retain_as_published=asked)))
    connect().publish(f"{name}/a", b"x", qos=1, retain=True)
    connect().publish(f"{name}/end", b"end", qos=1)
    flags = []
    while (message := client.message()).payload != b"end":
        flags.append(message.retain)
    assert flags == [any(as_published)] or sorted(flags) == sorted(as_published)


@covers(v5="3.3.1-13 3.3.1-12")
def test_retain_as_published_holds_for_stored_messages(connect: Connect, name: str) -> None:
    client = connect(V5, name, clean=False, expiry=60)
    client.subscribe((f"{name}/rap", options(1, retain_as_published=True)), (f"{name}/plain", options(1)))
    client.drop()
    publisher = connect()
    for topic in ("rap", "plain"):
        publisher.publish(f"{name}/{topic}", b"x", qos=1, retain=True)
    client = connect(V5, name, clean=False, expiry=60)
    assert [(m.topic, m.retain) for m in client.take(2)] == [(f"{name}/rap".encode(), True), (f"{name}/plain".encode(), False)]


@covers(v3="3.3.1-8 3.8.4-6", v5="3.8.4-8 3.3.1-9")
@both_versions
@each_qos
def test_retained_message_respects_the_granted_qos(connect: Connect, name: str, version: int, qos: int) -> None:
    connect(version).publish(name, b"kept", qos=2, retain=True)
    client = connect(version)
    client.subscribe(name, qos=qos)
    message = client.message()
    assert (message.qos, message.retain) == (qos, True)


@covers(v3="3.3.1-6", v5="3.3.1-9")
def test_retained_messages_cross_versions(connect: Connect, name: str) -> None:
    for version, other in ((V311, V5), (V5, V311)):
        connect(version).publish(f"{name}/{version}", b"kept", qos=1, retain=True)
        client = connect(other)
        client.subscribe(f"{name}/{version}", qos=1)
        assert client.message().payload == b"kept"
