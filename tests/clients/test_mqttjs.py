"""MQTT.js under node, over TCP, TLS and WebSocket."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import Endpoints, node_package, program

SCENARIO = Path(__file__).with_name("mqttjs.mjs")


@pytest.mark.parametrize("transport", ["mqtt", "mqtts", "ws", "wss"])
@pytest.mark.parametrize("version", ["4", "5"], ids=["3.1.1", "5.0"])
def test_scenario(server: Endpoints, name: str, transport: str, version: str) -> None:
    package = node_package("mqtt")
    port = {"mqtt": server.mqtt, "mqtts": server.mqtts, "ws": server.ws, "wss": server.wss}[transport]
    path = "/mqtt" if transport in ("ws", "wss") else ""
    ca = server.ca if transport in ("mqtts", "wss") else ""
    command = [program("node"), str(SCENARIO), f"{transport}://localhost:{port}{path}", version, name, ca]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env={**os.environ, "NODE_PACKAGES": str(package.parent)}
    )  # fmt: skip
    assert done.stdout.strip() == "ok", done.stdout + done.stderr
