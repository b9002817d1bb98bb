"""QoS flows where the server sends (4.3, 4.4): packet identifiers, retransmission, order."""

from __future__ import annotations

import time

import pytest

from . import wire
from .client import PATIENCE_S, Client
from .conftest import Connect
from .covers import V5, V311, both_versions, covers, each_qos
from .wire import Packet, Type


def session(connect: Connect, name: str, version: int, *filters: str, qos: int = 2) -> Client:
    """A connection with a session that lasts, subscribed to the filters if there are any."""
    client = connect(version, name, clean=False, expiry=60)
    if filters:
        client.subscribe(*filters, qos=qos)
    return client


def again(connect: Connect, client: Client, name: str) -> Client:
    """Drops the connection and resumes the session."""
    client.drop()
    resumed = session(connect, name, client.version)
    assert resumed.connack.session_present
    return resumed


def read_exactly(client: Client, size: int) -> bytes:
    """So many bytes from the stream, for packets whose form is known."""
    client.stream.settimeout(PATIENCE_S)
    parts = []
    while size:
        parts.append(client.stream.recv(size))
        assert parts[-1], "closed"
        size -= len(parts[-1])
    return b"".join(parts)


def seen(packets: list[Packet]) -> list[tuple[int, bytes]]:
    return [(packet.packet_id, packet.payload) for packet in packets]


@covers(
    v3="4.4.0-1 2.3.1-4 3.3.1-1 4.6.0-1 4.6.0-6 4.3.2-1 4.3.3-1",
    v5="4.4.0-1 2.2.1-4 3.3.1-1 4.6.0-1 4.3.2-1 4.3.2-2 4.3.2-3 4.3.3-1 4.3.3-2 4.3.3-3",
)
@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_come_again(connect: Connect, name: str, version: int, qos: int) -> None:
    """Same identifiers, same order, DUP set; again and again until they are acknowledged."""
    client = session(connect, name, version, f"{name}/t")
    publisher = connect(version)
    for i in range(5):
        publisher.publish(f"{name}/t", b"%d" % i, qos=qos)
    first = client.take(5, answer=False)
    assert [m.payload for m in first] == [b"%d" % i for i in range(5)]
    assert len({m.packet_id for m in first}) == 5
    assert not any(m.dup for m in first)
    for _ in range(2):
        client = again(connect, client, name)
        repeated = client.take(5, answer=False)
        assert seen(repeated) == seen(first)
        assert all(m.dup and m.qos == qos for m in repeated)
    for message in repeated:
        client.answer(message)
    client.alive()
    client = again(connect, client, name)
    client.silent()


@covers(v3="4.4.0-1 4.3.2-1", v5="4.4.0-1 4.3.2-3")
@both_versions
def test_only_what_is_unacknowledged_comes_again(connect: Connect, name: str, version: int) -> None:
    client = session(connect, name, version, f"{name}/t")
    publisher = connect(version)
    for i in range(6):
        publisher.publish(f"{name}/t", b"%d" % i, qos=1)
    first = client.take(6, answer=False)
    for i in (1, 3, 4):
        client.answer(first[i])
    client.alive()
    client = again(connect, client, name)
    assert seen(client.take(3)) == [(first[i].packet_id, b"%d" % i) for i in (0, 2, 5)]
    client.silent(0.05)


@covers(v3="4.4.0-1 4.3.3-1 4.6.0-6", v5="4.4.0-1 4.3.3-4 4.3.3-5 4.3.3-6 2.2.1-5 3.6.2-1")
@both_versions
def test_pubrel_comes_again_and_never_the_publish(connect: Connect, name: str, version: int) -> None:
    client = session(connect, name, version, f"{name}/t")
    publisher = connect(version)
    for _ in range(3):
        publisher.publish(f"{name}/t", b"x", qos=2)
    ids = [m.packet_id for m in client.take(3, answer=False)]
    for packet_id in ids:
        client.send(wire.ack(Type.PUBREC, packet_id))
        assert client.expect(Type.PUBREL).packet_id == packet_id
    for _ in range(2):
        client = again(connect, client, name)
        assert [client.next().type for _ in ids] == [Type.PUBREL] * 3
        client.silent(0.05)
    for packet_id in ids:
        client.send(wire.ack(Type.PUBCOMP, packet_id))
    client.alive()
    client = again(connect, client, name)
    client.silent()


@covers(v3="4.4.0-1 4.6.0-1", v5="4.4.0-1 4.6.0-1")
@both_versions
def test_each_flow_resumes_where_it_stood(connect: Connect, name: str, version: int) -> None:
    client = session(connect, name, version, f"{name}/t")
    publisher = connect(version)
    for payload in (b"publish", b"pubrel", b"done"):
        publisher.publish(f"{name}/t", payload, qos=2)
    publish, pubrel, done = client.take(3, answer=False)
    client.send(wire.ack(Type.PUBREC, pubrel.packet_id))
    client.expect(Type.PUBREL, pubrel.packet_id)
    client.answer(done)
    client.alive()
    client = again(connect, client, name)
    got = {(p.type, p.packet_id) for p in (client.next(), client.next())}
    assert got == {(Type.PUBLISH, publish.packet_id), (Type.PUBREL, pubrel.packet_id)}
    client.silent(0.05)


