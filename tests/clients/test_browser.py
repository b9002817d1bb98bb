"""A page in headless Chromium that subscribes over ws:// with MQTT.js, shows a reading, and says so by a message."""

from __future__ import annotations

import functools
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from websockets.sync.client import connect

from .conftest import Endpoints, node_package, program

QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--no-proxy-server",
    "--disable-dev-shm-usage",
)  # fmt: skip
WAIT_S = 30.0


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test's output is for failures."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The page and MQTT.js's browser bundle on a web server; the address."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("page.html"), folder)
    shutil.copy(node_package("mqtt") / "dist" / "mqtt.min.js", folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


class Browser:
    """Chromium with a fresh profile, in a process group of its own, looked into over its DevTools port."""

    def __init__(self, profile: Path, url: str) -> None:
        command = [program("chromium"), *QUIET, f"--user-data-dir={profile}", "--remote-debugging-port=0", url]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": str(profile)}
        )
        self.port_file = profile / "DevToolsActivePort"
        self.url = url

    def text_of(self, element: str, wanted: str) -> str:
        """The element's text: waits until it contains what is wanted, or gives up and returns what is there."""
        deadline = time.monotonic() + WAIT_S
        while not (self.port_file.exists() and self.port_file.read_text().count("\n")):
            assert time.monotonic() < deadline and self.process.poll() is None, "Chromium did not start"
            time.sleep(0.05)
        port = self.port_file.read_text().split()[0]
        pages = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=WAIT_S).read())
        page = next(one for one in pages if one["type"] == "page")
        expression = {"expression": f"document.getElementById({element!r})?.textContent"}
        with connect(page["webSocketDebuggerUrl"], proxy=None) as tools:
            while True:
                tools.send(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": expression}))
                text = str(json.loads(tools.recv(timeout=WAIT_S))["result"]["result"].get("value", ""))
                if wanted in text or time.monotonic() > deadline:
                    return text
                time.sleep(0.05)

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)


def test_a_page_shows_a_reading(server: Endpoints, site: str, name: str, tmp_path: Path) -> None:
    topic = f"{name}/room"
    seen: queue.Queue[str] = queue.Queue()
    device = paho.Client(CallbackAPIVersion.VERSION2, f"{name}-device")
    device.on_message = lambda client, data, message: seen.put(message.payload.decode())
    device.connect("127.0.0.1", server.mqtt)
    device.loop_start()
    device.subscribe(f"{topic}/seen", 1)
    query = urlencode({"url": f"ws://127.0.0.1:{server.ws}/mqtt", "topic": topic, "name": f"{name}-page"})
    browser = Browser(tmp_path / "profile", f"{site}/page.html?{query}")
    try:
        assert browser.text_of("state", "subscribed") == "subscribed"
        for temperature in (21.5, 21.75):
            device.publish(topic, json.dumps({"temp": temperature}), 1).wait_for_publish(5)
            assert seen.get(timeout=WAIT_S) == f"{temperature} °C"
            assert browser.text_of("reading", str(temperature)) == f"{temperature} °C"
    finally:
        browser.end()
        device.disconnect()
        device.loop_stop()
