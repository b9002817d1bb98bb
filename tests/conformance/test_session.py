"""Sessions (3.1.2.4, 3.1.2.11.2, 4.1): what is kept, for how long, and who takes whose place."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from . import wire
from .client import QUIET_S, Closed, Quiet
from .conftest import Connect, Dial
from .covers import V5, V311, both_versions, covers
from .wire import Type

FOREVER = 0xFFFFFFFF


@covers(v3="3.1.2-4 3.1.2-5 3.1.4-3 3.2.2-2 3.2.0-1 4.1.0-1 4.5.0-1", v5="3.1.2-5 3.1.2-23 3.1.4-4 3.2.2-3 3.2.0-1 4.5.0-1")
@both_versions
def test_session_keeps_subscriptions_and_messages(connect: Connect, name: str, version: int) -> None:
    connect(version, name, clean=False, expiry=60).subscribe(f"{name}/+", qos=2)
    connect(version, name, clean=False, expiry=60).drop()
    publisher = connect(version)
    for qos in (1, 2):
        publisher.publish(f"{name}/{qos}", b"stored", qos=qos)
    client = connect(version, name, clean=False, expiry=60)
    assert client.connack.session_present
    assert [(m.topic, m.qos, m.dup) for m in client.take(2)] == [(f"{name}/1".encode(), 1, False), (f"{name}/2".encode(), 2, False)]
    publisher.publish(f"{name}/3", b"live", qos=1)
    assert client.message().payload == b"live"


@covers(v3="3.1.2-6 3.1.4-3 3.2.2-1 3.2.2-3", v5="3.1.2-4 3.1.4-4 3.2.2-2")
@both_versions
def test_clean_start_discards_the_session(connect: Connect, name: str, version: int) -> None:
    connect(version, name, clean=False, expiry=60).subscribe(name, qos=1)
    connect(version, name, clean=False, expiry=60).drop()
    publisher = connect(version)
    publisher.publish(name, b"old", qos=1)
    fresh = connect(version, name, clean=True)
    assert not fresh.connack.session_present
    publisher.publish(name, b"not subscribed", qos=1)
    fresh.silent()
    fresh.drop()
    after = connect(version, name, clean=False, expiry=60)
    assert not after.connack.session_present
    after.silent()


@covers(v3="3.1.2-4 3.2.2-3", v5="3.1.2-6 3.2.2-3")
@both_versions
def test_unknown_client_gets_a_new_session(connect: Connect, name: str, version: int) -> None:
    client = connect(version, name, clean=False, expiry=60)
    assert not client.connack.session_present
    client.drop()
    assert connect(version, name, clean=False, expiry=60).connack.session_present


@covers(v3="3.1.2-6")
def test_state_of_a_clean_session_ends_with_its_connection(connect: Connect, name: str) -> None:
    client = connect(V311, name, clean=True)
    client.subscribe(name, qos=1)
    client.drop()
    connect(V311).publish(name, b"x", qos=1)
    client = connect(V311, name, clean=False)
    assert not client.connack.session_present
    client.silent()


@covers(v3="3.1.3-2 3.1.2-4", v5="3.1.3-2 3.1.2-5")
@both_versions
def test_client_id_alone_names_the_session(connect: Connect, name: str, version: int) -> None:
    for client_id in (name, name.upper(), name + " "):
        connect(version, client_id, clean=False, expiry=60).subscribe(f"{name}/{len(client_id)}/{client_id[0]}", qos=1)
    for client_id in (name, name.upper(), name + " "):
        client = connect(version, client_id, clean=False, expiry=60)
        assert client.connack.session_present
        connect(version).publish(f"{name}/{len(client_id)}/{client_id[0]}", client_id.encode(), qos=1)
        assert client.message().payload == client_id.encode()
        client.silent(0.03)


@covers(v3="3.1.4-2 4.1.0-1", v5="3.1.4-3 4.13.2-1 3.14.2-1 4.1.0-1")
@both_versions
def test_takeover_closes_the_earlier_connection(connect: Connect, name: str, version: int) -> None:
    earlier = connect(version, name, clean=False, expiry=60)
    earlier.subscribe(name, qos=1)
    later = connect(version, name, clean=False, expiry=60)
    assert later.connack.session_present
    earlier.refused(0x8E)
    later.publish(name, b"x", qos=1)
    assert later.message().payload == b"x"


@covers(v3="3.1.4-2 3.2.2-1", v5="3.1.4-3 3.2.2-2 3.1.2-4")
@both_versions
def test_takeover_with_a_clean_start_begins_anew(connect: Connect, name: str, version: int) -> None:
    earlier = connect(version, name, clean=False, expiry=60)
    earlier.subscribe(name, qos=1)
    later = connect(version, name, clean=True)
    assert not later.connack.session_present
    earlier.refused(0x8E)
    later.publish(name, b"x", qos=1)
    later.silent()


@covers(v3="3.1.4-2", v5="3.1.4-3")
@both_versions
def test_takeover_again_and_again(connect: Connect, name: str, version: int) -> None:
    clients = [connect(version, name, clean=False, expiry=60) for _ in range(10)]
    for client in clients[:-1]:
        client.refused(0x8E)
    clients[-1].alive()


@covers(v3="3.1.4-2 3.1.3-2", v5="3.1.4-3 3.1.3-2")
@both_versions
@pytest.mark.parametrize("clean", [True, False])
def test_many_connects_of_one_client_at_once_leave_one(dial: Dial, name: str, version: int, clean: bool) -> None:
    clients = [dial(version) for _ in range(20)]
    for client in clients:
        client.send(wire.connect(name, version, clean=clean))
    alive = []
    for client in clients:
        with suppress(Closed):
            assert client.expect(Type.CONNACK).reason == 0
            client.send(wire.PINGREQ)
            alive.append(client)
    time.sleep(QUIET_S)
    closed = 0
    for client in alive:
        try:
            while client.read(QUIET_S).type != Type.DISCONNECT:
                continue
            closed += 1
        except Closed:
            closed += 1
        except Quiet:
            continue
    assert len(alive) - closed == 1


@covers(v5="3.1.2-23 4.1.0-2 4.1.0-1")
def test_session_expiry(connect: Connect, name: str) -> None:
    """One second for all: sessions that end, that last, and one whose time runs only from the close."""
    cases = {"absent": None, "zero": 0, "second": 1, "minute": 60, "forever": FOREVER}
    for case, expiry in cases.items():
        connect(V5, f"{name}-{case}", clean=False, expiry=expiry).drop()
    shortened = connect(V5, f"{name}-shortened", clean=False, expiry=60)
    shortened.disconnect(0, [("session_expiry", 1)])
    lengthened = connect(V5, f"{name}-lengthened", clean=False, expiry=1)
    lengthened.disconnect(0, [("session_expiry", 60)])
    again = connect(V5, f"{name}-reconnected", clean=False, expiry=1)
    again.drop()
    connect(V5, f"{name}-reconnected", clean=False, expiry=60).drop()
    connected = connect(V5, f"{name}-connected", clean=False, expiry=1)
    assert not connect(V5, f"{name}-zero", clean=False).connack.session_present

    time.sleep(2.1)
    connected.alive()
    connected.drop()
    present = {
        case: connect(V5, f"{name}-{case}", clean=False).connack.session_present
        for case in (*cases, "shortened", "lengthened", "reconnected", "connected")
    }
    assert present == {
        "absent": False,
        "zero": False,
        "second": False,
        "minute": True,
        "forever": True,
        "shortened": False,
        "lengthened": True,
        "reconnected": True,
        "connected": True,
    }


@covers(v5="4.13.1-1 3.14.2-1")
def test_session_expiry_cannot_grow_from_zero_at_the_end(connect: Connect, name: str) -> None:
    """Section 3.14.2.2.2: a Session Expiry Interval other than zero after zero in CONNECT is a Protocol Error."""
    client = connect(V5, name)
    client.send(wire.disconnect(0, [("session_expiry", 5)]))
    client.refused(0x82)


@covers(v5="3.1.2-4 3.2.2-2 3.2.2-3")
def test_clean_start_says_nothing_of_the_sessions_end(connect: Connect, name: str) -> None:
    client = connect(V5, name, clean=True, expiry=60)
    client.subscribe(name, qos=1)
    client.drop()
    connect().publish(name, b"kept", qos=1)
    client = connect(V5, name, clean=False)
    assert client.connack.session_present
    assert client.message().payload == b"kept"


@covers(v3="3.1.2-5", v5="4.5.0-1")
@both_versions
def test_every_offline_session_gets_its_copy(connect: Connect, name: str, version: int) -> None:
    for i in range(5):
        client = connect(version, f"{name}-s{i}", clean=False, expiry=60)
        client.subscribe(f"{name}/#" if i % 2 else f"{name}/a", qos=1)
        client.drop()
    publisher = connect(version)
    for i in range(10):
        publisher.publish(f"{name}/a", b"%d" % i, qos=1)
    for i in range(5):
        client = connect(version, f"{name}-s{i}", clean=False, expiry=60)
        assert client.payloads(10) == [b"%d" % k for k in range(10)]


@covers(v3="3.3.1-5", v5="3.3.1-5")
@both_versions
def test_retained_messages_outlive_the_session(connect: Connect, name: str, version: int) -> None:
    """MQTT-3.1.2.7 as the text of 3.1.1 spells it: retained messages are no part of the Session state."""
    client = connect(version, name)
    client.publish(name, b"stays", qos=1, retain=True)
    client.drop()
    reader = connect(version)
    reader.subscribe(name)
    assert reader.message().payload == b"stays"


@covers(v3="3.1.4-3")
@pytest.mark.parametrize("version", [3, V311])
def test_old_versions_share_the_rules_of_sessions(connect: Connect, name: str, version: int) -> None:
    connect(version, name, clean=False).subscribe(name, qos=1)
    connect(version, name, clean=False).drop()
    connect(version).publish(name, b"x", qos=1)
    client = connect(version, name, clean=False)
    assert client.expect(Type.PUBLISH).payload == b"x"
