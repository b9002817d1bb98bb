"""Shared subscriptions (4.8.2)."""

from __future__ import annotations

import pytest

from . import wire
from .client import Client, Quiet
from .conftest import Connect
from .covers import V5, both_versions, covers, each_qos
from .wire import Packet, Type


def collect(clients: list[Client], number: int, *, answer: bool = True) -> list[list[Packet]]:
    """What each client gets, until they have the number of messages together."""
    got: list[list[Packet]] = [[] for _ in clients]
    for _ in range(1000):
        for mine, client in zip(got, clients, strict=True):
            try:
                mine += client.take(1, answer=answer, timeout=0.01)
            except Quiet:
                continue
        if sum(map(len, got)) >= number:
            return got
    raise AssertionError(f"{sum(map(len, got))} messages, not {number}")


@covers(v5="4.8.2-1 4.8.2-2 4.8.2-3")
@each_qos
def test_each_message_goes_to_one_member(connect: Connect, name: str, qos: int) -> None:
    """Each group gets every message once, and so does a subscription of one's own."""
    groups = {group: [connect() for _ in range(3)] for group in ("g", "h")}
    for group, members in groups.items():
        for member in members:
            assert member.subscribe(f"$share/{group}/{name}/+", qos=qos).reasons == (qos,)
    alone = connect()
    alone.subscribe(f"{name}/a", qos=2)
    publisher = connect()
    expected = [b"%d" % i for i in range(30)]
    for payload in expected:
        publisher.publish(f"{name}/a", payload, qos=qos)
    for members in groups.values():
        got = collect(members, 30)
        assert sorted(int(m.payload) for mine in got for m in mine) == list(range(30))
        assert {m.qos for mine in got for m in mine} == {qos}
        assert sum(1 for mine in got if mine) > 1, "spread over members"
    assert alone.payloads(30) == expected


@covers(v5="4.8.2-3")
@each_qos
def test_members_take_turns_in_the_order_they_joined(connect: Connect, name: str, qos: int) -> None:
    """The server is free to choose; here nobody is left out, and who joined first begins."""
    members = [connect() for _ in range(3)]
    for member in members:
        member.subscribe(f"$share/g/{name}", qos=qos)
    publisher = connect()
    for turn in range(2):
        for index, member in enumerate(members):
            publisher.publish(name, payload := b"%d %d" % (turn, index), qos=qos)
            assert member.message().payload == payload


@covers(v5="4.8.2-3")
def test_granted_qos_of_the_member_is_respected(connect: Connect, name: str) -> None:
    members = [connect() for _ in range(3)]
    for qos, member in enumerate(members):
        member.subscribe(f"$share/g/{name}", qos=qos)
    publisher = connect()
    for i in range(24):
        publisher.publish(name, b"%d" % i, qos=2)
    got = collect(members, 24)
    for qos, mine in enumerate(got):
        assert {m.qos for m in mine} <= {qos}


@covers(v5="4.8.2-4")
def test_qos_2_delivery_is_completed_to_the_same_member(connect: Connect, name: str) -> None:
    first, other = connect(V5, f"{name}-first", clean=False, expiry=60), connect(V5, f"{name}-other", clean=False, expiry=60)
    first.subscribe(f"$share/g/{name}", qos=2)
    connect().publish(name, b"x", qos=2)
    (message,) = first.take(answer=False)
    other.subscribe(f"$share/g/{name}", qos=2)
    first.drop()
    other.silent()
    first = connect(V5, f"{name}-first", clean=False, expiry=60)
    (again,) = first.take()
    assert (again.packet_id, again.dup, again.payload) == (message.packet_id, True, b"x")
    other.silent(0.05)


@covers(v5="4.8.2-5")
def test_qos_2_delivery_ends_with_its_session(connect: Connect, name: str) -> None:
    first, other = connect(V5, f"{name}-first", expiry=0), connect()
    first.subscribe(f"$share/g/{name}", qos=2)
    connect().publish(name, b"x", qos=2)
    first.take(answer=False)
    other.subscribe(f"$share/g/{name}", qos=2)
    first.drop()
    other.silent(0.3)


