"""PROXY headers: the parser alone, then before MQTT and before TLS."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest

from mqtt_proxy.net.proxy_protocol import V2_SIGNATURE, ProxyHeaderError, parse_proxy_header
from tests.mqtt_proxy.net.echo import Served, frame, links, until


def version_2(command: int, family: int, block: bytes, length: int | None = None) -> bytes:
    return V2_SIGNATURE + bytes([0x20 | command, family]) + (len(block) if length is None else length).to_bytes(2, "big") + block


FOUR = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + (40_000).to_bytes(2, "big") + (1883).to_bytes(2, "big")
SIX = ipaddress.IPv6Address("2001:db8::7").packed + bytes(16) + (40_000).to_bytes(2, "big") + (1883).to_bytes(2, "big")
GOOD = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 1883\r\n", "192.0.2.7:40000"),
    (b"PROXY TCP6 2001:db8::7 ::1 40000 1883\r\n", "[2001:db8::7]:40000"),
    (b"PROXY UNKNOWN\r\n", ""),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", ""),
    (version_2(1, 0x11, FOUR), "192.0.2.7:40000"),
    (version_2(1, 0x11, FOUR + b"\x03\0\x04abcd"), "192.0.2.7:40000"),
    (version_2(1, 0x21, SIX), "[2001:db8::7]:40000"),
    (version_2(1, 0x31, bytes(216)), "unix"),
    (version_2(0, 0, b""), ""),
    (version_2(1, 0, b"anything"), ""),
]
BAD = [
    b"\x10\x0c\0\4MQTT",
    b"GET / HTTP/1.1\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 40000\r\n",
    b"PROXY TCP4 192.0.2.300 10.0.0.1 40000 1883\r\n",
    b"PROXY TCP4 ::1 ::1 40000 1883\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 70000 1883\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 1883\r\n",
    b"PROXY TCP5 192.0.2.7 10.0.0.1 1 1883\r\n",
    b"PROXY \r\n",
    b"PROXY " + b"x" * 200,
    V2_SIGNATURE + b"\x31\x11\0\x0c" + FOUR,
    version_2(2, 0x11, FOUR),
    version_2(1, 0x11, FOUR[:8]),
    version_2(1, 0x21, FOUR),
    version_2(1, 0x11, b"", length=60_000),
]


@pytest.mark.parametrize(("header", "peer"), GOOD)
def test_good_headers_at_every_length(header: bytes, peer: str) -> None:
    for end in range(len(header)):
        assert parse_proxy_header(header[:end]) is None
    assert parse_proxy_header(header) == (len(header), peer)
    assert parse_proxy_header(header + b"\x10\x0c") == (len(header), peer)


@pytest.mark.parametrize("header", BAD)
def test_bad_headers(header: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse_proxy_header(header)


@pytest.mark.parametrize(("header", "peer"), [GOOD[0], GOOD[6], GOOD[2]])
def test_header_then_frames(run: Any, header: bytes, peer: str) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtt://127.0.0.1:0?proxy_protocol=true").port
        for pieces in ([header + frame(b"one")], [header[:5], header[5:], frame(b"one")], [header + frame(b"one")[:3], frame(b"one")[3:]]):
            links.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.01)
            assert await reader.readexactly(7) == frame(b"one")
            assert links[0].layer is None
            assert links[0].peer == peer or (not peer and links[0].peer.startswith("127.0.0.1:"))
            writer.close()
            await until(lambda: served.reactor.open_links == 0)

    run(scenario)


def test_without_a_header_the_connection_ends(run: Any) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtt://127.0.0.1:0?proxy_protocol=true").port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"no header"))
        assert await reader.read() == b""
        assert links[0].lost_reasons == ["no PROXY header"]
        assert links[0].frames == []
        writer.close()

    run(scenario)


def test_header_then_websocket(run: Any) -> None:
    async def scenario(served: Served) -> None:
        from tests.mqtt_proxy.net.test_websocket import REQUEST, masked

        port = served.listen("ws://127.0.0.1:0?proxy_protocol=true").port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GOOD[0][0] + REQUEST + masked(2, frame(b"one")))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(9) == b"\x82\x07" + frame(b"one")
        assert links[0].peer == GOOD[0][1]
        writer.close()

    run(scenario)
