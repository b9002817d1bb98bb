"""DISCONNECT (3.14) from the client, and how the server uses its own."""

from __future__ import annotations

import pytest

from . import wire
from .conftest import Connect
from .covers import V5, both_versions, covers
from .properties import Properties
from .wire import Type


@covers(v3="3.14.4-1 3.14.4-3", v5="3.14.4-2 3.14.4-3")
@both_versions
def test_server_closes_after_disconnect(connect: Connect, version: int) -> None:
    client = connect(version)
    client.send(wire.DISCONNECT)
    assert client.closed() == []


@covers(v5="3.14.4-3 3.14.2-1")
@pytest.mark.parametrize(
    "raw",
    [
        b"\xe0\x00",
        b"\xe0\x01\x00",
        b"\xe0\x02\x00\x00",
        wire.disconnect(0x04),
        wire.disconnect(0x80, [("reason_string", b"why"), ("user_property", (b"k", b"v"))]),
        wire.disconnect(0x93),
    ],
    ids=["bare", "reason", "no properties", "with will", "error", "receive maximum"],
)
def test_disconnect_in_each_form(connect: Connect, raw: bytes) -> None:
    client = connect()
    client.send(raw)
    assert client.closed() == []


@covers(v5="3.14.4-1 3.14.4-2 3.14.2-1 3.14.2-2 4.13.2-1")
def test_server_sends_nothing_after_its_disconnect(connect: Connect, name: str) -> None:
    """Messages that wait for the client don't follow it; no Session Expiry Interval stands on it (the codec checks)."""
    client = connect(V5, name, expiry=60, clean=False, properties=[("receive_maximum", 1)])
    client.subscribe(f"{name}/t", qos=1)
    publisher = connect()
    for _ in range(5):
        publisher.publish(f"{name}/t", b"x", qos=1)
    client.take(1, answer=False)
    client.send(b"\x00\x00")
    for _ in range(5):
        publisher.publish(f"{name}/t", b"x", qos=1)
    assert [p.type for p in client.closed()] == [Type.DISCONNECT]


@covers(v5="3.14.0-1 3.2.0-1")
@pytest.mark.parametrize("first", [b"\x00\x00", wire.PINGREQ, wire.disconnect(), b"\x10\x03\x00\x04M", wire.publish("a")])
def test_no_disconnect_before_connack(connect: Connect, first: bytes) -> None:
    """Whatever is wrong with the first packet, a DISCONNECT isn't the answer."""
    from .client import Client

    address = connect().stream.getpeername()
    with Client.dial(address) as client:
        client.send(first)
        assert all(packet.type == Type.CONNACK and packet.reason >= 0x80 for packet in client.closed())


@covers(v5="3.14.2-1")
@pytest.mark.parametrize("properties", [[("session_expiry", 0)], [("session_expiry", 0xFFFFFFFF)]], ids=["0", "forever"])
def test_session_expiry_of_disconnect_counts(connect: Connect, name: str, properties: Properties) -> None:
    connect(V5, name, clean=False, expiry=60).disconnect(0, properties)
    assert connect(V5, name, clean=False).connack.session_present == (properties[0][1] != 0)
