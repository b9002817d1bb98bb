"""`lmq serve` as a process: what it prints, how fast it is there, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mqtt_proxy

START_S = 0.7
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def serve(*argv: str, data: str = "data", **environ: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "mqtt_proxy", "serve", "--data", str(tmp_path / data), *argv]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}, cwd=tmp_path
        )
        started.append(process)
        return process

    yield serve
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def ready(process: subprocess.Popen[str], lines: int = 1) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(lines)]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=10)
    return process.returncode, errors


def test_one_ready_line_for_each_listener_with_its_real_port(start: Start, tmp_path: Path) -> None:
    socket_file = tmp_path / "lmq.sock"
    process = start("--listen", "mqtt://127.0.0.1:0", "--listen", "mqtt://[::1]:0", "--listen", f"unix://{socket_file}")
    first, second, third = ready(process, 3)
    port = re.fullmatch(r"ready mqtt://127\.0\.0\.1:(\d+)", first)
    assert port is not None
    assert re.fullmatch(r"ready mqtt://\[::1\]:[1-9]\d*", second)
    assert third == f"ready unix://{socket_file}"
    socket.create_connection(("127.0.0.1", int(port[1])), 1).close()


def test_ready_in_time_and_sigterm_ends_with_0(start: Start) -> None:
    best = 9.0
    for attempt in range(3):
        began = time.perf_counter()
        process = start("--listen", "mqtt://127.0.0.1:0", data=f"data{attempt}")
        ready(process)
        best = min(best, time.perf_counter() - began)
        process.send_signal(signal.SIGTERM)
        began = time.perf_counter()
        code, errors = ended(process)
        assert code == 0, errors
        assert time.perf_counter() - began < 5
        assert "Traceback" not in errors
    assert best < START_S


def test_a_taken_port_is_exit_1_and_one_line(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start("--listen", f"mqtt://127.0.0.1:{taken.getsockname()[1]}", "--log-level", "warning")
        code, errors = ended(process)
    assert code == 1
    assert errors.count("\n") == 1
    assert "in use" in errors


def test_a_folder_in_use_is_exit_1_and_one_line(start: Start) -> None:
    ready(start("--listen", "mqtt://127.0.0.1:0"))
    code, errors = ended(start("--listen", "mqtt://127.0.0.1:0", "--log-level", "warning"))
    assert code == 1
    assert errors.count("\n") == 1
    assert "data" in errors


def test_a_folder_that_cannot_be_used_is_exit_1_and_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    code, errors = ended(start("--listen", "mqtt://127.0.0.1:0", "--log-level", "warning", data="file"))
    assert code == 1
    assert errors.count("\n") == 1 and str(tmp_path / "file") in errors and "not a directory" in errors


def test_it_says_when_it_runs_uncompiled(start: Start) -> None:
    process = start("--listen", "mqtt://127.0.0.1:0", "--log-format", "json", LMQ_PURE="1")
    ready(process)
    process.send_signal(signal.SIGTERM)
    code, errors = ended(process)
    assert code == 0
    assert any("uncompiled" in json.loads(line)["message"] for line in errors.splitlines())


async def echo(folder: Path) -> str:
    async with mqtt_proxy.serve(mqtt_proxy.Settings(listen=("mqtt://127.0.0.1:0",), data=str(folder))) as server:
        return server.urls[0]


def test_from_python(tmp_path: Path) -> None:
    import asyncio

    assert asyncio.run(echo(tmp_path / "data")).startswith("mqtt://127.0.0.1:")