@covers(v5="4.4.0-1")
def test_nothing_is_sent_again_on_the_same_connection(connect: Connect, name: str) -> None:
    """MQTT 5.0 forbids what older servers did after a timeout."""
    client = connect()
    client.subscribe(name, qos=2)
    connect().publish(name, b"1", qos=1)
    connect().publish(name, b"2", qos=2)
    client.take(2, answer=False)
    client.silent(1.0)


@covers(v3="2.3.1-4 4.3.2-1 4.3.3-1", v5="2.2.1-4 4.3.2-1 4.3.3-1")
@both_versions
def test_packet_ids_in_use_are_not_given_again(connect: Connect, name: str, version: int) -> None:
    """While some stay unacknowledged, new messages take other identifiers; the two directions don't share them."""
    client = connect(version)
    client.subscribe(f"{name}/#", qos=2)
    publisher = connect(version)
    held: set[int] = set()
    for i in range(60):
        publisher.publish(f"{name}/t", b"%d" % i, qos=1 + i % 2)
        message = client.expect(Type.PUBLISH)
        assert message.packet_id not in held
        if i % 10:
            client.answer(message)
        else:
            held.add(message.packet_id)
    client.send(wire.publish(f"{name}/own", b"own", version=version, qos=1, packet_id=min(held)))
    client.expect(Type.PUBACK, min(held))


@covers(v3="2.3.1-4", v5="2.2.1-4 4.3.2-1")
def test_packet_ids_in_use_are_passed_over_when_all_have_had_their_turn(connect: Connect, name: str) -> None:
    """One message stays unacknowledged while more than 65,535 others come and go."""
    client, publisher = connect(V311), connect(V311)
    client.subscribe(name, qos=1)
    publisher.publish(name, b"x", qos=1)
    (held,) = client.take(answer=False)
    size, id_at = len(held.raw), 4 + len(name)
    chunk = b"".join(wire.publish(name, b"x", version=V311, qos=1, packet_id=i) for i in range(1, 513))
    for _ in range(130):
        publisher.send(chunk)
        frames = read_exactly(client, 512 * size)
        ids = [frames[at : at + 2] for at in range(id_at, len(frames), size)]
        assert held.raw[id_at : id_at + 2] not in ids
        client.send(*(b"\x40\x02" + packet_id for packet_id in ids))
        read_exactly(publisher, 512 * 4)


@covers(v5="4.4.0-2 4.3.2-3 3.4.2-1")
@pytest.mark.parametrize("reason", [0x10, 0x80, 0x83, 0x87, 0x91, 0x97, 0x99])
def test_puback_with_an_error_acknowledges(connect: Connect, name: str, reason: int) -> None:
    client = session(connect, name, V5, f"{name}/t")
    connect().publish(f"{name}/t", b"x", qos=1)
    (message,) = client.take(answer=False)
    client.send(wire.ack(Type.PUBACK, message.packet_id, reason, [("reason_string", b"no")]))
    client.alive()
    client = again(connect, client, name)
    client.silent()


@covers(v5="4.4.0-2 4.3.3-4 3.5.2-1")
@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x91, 0x97, 0x99])
def test_pubrec_with_an_error_ends_the_flow(connect: Connect, name: str, reason: int) -> None:
    client = session(connect, name, V5, f"{name}/t")
    connect().publish(f"{name}/t", b"x", qos=2)
    (message,) = client.take(answer=False)
    client.send(wire.ack(Type.PUBREC, message.packet_id, reason))
    client.silent(0.05)
    client = again(connect, client, name)
    client.silent()


@covers(v5="3.6.2-1")
def test_pubrec_for_no_message_is_told(connect: Connect) -> None:
    client = connect()
    client.send(wire.ack(Type.PUBREC, 77))
    assert client.expect(Type.PUBREL, 77).reason == 0x92
    client.alive()


@covers(v3="4.8.0-1 4.3.2-1 4.3.3-1", v5="4.13.1-1 4.3.2-3 4.3.3-3 4.3.3-5")
@both_versions
@pytest.mark.parametrize(
    ("qos", "answers"),
    [
        (1, [Type.PUBREC]),
        (1, [Type.PUBCOMP]),
        (2, [Type.PUBACK]),
        (2, [Type.PUBCOMP]),
        (2, [Type.PUBREC, Type.PUBACK]),
    ],
)
def test_acknowledgement_that_does_not_fit_ends_the_connection(
    connect: Connect, name: str, version: int, qos: int, answers: list[Type]
) -> None:
    """It acknowledges nothing either: the exchange goes on where it stood."""
    client = session(connect, name, version, f"{name}/t")
    connect(version).publish(f"{name}/t", b"x", qos=qos)
    (message,) = client.take(answer=False)
    client.send(*[wire.ack(kind, message.packet_id) for kind in answers])
    if len(answers) == 2:
        client.expect(Type.PUBREL, message.packet_id)
    client.refused(0x82)
    client.close()
    resumed = session(connect, name, version)
    assert resumed.connack.session_present
    if len(answers) == 2:
        resumed.expect(Type.PUBREL, message.packet_id)
    else:
        assert seen(resumed.take()) == [(message.packet_id, b"x")]