@covers(v5="4.8.2-6 4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_refused_message_goes_to_no_other_member(connect: Connect, name: str, qos: int) -> None:
    first, other = connect(V5, name, clean=False, expiry=60), connect()
    first.subscribe(f"$share/g/{name}/t", qos=qos)
    connect().publish(f"{name}/t", b"x", qos=qos)
    (message,) = first.take(answer=False)
    other.subscribe(f"$share/g/{name}/t", qos=qos)
    first.send(wire.ack(Type.PUBACK if qos == 1 else Type.PUBREC, message.packet_id, 0x80))
    first.alive()
    first.drop()
    other.silent(0.3)
    connect(V5, name, clean=False, expiry=60).silent()


@covers(v5="4.8.2-4")
def test_qos_1_message_of_a_lost_member_reaches_somebody(connect: Connect, name: str) -> None:
    """The server may send it to another member or keep it for this one: it isn't lost."""
    first = connect(V5, f"{name}-first", clean=False, expiry=60)
    first.subscribe(f"$share/g/{name}", qos=1)
    connect().publish(name, b"x", qos=1)
    first.take(answer=False)
    other = connect()
    other.subscribe(f"$share/g/{name}", qos=1)
    first.drop()
    back = connect(V5, f"{name}-first", clean=False, expiry=60)
    got = collect([other, back], 1)
    assert [m.payload for mine in got for m in mine] == [b"x"]


@covers(v5="4.8.2-1 3.10.4-1 3.11.3-2")
def test_leaving_a_group(connect: Connect, name: str) -> None:
    stays, leaves = connect(), connect()
    for member in (stays, leaves):
        member.subscribe(f"$share/g/{name}", qos=1)
    assert leaves.unsubscribe(name, f"$share/h/{name}", f"$share/g/{name}").reasons == (0x11, 0x11, 0x00)
    publisher = connect()
    for i in range(10):
        publisher.publish(name, b"%d" % i, qos=1)
    assert stays.payloads(10) == [b"%d" % i for i in range(10)]
    leaves.silent(0.05)


@covers(v5="4.8.2-1")
def test_no_retained_message_for_a_shared_subscription(connect: Connect, name: str) -> None:
    """Section 4.8.2: a shared subscription gets none at SUBSCRIBE."""
    connect().publish(name, b"retained", qos=1, retain=True)
    client = connect()
    client.subscribe(f"$share/g/{name}", qos=1)
    client.silent()


@covers(v5="4.8.2-3 3.3.4-3")
def test_shared_and_own_subscription_are_apart(connect: Connect, name: str) -> None:
    """A client with both gets the message for each, the shared one with its own identifier."""
    client = connect()
    client.subscribe(name, qos=1, properties=[("subscription_identifier", 1)])
    client.subscribe(f"$share/g/{name}", qos=1, properties=[("subscription_identifier", 2)])
    connect().publish(name, b"x", qos=1)
    assert sorted(m.number("subscription_identifier") for m in client.take(2)) == [1, 2]
    client.silent(0.05)


@covers(v5="4.8.2-1")
@both_versions
def test_group_waits_for_its_only_member(connect: Connect, name: str, version: int) -> None:
    client = connect(version, name, clean=False, expiry=60)
    client.subscribe(f"$share/g/{name}/t", qos=1)
    client.drop()
    publisher = connect(version)
    for i in range(3):
        publisher.publish(f"{name}/t", b"%d" % i, qos=1)
    client = connect(version, name, clean=False, expiry=60)
    assert sorted(client.payloads(3)) == [b"0", b"1", b"2"]


@covers(v5="4.8.2-2")
@pytest.mark.parametrize("group", ["g", "ä b", "$", "x" * 100])
def test_share_names(connect: Connect, name: str, group: str) -> None:
    client = connect()
    assert client.subscribe(f"$share/{group}/{name}/+/#", qos=1).reasons == (1,)
    client.publish(f"{name}/a", b"x", qos=1)
    assert client.message().payload == b"x"
