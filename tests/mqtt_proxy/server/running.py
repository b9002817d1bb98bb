"""A server in a thread of this process, so that a test can talk to it over sockets and look inside it too."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mqtt_proxy.server import Server
from mqtt_proxy.settings import Settings
from tests.conformance.client import Client
from tests.conformance.properties import Properties
from tests.conformance.wire import Will

T = TypeVar("T")
PATIENCE_S = 5.0


class RunningServer:
    """The thread, its loop and its server. `clients` are closed at the end."""

    def __init__(self, settings: Settings) -> None:
        self.loop = asyncio.new_event_loop()
        self.server: Server
        self.clients: list[Client] = []
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(settings,), daemon=True)
        self._thread.start()
        assert self._started.wait(10)
        if self._error is not None:
            raise self._error

    def _run(self, settings: Settings) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.server = self.loop.run_until_complete(self._start(settings))
        except BaseException as error:
            self._error = error
            return
        finally:
            self._started.set()
        self.loop.run_forever()
        self.loop.run_until_complete(self.server.stop())
        self.loop.close()

    @staticmethod
    async def _start(settings: Settings) -> Server:
        server = Server(settings)
        server.start()
        return server

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(10)

    def call(self, function: Callable[[], T]) -> T:
        """Run something on the server's loop and wait for its answer."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    @property
    def broker(self) -> Any:
        return self.server.broker

    def address(self, listener: int = 0) -> tuple[str, int]:
        host, port = self.server.urls[listener].split("//")[1].split("/")[0].rsplit(":", 1)
        return host.strip("[]"), int(port)

    def dial(self, version: int = 5, listener: int = 0) -> Client:
        client = Client.dial(self.address(listener), version)
        self.clients.append(client)
        return client

    def connect(
        self,
        client_id: str,
        version: int = 5,
        *,
        clean: bool = True,
        expiry: int | None = None,
        keep_alive: int = 0,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties = (),
        listener: int = 0,
        reason: int = 0,
    ) -> Client:
        """A connection whose CONNECT was answered with `reason`."""
        client = self.dial(version, listener)
        extra: Properties = [("session_expiry", expiry)] if version == 5 and expiry is not None else []
        connack = client.connect(
            client_id, clean=clean, keep_alive=keep_alive, will=will, username=username, password=password, properties=[*extra, *properties]
        )
        assert connack.reason == reason, connack
        return client


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[RunningServer]:
    """A server with these settings on a free port of 127.0.0.1, and its data in the folder."""
    settings.setdefault("listen", ("mqtt://127.0.0.1:0",))
    running_server = RunningServer(Settings(data=str(folder / "data"), **settings))
    try:
        yield running_server
    finally:
        running_server.stop()


def until(wanted: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Wait until something is true; the last answer fails the test."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = wanted()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)
