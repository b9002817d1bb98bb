"""Listen URLs and listening sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import stat
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqtt_proxy.net import listener as listener_module
from mqtt_proxy.net.listen_url import ListenerOptions, ListenError, parse_listen_url
from mqtt_proxy.net.reactor import NEWCOMERS_S
from tests.mqtt_proxy.net.echo import FrameLink, Served, frame, links, until

pytestmark = pytest.mark.hot


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("mqtt://127.0.0.1", ListenerOptions("mqtt", "127.0.0.1", 1883)),
        ("mqtt://localhost:0", ListenerOptions("mqtt", "localhost", 0)),
        ("mqtt://:1884", ListenerOptions("mqtt", "", 1884)),
        ("mqtt://*", ListenerOptions("mqtt", "", 1883)),
        ("mqtt://[::1]:1883?proxy_protocol=on", ListenerOptions("mqtt", "::1", 1883, proxy_protocol=True)),
        ("mqtts://h?cert=c&key=k&backlog=7", ListenerOptions("mqtts", "h", 8883, cert="c", key="k", backlog=7)),
        ("ws://h", ListenerOptions("ws", "h", 8080, "/mqtt")),
        ("ws://h:80/iot?ws_frame_bytes=2048", ListenerOptions("ws", "h", 80, "/iot", ws_frame_bytes=2048)),
        ("unix:///run/x.sock?mode=600", ListenerOptions("unix", "", 0, "/run/x.sock", mode=0o600)),
    ],
)
def test_urls(url: str, options: ListenerOptions) -> None:
    assert parse_listen_url(url) == options


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h", "begin with one of mqtt://, mqtts://"),
        ("127.0.0.1:1883", "begin with one of"),
        ("mqtt://h:99999", "[Pp]ort"),
        ("mqtt://h/path", "has no path"),
        ("mqtt://u:p@h", "user name"),
        ("mqtt://h?color=red", "no option 'color'; there are backlog, ca, cert"),
        ("mqtt://h?proxy_protocol=maybe", "true or false"),
        ("mqtt://h?backlog=0", "from 1 to 65535"),
        ("mqtt://h?cert=c", "go with mqtts"),
        ("mqtts://h", "needs a certificate"),
        ("mqtts://h?cert=c&require=1", "needs ca=FILE"),
        ("mqtts://h?cert=c&ca=x&subject_as_user=1", "needs require=true"),
        ("unix://", "name the socket's file"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(ListenError, match=why):
        parse_listen_url(url)


def test_loopback() -> None:
    for url, expected in (("mqtt://127.0.0.9", True), ("mqtt://[::1]", True), ("mqtt://:1", False), ("mqtt://0.0.0.0", False)):
        assert parse_listen_url(url).loopback is expected


async def ask(family: int, address: Any) -> bytes:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, address)
        await loop.sock_sendall(client, frame(b"hi"))
        return await asyncio.wait_for(loop.sock_recv(client, 100), 5)


def test_ipv6(run: Any) -> None:
    async def scenario(served: Served) -> None:
        listener = served.listen("mqtt://[::1]:0")
        assert listener.url == f"mqtt://[::1]:{listener.port}"
        assert await ask(socket.AF_INET6, ("::1", listener.port)) == frame(b"hi")
        assert links[0].peer.startswith("[::1]:")

    run(scenario)


def test_all_addresses_share_one_port(run: Any) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtt://:0").port
        assert await ask(socket.AF_INET, ("127.0.0.1", port)) == frame(b"hi")
        assert await ask(socket.AF_INET6, ("::1", port)) == frame(b"hi")

    run(scenario)


def test_unix_socket(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "RETRY_S", 0.1)
    path = tmp_path / "lmq.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    async def scenario(served: Served) -> None:
        listener = served.listen(f"unix://{path}?mode=600")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await ask(socket.AF_UNIX, str(path)) == frame(b"hi")
        assert links[0].peer == "unix"
        with pytest.raises(ListenError, match="address already in use"):
            served.listen(f"unix://{path}")
        listener.close()
        assert not path.exists()

    run(scenario)


def test_unix_path_that_is_no_socket_stays(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "RETRY_S", 0.1)
    path = tmp_path / "precious"
    path.write_text("data")

    async def scenario(served: Served) -> None:
        with pytest.raises(ListenError):
            served.listen(f"unix://{path}")
        assert path.read_text() == "data"

    run(scenario)


def test_taken_port_is_one_line_after_two_seconds(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "RETRY_S", 0.2)

    async def scenario(served: Served) -> None:
        port = served.listen().port
        began = time.monotonic()
        with pytest.raises(ListenError, match=rf"^cannot listen on mqtt://127\.0\.0\.1:{port}: address already in use$"):
            served.listen(f"mqtt://127.0.0.1:{port}")
        assert time.monotonic() - began >= 0.2

    run(scenario)


def test_port_of_a_dying_predecessor_is_waited_for(run: Any) -> None:
    async def scenario(served: Served) -> None:
        taken = socket.create_server(("127.0.0.1", 0))
        threading.Timer(0.2, taken.close).start()
        listener = served.listen(f"mqtt://127.0.0.1:{taken.getsockname()[1]}")
        assert await ask(socket.AF_INET, ("127.0.0.1", listener.port)) == frame(b"hi")

    run(scenario)


@pytest.mark.parametrize("url", ["mqtt://203.0.113.1:0", "mqtt://no.such.host.invalid:0"])
def test_address_that_is_not_ours(run: Any, url: str) -> None:
    async def scenario(served: Served) -> None:
        with pytest.raises(ListenError, match=r"^cannot listen on mqtt://"):
            served.listen(url)

    run(scenario)


def test_owner_may_refuse(run: Any) -> None:
    async def scenario(served: Served) -> None:
        listener = served.listen(new_link=lambda *_: None)
        with contextlib.suppress(ConnectionError):
            assert await ask(socket.AF_INET, ("127.0.0.1", listener.port)) == b""
        assert (listener.accepted, listener.refused, listener.open_links) == (1, 1, 0)

    run(scenario)


def test_max_connections_wait_in_the_backlog(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtt://127.0.0.1:0?max_connections=2").port
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        await until(lambda: len(links) == 2)
        await asyncio.sleep(0.05)
        assert len(links) == 2
        clients[0].close()
        await until(lambda: len(links) == 3)
        for client in clients:
            client.close()

    run(scenario)
    assert "max_connections = 2 reached" in caplog.text


def test_no_descriptor_left(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen().port
        clients = [socket.socket() for _ in range(4)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        holes = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")) + 1, hard))
        try:
            for client in clients:
                client.connect(("127.0.0.1", port))
            await until(lambda: "not accepting for now: too many open files" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for hole in holes:
                os.close(hole)
        await until(lambda: len(links) == 4)
        for client in clients:
            client.close()

    run(scenario)


def test_accepted_before_opened_ms(run: Any) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen(new_link=FrameLink).port
        with socket.create_connection(("127.0.0.1", port)):
            await until(lambda: links)
            assert abs(links[0].opened_ms - time.monotonic() * 1000) < 1000

    run(scenario)


def test_a_storm_of_newcomers_leaves_turns_short(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []  # the turn of each newcomer's first frame

    async def scenario(served: Served) -> None:
        newcomers = served.reactor.newcomers

        def slow(link: FrameLink, buffer: bytearray, start: int, end: int) -> int:
            if link.fd in newcomers:
                turns.append(served.turns)
                time.sleep(NEWCOMERS_S * 0.6)
                newcomers.discard(link.fd)
            return received(link, buffer, start, end)

        received = FrameLink.received
        monkeypatch.setattr(FrameLink, "received", slow)
        port = served.listen("mqtt://127.0.0.1:0").port
        pairs = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(30)))
        newcomers.update(link.fd for link in links)
        for _, writer in pairs:
            writer.write(frame(b"x"))
        for reader, writer in pairs:
            assert await reader.readexactly(5) == frame(b"x")
            writer.close()
        assert len(turns) == 30
        assert max(Counter(turns).values()) <= 3

    run(scenario)
