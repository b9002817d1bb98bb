"""Brokers for the harness's own tests: the sink, mosquitto, and free ports."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.sink import Sink

MOSQUITTO = shutil.which("mosquitto") or ("/usr/sbin/mosquitto" if Path("/usr/sbin/mosquitto").exists() else None)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(autouse=True)
def temporary_folders_stay_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed keeps its server's folder: here it goes with the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="session")
def sink() -> Iterator[str]:
    """The URL of a sink that runs beside the tests."""
    import threading

    server = Sink("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield f"mqtt://127.0.0.1:{server.port}"
    server.stopped = True
    thread.join(2)


def mosquitto_conf(folder: Path, port: int | str, extra: str = "") -> Path:
    path = folder / "mosquitto.conf"
    path.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_connections -1\nmax_inflight_messages 0\nmax_queued_messages 0\n"
        f"persistence false\nlog_type error\n{extra}"
    )
    return path


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a mosquitto without persistence or queue limits."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    port = free_port()
    conf = mosquitto_conf(tmp_path_factory.mktemp("mosquitto"), port)
    process = subprocess.Popen([MOSQUITTO, "-c", str(conf)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.02)
    yield f"mqtt://127.0.0.1:{port}"
    process.terminate()
    process.wait(5)
