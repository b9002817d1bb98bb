"""MQTT over WebSocket (section 6 of both versions)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from . import wire
from .covers import V5, V311, both_versions, covers
from .servers import Server
from .websocket import CONTINUATION, PING, TEXT, WebSocketClient, frame
from .wire import Type, Will


class Open(Protocol):
    """Opens a WebSocket to the server."""

    def __call__(self, version: int = 5, *, path: str = "/mqtt", protocols: str | None = "mqtt") -> WebSocketClient: ...


@pytest.fixture
def open_socket(broker: Server) -> Iterator[Open]:
    opened = []

    def open_one(version: int = 5, *, path: str = "/mqtt", protocols: str | None = "mqtt") -> WebSocketClient:
        opened.append(WebSocketClient.open(broker.websocket, version, path=path, protocols=protocols))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


def connected(open_socket: Open, name: str, version: int = 5) -> WebSocketClient:
    client = open_socket(version)
    assert client.connect(name).reason == 0
    return client


@covers(v3="6.0.0-4", v5="6.0.0-4")
@pytest.mark.parametrize("protocols", ["mqtt", "mqtt, mqttv3.1", "chat, mqtt", "v12.stomp,mqtt"])
def test_server_chooses_mqtt(open_socket: Open, name: str, protocols: str) -> None:
    client = open_socket(protocols=protocols)
    assert client.upgraded, client.response
    assert client.header("Sec-WebSocket-Protocol") == "mqtt"
    assert client.connect(name).reason == 0


@covers(v3="6.0.0-4", v5="6.0.0-4")
@pytest.mark.parametrize("protocols", [None, "chat", "mqttx"])
def test_server_names_no_protocol_that_was_not_offered(open_socket: Open, protocols: str | None) -> None:
    """It may refuse the upgrade; it never answers with another name."""
    client = open_socket(protocols=protocols)
    assert not client.upgraded or client.header("Sec-WebSocket-Protocol") in (None, "mqtt")


@covers(v3="6.0.0-1", v5="6.0.0-1")
@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_packets_travel_in_binary_frames(open_socket: Open, name: str, version: int, qos: int) -> None:
    """The client's reader fails on any other frame from the server."""
    client = connected(open_socket, name, version)
    client.subscribe(name, qos=2)
    for size in (0, 10, 125, 126, 65535, 70000):
        client.publish(name, b"x" * size, qos=qos)
        assert client.message().payload == b"x" * size


@covers(v3="6.0.0-1", v5="6.0.0-1")
@both_versions
def test_text_frame_ends_the_connection(open_socket: Open, name: str, version: int) -> None:
    client = connected(open_socket, name, version)
    client.send_raw(frame(wire.PINGREQ.replace(b"\xc0", b"\x30"), TEXT))
    assert all(packet.type == Type.DISCONNECT for packet in client.closed())


@covers(v3="6.0.0-1", v5="6.0.0-1")
def test_connect_in_a_text_frame_is_refused(open_socket: Open, name: str) -> None:
    client = open_socket()
    client.send_raw(frame(wire.connect(name), TEXT))
    assert client.closed() == []


@covers(v3="6.0.0-2", v5="6.0.0-2")
@both_versions
def test_packets_need_no_alignment_with_frames(open_socket: Open, name: str, version: int) -> None:
    """One frame for each byte, one for everything, fragments, and frames that begin in the middle of a packet."""
    stream = wire.connect(name, version) + wire.subscribe(1, [(name, 1)], version=version)
    stream += wire.publish(name, b"x" * 200, version=version, qos=1, packet_id=2) + wire.PINGREQ
    cuts = {
        "bytes": b"".join(frame(stream[i : i + 1]) for i in range(len(stream))),
        "one": frame(stream),
        "halves": frame(stream[:30]) + frame(stream[30:61]) + frame(stream[61:]),
        "fragments": frame(stream[:20], final=False) + frame(stream[20:40], CONTINUATION, final=False) + frame(stream[40:], CONTINUATION),
        "ping between": frame(stream[:25], final=False) + frame(b"p", PING) + frame(stream[25:], CONTINUATION),
        "empty frames": frame(b"") + frame(stream[:15]) + frame(b"") + frame(stream[15:]),
    }
    for case, frames in cuts.items():
        client = open_socket(version)
        client.send_raw(frames)
        assert client.next().type == Type.CONNACK, case
        client.expect(Type.SUBACK, 1)
        client.expect(Type.PUBACK, 2)
        client.expect(Type.PINGRESP)
        assert client.message().payload == b"x" * 200
        client.close()


@covers(v3="6.0.0-2", v5="6.0.0-2")
def test_frames_cut_at_every_byte(open_socket: Open, name: str) -> None:
    """Neither are frames aligned with what one read of the socket brings."""
    client = connected(open_socket, name)
    whole = frame(wire.PINGREQ + wire.publish(name, b"y" * 130, qos=1, packet_id=1))
    for at in range(1, len(whole), 7):
        client.send_raw(whole[:at])
        client.send_raw(whole[at:])
        client.expect(Type.PINGRESP)
        client.expect(Type.PUBACK, 1)


@covers(v3="6.0.0-1")
def test_unmasked_frame_ends_the_connection(open_socket: Open, name: str) -> None:
    """RFC 6455, 5.1: a server closes on a frame that isn't masked."""
    client = connected(open_socket, name, V311)
    client.send_raw(frame(wire.PINGREQ, masked=False))
    assert client.closed() == []


def test_ping_frames_are_answered(open_socket: Open, name: str) -> None:
    client = connected(open_socket, name)
    client.send_raw(frame(b"are you there", PING))
    client.alive()
    assert client.pongs == [b"are you there"]


@covers(v3="3.1.2-8", v5="3.1.2-8")
@both_versions
def test_will_after_the_socket_is_gone(open_socket: Open, name: str, version: int) -> None:
    watcher = connected(open_socket, name, version)
    watcher.subscribe(f"{name}/will")
    client = open_socket(version)
    client.connect(f"{name}-w", will=Will(f"{name}/will"))
    client.close()
    assert watcher.message().payload == b"gone"


@covers(v5="3.1.4-3 6.0.0-1")
def test_takeover_over_another_transport(open_socket: Open, broker: Server, name: str) -> None:
    from .client import Client

    earlier = connected(open_socket, name, V5)
    with Client.dial(broker.mqtt) as later:
        later.connect(name)
        earlier.refused(0x8E)
        later.alive()
