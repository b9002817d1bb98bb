"""Receive Maximum (3.3.4, 4.9) and Maximum Packet Size (3.1.2.11.4, 3.2.2.3.6), both ways."""

from __future__ import annotations

import pytest

from . import wire
from .conftest import Connect
from .covers import V5, covers, each_qos
from .wire import Type


@covers(v5="3.3.4-9 4.9.0-1 4.9.0-2")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("maximum", [1, 3])
def test_server_stays_within_the_clients_receive_maximum(connect: Connect, name: str, qos: int, maximum: int) -> None:
    client = connect(properties=[("receive_maximum", maximum)])
    client.subscribe(name, qos=2)
    publisher = connect()
    for i in range(maximum + 4):
        publisher.publish(name, b"%d" % i, qos=qos)
    held = client.take(maximum, answer=False)
    client.silent()
    for i in range(4):
        client.answer(held.pop(0))
        held += client.take(answer=False)
        assert held[-1].payload == b"%d" % (maximum + i)
        client.silent(0.03)


@covers(v5="3.3.4-9 4.9.0-2")
def test_qos_2_holds_its_place_until_pubcomp(connect: Connect, name: str) -> None:
    client = connect(properties=[("receive_maximum", 1)])
    client.subscribe(name, qos=2)
    publisher = connect()
    for payload in (b"1", b"2", b"3"):
        publisher.publish(name, payload, qos=2)
    (first,) = client.take(answer=False)
    client.send(wire.ack(Type.PUBREC, first.packet_id))
    client.expect(Type.PUBREL, first.packet_id)
    client.silent()
    client.send(wire.ack(Type.PUBCOMP, first.packet_id))
    (second,) = client.take(answer=False)
    client.send(wire.ack(Type.PUBREC, second.packet_id, 0x80))
    assert client.message().payload == b"3"


@covers(v5="3.3.4-9 4.9.0-1 4.4.0-1")
def test_receive_maximum_holds_for_a_resumed_session(connect: Connect, name: str) -> None:
    client = connect(V5, name, clean=False, expiry=60)
    client.subscribe(f"{name}/t", qos=1)
    publisher = connect()
    for i in range(4):
        publisher.publish(f"{name}/t", b"%d" % i, qos=1)
    first = client.take(4, answer=False)
    client.drop()
    client = connect(V5, name, clean=False, expiry=60, properties=[("receive_maximum", 2)])
    assert [m.packet_id for m in client.take(2, answer=False)] == [m.packet_id for m in first[:2]]
    client.silent()
    for message in first[:2]:
        client.answer(message)
    assert [m.packet_id for m in client.take(2)] == [m.packet_id for m in first[2:]]