@covers(v5="4.13.1-1 4.3.2-3 4.3.3-3")
@pytest.mark.parametrize(("qos", "answer"), [(1, Type.PUBREC), (2, Type.PUBACK)])
def test_refusal_that_does_not_fit_ends_the_connection(connect: Connect, name: str, qos: int, answer: Type) -> None:
    client = session(connect, name, V5, f"{name}/t")
    connect().publish(f"{name}/t", b"x", qos=qos)
    (message,) = client.take(answer=False)
    client.send(wire.ack(answer, message.packet_id, 0x80))
    client.refused(0x82)
    client.close()
    assert seen(session(connect, name, V5).take()) == [(message.packet_id, b"x")]


@covers(v5="4.3.3-7 4.4.0-1 4.3.2-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_expiry_is_not_applied_once_sent(connect: Connect, name: str, qos: int) -> None:
    client = session(connect, name, V5, f"{name}/t")
    connect().publish(f"{name}/t", b"x", qos=qos, properties=[("message_expiry", 1)])
    (first,) = client.take(answer=False)
    client.drop()
    time.sleep(1.3)
    client = session(connect, name, V5)
    (second,) = client.take()
    assert (second.packet_id, second.dup) == (first.packet_id, True)


@covers(v3="4.6.0-5 4.6.0-6", v5="4.6.0-5 4.6.0-6")
@both_versions
@each_qos
def test_order_of_one_publisher_is_kept(connect: Connect, name: str, version: int, qos: int) -> None:
    """For a topic, for each subscriber, exact or by wildcard, present or away."""
    away = session(connect, name, version, f"{name}/#")
    away.drop()
    live = [connect(version) for _ in range(2)]
    for subscriber, topic_filter in zip(live, (f"{name}/t", f"{name}/+"), strict=True):
        subscriber.subscribe(topic_filter, qos=2)
    publisher = connect(version)
    expected = [b"%d" % i for i in range(18)]
    packets = [
        wire.publish(f"{name}/t", payload, version=version, qos=qos, packet_id=i + 1 if qos else None)
        for i, payload in enumerate(expected)
    ]
    publisher.send(*packets)
    if qos:
        assert [publisher.next().packet_id for _ in packets] == list(range(1, 19))
    if qos == 2:
        publisher.send(*(wire.ack(Type.PUBREL, i) for i in range(1, 19)))
    for subscriber in live:
        assert subscriber.payloads(18) == expected
    if qos:
        assert session(connect, name, version).payloads(18) == expected


@covers(v3="4.6.0-2 4.6.0-3 4.6.0-4 4.6.0-6", v5="4.6.0-2 4.6.0-3 4.6.0-4")
@both_versions
def test_acknowledgements_keep_the_order_of_what_they_answer(connect: Connect, name: str, version: int) -> None:
    """The rules bind clients; the server answers in the order of arrival too."""
    client = connect(version)
    ids = [5, 3, 9, 1, 7]
    client.send(*(wire.publish(name, version=version, qos=1, packet_id=i) for i in ids))
    assert [client.expect(Type.PUBACK).packet_id for _ in ids] == ids
    client.send(*(wire.publish(name, version=version, qos=2, packet_id=i) for i in ids))
    assert [client.expect(Type.PUBREC).packet_id for _ in ids] == ids
    client.subscribe(name, qos=2)
    for _ in ids:
        connect(version).publish(name, qos=2)
    received = [m.packet_id for m in client.take(5, answer=False)]
    backwards = received[::-1]
    client.send(*(wire.ack(Type.PUBREC, i) for i in backwards))
    assert [client.expect(Type.PUBREL).packet_id for _ in backwards] == backwards


@both_versions
def test_acknowledgements_for_no_message_are_no_error(connect: Connect, version: int) -> None:
    """A late PUBACK or PUBCOMP, as after a new connection, is passed over."""
    client = connect(version)
    client.send(wire.ack(Type.PUBACK, 11), wire.ack(Type.PUBCOMP, 12))
    client.alive()


@covers(v3="4.4.0-1 3.3.1-1")
def test_messages_that_wait_come_after_those_that_come_again(connect: Connect, name: str) -> None:
    client = session(connect, name, V311, f"{name}/t")
    publisher = connect(V311)
    publisher.publish(f"{name}/t", b"sent", qos=1)
    client.take(answer=False)
    client.drop()
    publisher.publish(f"{name}/t", b"waiting", qos=1)
    client = session(connect, name, V311)
    assert [(m.payload, m.dup) for m in client.take(2)] == [(b"sent", True), (b"waiting", False)]
