"""TLS over real sockets, with Python's own client."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqtt_proxy.net.listen_url import ListenError
from mqtt_proxy.net.tls import TlsCertificates, TlsError, TlsLayer, TlsSubject, subject_of
from tests.mqtt_proxy.net.certificates import Authority
from tests.mqtt_proxy.net.echo import Served, frame, links, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> dict[str, str]:
    cert, key = authority.issue("server", "localhost")
    return {"cert": cert, "key": key}


def client_context(authority: Authority, files: tuple[str, str] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if files:
        context.load_cert_chain(*files)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_frames_of_all_sizes(run: Any, authority: Authority, server_files: dict[str, str], version: ssl.TLSVersion) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtts://127.0.0.1:0", **server_files).port
        context = client_context(authority)
        context.minimum_version = context.maximum_version = version
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for size in (0, 1, 20_000, 2_000_000):
            data = frame(bytes(size))
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
        writer.close()
        await until(lambda: links[0].lost_reasons == ["closed by peer"])
        assert links[0].tls_subject is None

    run(scenario)


def test_old_versions_and_plain_bytes_are_refused(run: Any, server_files: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "mqtt_proxy.net")

    async def scenario(served: Served) -> None:
        port = served.listen("mqtts://127.0.0.1:0", **server_files).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")
        answer = await reader.read()
        assert answer[:1] in (b"", b"\x15")  # a TLS alert
        writer.close()
        await until(lambda: links[0].lost_reasons)
        assert links[0].lost_reasons[0].startswith("TLS handshake failed: ")
        assert links[0].frames == []

    run(scenario)
    assert "TLS handshake failed" in caplog.text


async def answer_to_hello(port: int, context: ssl.SSLContext) -> bytes:
    """Empty where the server refuses; with TLS 1.3 the client may learn that only after its handshake."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(frame(b"hello"))
        return await reader.read(1)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_client_certificate_names_the_user(run: Any, authority: Authority, server_files: dict[str, str]) -> None:
    async def scenario(served: Served) -> None:
        listener = served.listen("mqtts://127.0.0.1:0?require=true&subject_as_user=true", ca=str(authority.path), **server_files)
        context = client_context(authority, authority.issue("meter", "meter 7", "Example, Inc"))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
        writer.write(frame(b"hello"))
        assert await reader.readexactly(9) == frame(b"hello")
        assert links[0].tls_subject == TlsSubject("meter 7", "CN=meter 7,O=Example\\, Inc")
        writer.close()
        stranger = Authority(authority.folder, "stranger")
        for files in (None, stranger.issue("other", "meter 7")):
            assert await answer_to_hello(listener.port, client_context(authority, files)) == b""
        await until(lambda: len(links) == 3 and links[2].lost_reasons)
        assert [link.frames for link in links] == [[frame(b"hello")], [], []]

    run(scenario)


def test_reload_serves_the_new_certificate_and_keeps_connections(run: Any, tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
        cert, key = old.issue("server", "localhost")
        listener = served.listen("mqtts://127.0.0.1:0", cert=cert, key=key)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_context(old))
        new.issue("server", "localhost")
        listener.reload_certificates()
        _, second = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_context(new))
        writer.write(frame(b"still"))
        assert await reader.readexactly(9) == frame(b"still")
        Path(cert).write_text("rubbish")  # noqa: ASYNC240
        with pytest.raises(ListenError, match=r"server\.pem with .*server\.key: "):
            listener.reload_certificates()
        _, third = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_context(new))
        for each in (writer, second, third):
            each.close()

    run(scenario)


def test_close_says_goodbye(run: Any, authority: Authority, server_files: dict[str, str]) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtts://127.0.0.1:0", **server_files).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        await until(lambda: links and links[0].layer.layers[0].open)
        links[0].send(b"bye")
        links[0].close("done")
        assert await reader.read() == b"bye"
        writer.close()
        await until(lambda: served.reactor.open_links == 0, 0.9)

    run(scenario)


def test_slow_reader_over_tls(run: Any, authority: Authority, server_files: dict[str, str]) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen("mqtts://127.0.0.1:0", **server_files).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
        await until(lambda: links and links[0].layer.layers[0].open)
        sent = 0
        while not links[0].congested():
            links[0].send(bytes(100_000))
            sent += 100_000
            await asyncio.sleep(0)
        assert links[0].pending_bytes() < 500_000
        assert len(await reader.readexactly(sent)) == sent
        await until(lambda: links[0].drains == 1)
        writer.close()

    run(scenario)


def test_handshake_storm_leaves_turns_short(
    run: Any, authority: Authority, server_files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []  # the turn of each handshake step
    receive = TlsLayer.receive

    async def scenario(served: Served) -> None:
        def counted(layer: TlsLayer, link: Any, data: bytes) -> bytes:
            if not layer.open:
                steps.append(served.turns)
            return receive(layer, link, data)

        monkeypatch.setattr(TlsLayer, "receive", counted)
        port = served.listen("mqtts://127.0.0.1:0", **server_files).port
        context = client_context(authority)
        pairs = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(40)))
        for reader, writer in pairs:
            writer.write(frame(b"x"))
            assert await reader.readexactly(5) == frame(b"x")
            writer.close()
        assert len(steps) >= 80
        assert max(Counter(steps).values()) <= 4

    run(scenario)


def test_errors_name_the_file(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("server", "localhost")
    _, other_key = Authority(tmp_path).issue("other", "localhost")
    with pytest.raises(TlsError, match=r"missing\.pem: no such file"):
        TlsCertificates(str(tmp_path / "missing.pem"))
    with pytest.raises(TlsError, match="key values mismatch"):
        TlsCertificates(cert, other_key)
    with pytest.raises(TlsError, match="no certificate"):
        TlsCertificates(cert, key, ca=key)


def test_subject_text() -> None:
    assert subject_of(None) is None
    assert subject_of({"subject": ((("countryName", "DE"),), (("commonName", " a+b "),))}) == TlsSubject(" a+b ", "CN=\\ a\\+b\\ ,C=DE")