@covers(v5="3.3.4-9 4.9.0-2 4.8.2-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_shared_subscriptions_share_the_window(connect: Connect, name: str, qos: int) -> None:
    client = connect(properties=[("receive_maximum", 1)])
    client.subscribe(f"$share/g/{name}", qos=2)
    publisher = connect()
    for i in range(4):
        publisher.publish(name, b"%d" % i, qos=qos)
    for i in range(4):
        (message,) = client.take(answer=False)
        assert message.payload == b"%d" % i
        client.silent(0.03)
        client.answer(message)


@covers(v5="3.3.4-10 4.9.0-3")
def test_other_packets_pass_a_full_window(connect: Connect, name: str) -> None:
    client = connect(properties=[("receive_maximum", 1)])
    client.subscribe(name, qos=1)
    publisher = connect()
    for payload in (b"1", b"2"):
        publisher.publish(name, payload, qos=1)
    (held,) = client.take(answer=False)
    client.alive()
    assert client.subscribe(f"{name}/other", qos=1).reasons == (1,)
    assert client.unsubscribe(f"{name}/other").reasons == (0,)
    assert client.publish(f"{name}/own", qos=1) in (0, 0x10)
    assert client.publish(f"{name}/own", qos=2) in (0, 0x10)
    client.answer(held)
    assert client.message().payload == b"2"


@covers(v5="3.3.4-7 4.13.1-1 4.9.0-2")
def test_more_than_the_servers_receive_maximum_ends_the_connection(connect: Connect, name: str) -> None:
    client = connect()
    maximum = client.connack.number("receive_maximum", 65535)
    client.send(*(wire.publish(name, qos=2, packet_id=i) for i in range(1, maximum + 1)))
    for i in range(1, maximum + 1):
        client.expect(Type.PUBREC, i)
    client.alive()
    client.send(wire.publish(name, qos=2, packet_id=maximum + 1))
    client.refused(0x93)


@covers(v5="4.9.0-3")
def test_server_answers_others_while_its_receive_maximum_is_used_up(connect: Connect, name: str) -> None:
    client = connect()
    maximum = client.connack.number("receive_maximum", 65535)
    client.send(*(wire.publish(name, qos=2, packet_id=i) for i in range(1, maximum + 1)))
    client.alive()
    client.subscribe(f"{name}/other")
    client.publish(f"{name}/other", b"qos 0 is not counted")
    assert client.message().payload == b"qos 0 is not counted"


@covers(v5="3.1.2-24 3.1.2-25")
@each_qos
def test_server_stays_within_the_clients_packet_size(connect: Connect, name: str, qos: int) -> None:
    """What is too large is passed over as if it had been delivered: it takes no place in the window, and never comes later."""
    client = connect(V5, name, clean=False, expiry=60, properties=[("maximum_packet_size", 100), ("receive_maximum", 1)])
    client.subscribe(f"{name}/t", qos=2)
    publisher = connect()
    for payload in (b"1", b"x" * 200, b"2", b"x" * 100, b"3"):
        publisher.publish(f"{name}/t", payload, qos=qos)
    assert client.payloads(3) == [b"1", b"2", b"3"]
    client.drop()
    client = connect(V5, name, clean=False, expiry=60)
    client.silent()


@covers(v5="3.1.2-24 3.1.2-25")
@pytest.mark.parametrize("qos", [1, 2])
def test_packet_size_counts_the_whole_packet(connect: Connect, name: str, qos: int) -> None:
    """One byte more than fits is too much."""
    client = connect(properties=[("maximum_packet_size", 100)])
    client.subscribe(name, qos=2)
    room = 100 - len(wire.publish(name, qos=qos, packet_id=1))
    publisher = connect()
    for size in (room, room + 1, room - 1):
        publisher.publish(name, b"x" * size, qos=qos)
    assert [len(m.raw) for m in client.take(2)] == [100, 99]


@covers(v5="3.2.2-15 4.13.1-1")
def test_packet_larger_than_the_server_takes_ends_the_connection(connect: Connect, name: str) -> None:
    """The claim in the fixed header is enough."""
    client = connect()
    maximum = client.connack.number("maximum_packet_size", 268435455)
    size = maximum - 10
    client.publish(name, b"x" * (size - len(name) - 10), qos=0)
    whole = wire.publish(name, b"x" * maximum)
    client.send(whole[:200])
    client.refused(0x95)


def error_packets(connect: Connect, name: str, size: int, *more: tuple[str, int]) -> list[wire.Packet]:
    """Makes the server send each kind of answer, errors as well, to a client with these properties."""
    client = connect(properties=[("maximum_packet_size", size), *more])
    client.send(
        wire.publish("$SYS/x", qos=1, packet_id=1),
        wire.publish("$SYS/x", qos=2, packet_id=2),
        wire.ack(Type.PUBREC, 3),
        wire.ack(Type.PUBREL, 4),
        wire.subscribe(5, [("$SYS/nothing", 0)]),
        wire.unsubscribe(6, ["never/subscribed"]),
        wire.PINGREQ,
        wire.connect("second"),
    )
    return client.closed()


@covers(
    v5="3.4.2-2 3.4.2-3 3.5.2-2 3.5.2-3 3.6.2-2 3.6.2-3 3.7.2-2 3.7.2-3 3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2 3.14.2-3 3.14.2-4 3.1.2-24"
)
def test_texts_that_do_not_fit_stay_away(connect: Connect, name: str) -> None:
    """The smallest size that lets the CONNACK through: each answer keeps to it, and each is still sent."""
    size = len(connect().connack.raw)
    packets = error_packets(connect, name, size)
    assert all(len(packet.raw) <= size for packet in packets)
    kinds = [packet.type for packet in packets]
    assert set(kinds) >= {Type.PUBACK, Type.PUBREC, Type.PUBREL, Type.PUBCOMP, Type.SUBACK, Type.UNSUBACK, Type.DISCONNECT}


@covers(v5="3.1.2-29")
def test_no_problem_information_where_it_is_declined(connect: Connect, name: str) -> None:
    for packet in error_packets(connect, name, 1000, ("request_problem_information", 0)):
        if packet.type != Type.DISCONNECT:
            assert not packet.every("reason_string") and not packet.every("user_property")
