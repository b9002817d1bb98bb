"""WebSocket: with the websockets client over sockets, and the layer by itself."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mqtt_proxy.net.layers import LayerEnded
from mqtt_proxy.net.listen_url import ListenerOptions
from mqtt_proxy.net.unmask import unmask
from mqtt_proxy.net.websocket import WebSocketLayer
from tests.mqtt_proxy.net.certificates import Authority
from tests.mqtt_proxy.net.echo import Served, frame, links, until
from tests.mqtt_proxy.net.test_tls import client_context

pytestmark = pytest.mark.hot

MASK = b"\x12\x34\x56\x78"
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def masked(opcode: int, payload: bytes, final: bool = True, length: bytes | None = None) -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    if length is None:
        length = bytes([size]) if size < 126 else b"\x7e" + (size & 0xFFFF).to_bytes(2, "big")
        if size >= 65_536:
            length = b"\x7f" + size.to_bytes(8, "big")
    head = bytes([0x80 * final | opcode, length[0] | 0x80]) + length[1:]
    return head + MASK + bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))


def opened(**options: Any) -> WebSocketLayer:
    layer = WebSocketLayer(ListenerOptions("ws", path="/mqtt", **options))
    assert layer.receive(None, REQUEST) == b""  # type: ignore[arg-type]
    layer.answers.clear()
    return layer


def fed(layer: WebSocketLayer, data: bytes) -> bytes:
    return layer.receive(None, data)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/mqtt", "/", "/mqtt?token=1"])
def test_client_of_another_project(run: Any, path: str) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("ws://127.0.0.1:0").port
        async with connect(f"ws://127.0.0.1:{port}{path}", subprotocols=["mqtt"], max_size=None) as client:  # type: ignore[list-item]
            assert client.subprotocol == "mqtt"
            for size in (0, 5, 200, 70_000, 1_500_000):
                data = frame(os.urandom(size))
                await client.send([data[:1], data[1:3], data[3:]])
                got = b""
                while len(got) < len(data):
                    got += await client.recv()
                assert got == data
            await (await client.ping(b"there?"))
        await until(lambda: links[0].lost_reasons == ["closed by peer"])

    run(scenario)


def test_over_tls(run: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", "localhost")

    async def scenario(served: Served) -> None:
        port = served.listen("wss://127.0.0.1:0", cert=cert, key=key).port
        async with connect(
            f"wss://localhost:{port}/mqtt",
            host="127.0.0.1",
            subprotocols=["mqtt"],  # type: ignore[list-item]
            ssl=client_context(authority),
            max_size=None,
        ) as client:
            for size in (3, 300_000):
                data = frame(os.urandom(size))
                await client.send(data)
                got = b""
                while len(got) < len(data):
                    got += await client.recv()
                assert got == data
            links[0].close("stopping")
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000

    run(scenario)


def test_text_is_refused(run: Any) -> None:
    """Text frames end the connection [MQTT-6.0.0-1]."""

    async def scenario(served: Served) -> None:
        port = served.listen("ws://127.0.0.1:0").port
        async with connect(f"ws://127.0.0.1:{port}/mqtt", subprotocols=["mqtt"]) as client:  # type: ignore[list-item]
            await client.send("text")
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1003

    run(scenario)


def test_wrong_path_and_subprotocol(run: Any) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("ws://127.0.0.1:0/iot").port
        for path, protocols, status in (("/mqtt", ["mqtt"], 404), ("/iot", ["chat"], 400), ("/iot", None, 400)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{port}{path}", subprotocols=protocols)  # type: ignore[arg-type]
            assert refused.value.response.status_code == status

    run(scenario)


def test_plain_get_is_told_what_this_is(run: Any) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("ws://127.0.0.1:0").port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
        assert b"MQTT client" in answer
        writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ((b"GET", b"POST"), b"405"),
        ((b"HTTP/1.1", b"HTTP/1.0"), b"505"),
        ((b"Version: 13", b"Version: 8"), b"426"),
        ((b"dGhlIHNhbXBsZSBub25jZQ==", b"short"), b"400"),
        ((b"Host:", b"Host :"), b"400"),
        ((b"Host: localhost", b"Host"), b"400"),
        ((b"GET /mqtt", b"GET  /mqtt"), b"400"),
        ((b"GET /mqtt", b"\x10\x0c"), b"400"),
        ((b"Host: localhost", b"Host: " + b"x" * 9000), b"431"),
        ((b"Host: localhost", b"Origin: https://elsewhere.org"), b"403"),
    ],
)
def test_requests_that_open_nothing(change: tuple[bytes, bytes], status: bytes) -> None:
    layer = WebSocketLayer(ListenerOptions("ws", path="/mqtt", ws_origins="https://example.org"))
    with pytest.raises(LayerEnded):
        fed(layer, REQUEST.replace(*change))
    assert layer.answers.startswith(b"HTTP/1.1 " + status)


def test_answer_of_the_rfc() -> None:
    layer = WebSocketLayer(ListenerOptions("ws", path="/mqtt"))
    fed(layer, REQUEST)
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in layer.answers
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in layer.answers


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x01x", 1002),  # no mask
        (masked(2 | 0x40, b"x"), 1002),
        (masked(3, b"x"), 1002),
        (masked(11, b"x"), 1002),
        (masked(0, b"x"), 1002),  # continues nothing
        (masked(2, b"x", final=False) + masked(2, b"y"), 1002),
        (masked(9, b"", final=False), 1002),
        (masked(9, bytes(126)), 1002),
        (masked(2, b"x", length=b"\x7e\0\x01"), 1002),
        (masked(2, b"x", length=b"\x7f" + bytes(7) + b"\x01"), 1002),
        (masked(2, b"", length=b"\x7f" + b"\xff" * 8), 1002),
        (masked(2, b"", length=b"\x7f" + (2**40).to_bytes(8, "big")), 1009),
        (masked(1, b"text"), 1003),
        (masked(8, b"x"), 1002),
        (masked(8, b"\x03\xed"), 1002),  # 1005 is not for the wire
        (masked(8, b"\x03\xe8\xff"), 1007),
        (masked(8, b"\x03\xe9bye"), 1001),
        (masked(8, b""), 0),
    ],
)
def test_frames_that_end_it(data: bytes, code: int) -> None:
    for size in (1, len(data)):
        layer = opened()
        before = masked(2, b"counts")
        got = b""
        with pytest.raises(LayerEnded) as ended:  # noqa: PT012
            for at in range(0, len(before + data), size):
                got += fed(layer, (before + data)[at : at + size])
        assert (got + ended.value.data).startswith(b"counts")
        assert layer.answers[0] == 0x88
        assert int.from_bytes(layer.answers[2:4], "big") == code


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([2, 9, 10]), st.sampled_from([0, 1, 4, 125, 126, 70_000])), max_size=8), st.data())
def test_any_split_gives_the_same_bytes(shapes: list[tuple[int, int]], draw: st.DataObject) -> None:
    frames = [(opcode, bytes(i % 251 for i in range(size if opcode == 2 else min(size, 125)))) for opcode, size in shapes]
    data = b"".join(masked(opcode, payload) for opcode, payload in frames)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=10)))
    layer = opened()
    got = b"".join(fed(layer, data[start:end]) for start, end in itertools.pairwise([0, *cuts, len(data)]))
    assert got == b"".join(payload for opcode, payload in frames if opcode == 2)
    assert layer.answers == b"".join(bytes([0x8A, len(payload)]) + payload for opcode, payload in frames if opcode == 9)


def test_fragments_are_a_stream() -> None:
    layer = opened()
    data = masked(2, b"pack", final=False) + masked(9, b"") + masked(0, b"et", final=False) + masked(0, b"s") + masked(2, b"!")
    assert b"".join(fed(layer, data[at : at + 1]) for at in range(len(data))) == b"packets!"


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.integers(0, 3))
def test_unmask(data: bytes, mask: bytes, phase: int) -> None:
    assert unmask(data, mask, phase) == bytes(byte ^ mask[(i + phase) % 4] for i, byte in enumerate(data))
