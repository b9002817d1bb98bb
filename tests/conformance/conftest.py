"""The servers under test, and connections that close by themselves at the end of each test.

`LMQ_TEST_BROKER=mosquitto` runs the same tests against mosquitto; docs/conformance.md lists what differs there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Protocol

import pytest

from .client import Client
from .properties import Properties
from .servers import Server, ServerSettings, start
from .wire import Will

KIND = os.environ.get("LMQ_TEST_BROKER", "lmq")

USERS = {"alice": "wonderland", "bob": "builder"}
ACL = """
user alice
topic readwrite #
user bob
topic read open/#
topic write open/#
topic readwrite own/bob/#
"""

_numbers = count(1)


class Dial(Protocol):
    """Opens a connection that sends nothing yet."""

    def __call__(self, version: int = 5) -> Client: ...


class Connect(Protocol):
    """Opens a connection and has CONNECT accepted; `expiry` is the Session Expiry Interval (MQTT 5.0)."""

    def __call__(
        self,
        version: int = 5,
        client_id: str | None = None,
        *,
        clean: bool = True,
        expiry: int | None = None,
        keep_alive: int = 0,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties = (),
    ) -> Client: ...


class ConnectAs(Protocol):
    """Connects a user of the guarded server by name."""

    def __call__(self, user: str, version: int = 5, client_id: str | None = None, *, properties: Properties = ()) -> Client: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "covers(*statements): the normative statements that a conformance test shows")


@pytest.fixture
def name() -> str:
    """A word that no other test uses: topics and client ids begin with it."""
    return f"t{next(_numbers)}"


def _running(factory: pytest.TempPathFactory, settings: ServerSettings) -> Iterator[Server]:
    server = start(KIND, factory.mktemp("server"), settings)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with its defaults, open to all."""
    yield from _running(tmp_path_factory, ServerSettings())


@pytest.fixture(scope="session")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for user and password; bob may use open/# and own/bob/# alone."""
    yield from _running(tmp_path_factory, ServerSettings(users=USERS, acl=ACL))


@pytest.fixture(scope="session")
def impatient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that allows no keep alive above one second."""
    if KIND != "lmq":
        pytest.skip("mosquitto's max_keepalive is at least 10 seconds")
    yield from _running(tmp_path_factory, ServerSettings(max_keepalive_s=1))


@pytest.fixture(scope="session")
def full_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose disk is full, as it sees it."""
    if KIND != "lmq":
        pytest.skip("only lmq has a threshold of free bytes")
    yield from _running(tmp_path_factory, ServerSettings(disk_full=True))


def _dialler(server: Server, clients: list[Client]) -> Dial:
    def dial(version: int = 5) -> Client:
        client = Client.dial(server.mqtt, version)
        clients.append(client)
        return client

    return dial


def _connector(dial: Dial, name: str) -> Connect:
    numbers = count(1)

    def connect(
        version: int = 5,
        client_id: str | None = None,
        *,
        clean: bool = True,
        expiry: int | None = None,
        keep_alive: int = 0,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties = (),
    ) -> Client:
        client = dial(version)
        extra: Properties = [("session_expiry", expiry)] if version == 5 and expiry is not None else []
        connack = client.connect(
            f"{name}-{next(numbers)}" if client_id is None else client_id,
            clean=clean,
            keep_alive=keep_alive,
            will=will,
            username=username,
            password=password,
            properties=[*extra, *properties],
        )
        assert connack.reason == 0, f"[MQTT-3.1.4-5] refused: {connack}"
        return client

    return connect


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    opened: list[Client] = []
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def dial(broker: Server, clients: list[Client]) -> Dial:
    return _dialler(broker, clients)


@pytest.fixture
def connect(dial: Dial, name: str) -> Connect:
    return _connector(dial, name)


@pytest.fixture
def guarded_dial(guarded_broker: Server, clients: list[Client]) -> Dial:
    return _dialler(guarded_broker, clients)


@pytest.fixture
def full_dial(full_broker: Server, clients: list[Client]) -> Dial:
    return _dialler(full_broker, clients)


@pytest.fixture
def guarded(guarded_dial: Dial, name: str) -> ConnectAs:
    connector = _connector(guarded_dial, name)

    def connect_as(user: str, version: int = 5, client_id: str | None = None, *, properties: Properties = ()) -> Client:
        return connector(version, client_id, username=user, password=USERS[user].encode(), properties=properties)

    return connect_as
