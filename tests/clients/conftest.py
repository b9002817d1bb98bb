"""One server for each module, with a listener of every kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.mqtt_proxy.net.certificates import Authority

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools" / "node_modules"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_numbers = count(1)


@dataclass(frozen=True)
class Endpoints:
    """Where the server listens, and the files that TLS needs. `mutual` asks for a client certificate, whose name is the user."""

    mqtt: int
    mqtts: int
    mutual: int
    ws: int
    wss: int
    ca: str
    client_cert: str
    client_key: str
    host: str = "127.0.0.1"


def start(folder: Path, authority: Authority) -> tuple[subprocess.Popen[str], Endpoints]:
    cert, key = authority.issue("server", "localhost")
    client_cert, client_key = authority.issue("client", "device-7")
    acl = folder / "acl"
    acl.write_text("topic readwrite #\nuser device-7\ntopic readwrite private/device-7/#\ntopic deny private/device-8/#\n")
    tls = f"cert={cert}&key={key}"
    urls = [
        "mqtt://127.0.0.1:0",
        f"mqtts://127.0.0.1:0?{tls}",
        f"mqtts://127.0.0.1:0?{tls}&ca={authority.path}&require=true&subject_as_user=true",
        "ws://127.0.0.1:0",
        f"wss://127.0.0.1:0?{tls}",
    ]
    command = [sys.executable, "-m", "mqtt_proxy", "serve", "--data", str(folder / "data"), "--allow-anonymous", "--acl", str(acl)]
    for url in urls:
        command += ["--listen", url]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    ports = []
    for _ in urls:
        line = process.stdout.readline()
        assert line.startswith("ready "), f"{line!r}; {(folder / 'log').read_text()[-2000:]}"
        ports.append(int(line.split("//")[1].split("/")[0].rsplit(":", 1)[1]))
    return process, Endpoints(*ports, str(authority.path), client_cert, client_key)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    folder = tmp_path_factory.mktemp("server")
    process, endpoints = start(folder, Authority(folder))
    yield endpoints
    process.terminate()
    status = process.wait(10)
    assert process.stdout is not None
    process.stdout.close()
    log = (folder / "log").read_text()
    assert status == 0, log[-2000:]
    assert "Traceback" not in log, log[-4000:]


@pytest.fixture
def name() -> str:
    """A word that no other test uses: topics and client ids begin with it."""
    return f"n{next(_numbers)}"


def program(name: str) -> str:
    """A program of the machine, or a skip that names it."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def node_package(name: str) -> Path:
    """A node package in .tools, or a skip that names it."""
    path = TOOLS / name
    if not path.is_dir():
        pytest.skip(f"node package {name} is not installed in .tools")
    return path
