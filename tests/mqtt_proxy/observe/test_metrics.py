"""The page for machines: figures, health, readiness."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from mqtt_proxy.observe.metrics_page import CONNECTIONS_MAX
from mqtt_proxy.settings import Settings, SettingsError
from tests.mqtt_proxy.observe.test_sys_topics import OPERATIONS
from tests.mqtt_proxy.server.running import RunningServer, running, until


def get(server: RunningServer, path: str) -> tuple[int, str]:
    page = server.server.metrics_page
    assert page is not None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.address[1]}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_figures(tmp_path: Path) -> None:
    with running(tmp_path, metrics_listen="127.0.0.1:0") as server:
        client = server.connect("a", expiry=100)
        client.subscribe("t", qos=1)
        for _ in range(3):
            client.publish("t", b"x" * 100, qos=1)
            client.message()
        client.publish("t", b"x", qos=1, retain=True)
        until(lambda: server.broker.sys_topics.figures.census.latest.persistent == 1)
        status, text = get(server, "/metrics")
        assert status == 200
        assert value(text, "lmq_messages_received_total") == 4
        assert value(text, "lmq_messages_sent_total") == 4
        assert value(text, "lmq_acknowledgements_sent_total") == 4
        assert value(text, "lmq_clients_connected") == 1
        assert value(text, "lmq_retained_messages") == 1
        assert value(text, "lmq_bytes_received_total") > 350
        assert value(text, "lmq_batch_messages_count") == 4
        assert value(text, "lmq_batch_messages_sum") == 4
        assert value(text, "lmq_sync_seconds_count") >= 4
        assert value(text, 'lmq_sync_seconds_bucket{le="+Inf"}') == value(text, "lmq_sync_seconds_count")
        assert sum(value(text, f'lmq_sessions{{state="{state}"}}') for state in ("caught_up", "behind", "window_full")) == 1
        assert value(text, 'lmq_messages_dropped_total{reason="expired"}') == 0
        assert value(text, "process_resident_memory_bytes") > 1e6
        documented = set(re.findall(r"^\| `(lmq_\w+)`", OPERATIONS.read_text(), re.MULTILINE))
        shown = set(re.findall(r"^# TYPE (lmq_\w+) ", text, re.MULTILINE))
        assert shown == documented


def test_ready_and_healthy(tmp_path: Path) -> None:
    with running(tmp_path, metrics_listen="0") as server:
        assert get(server, "/healthz") == (200, "ok\n")
        assert get(server, "/readyz") == (200, "ready\n")
        server.broker.store.disk_full = True
        assert get(server, "/readyz") == (503, "no room on the disk\n")
        server.broker.store.disk_full = False
        server.broker.stopping = True
        assert get(server, "/readyz") == (503, "stopping\n")
        assert get(server, "/healthz")[0] == 200
        server.broker.stopping = False
        assert get(server, "/nothing")[0] == 404


def test_it_harms_nobody(tmp_path: Path) -> None:
    with running(tmp_path, metrics_listen="0") as server:
        page = server.server.metrics_page
        assert page is not None
        idle = [socket.create_connection(page.address) for _ in range(CONNECTIONS_MAX + 10)]
        until(lambda: page.open == CONNECTIONS_MAX)
        server.connect("a").alive()
        for stream in idle:
            stream.close()
        until(lambda: page.open == 0)
        with socket.create_connection(page.address) as stream:
            stream.sendall(b"x" * 100_000)
            stream.settimeout(5)
            with suppress(ConnectionResetError):
                assert stream.recv(1000) == b""
        assert get(server, "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), (":9464", ("127.0.0.1", 9464)), ("[::1]:1", ("::1", 1)), ("0.0.0.0:80", ("0.0.0.0", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert Settings(metrics_listen=text).metrics_address == address


@pytest.mark.parametrize("text", ["x", "127.0.0.1:", ":70000", "a:b"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(SettingsError, match="metrics_listen"):
        Settings(metrics_listen=text)


def test_off_by_default_and_then_prometheus_is_not_loaded() -> None:
    code = "import sys, mqtt_proxy.server; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
