"""Crashes at chosen moments, each with the fault that it once showed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lmq_store.api.model import Message
from mqtt_proxy.demo.client import ONLINE, Client, Clients
from mqtt_proxy.demo.server_process import ServerProcess
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.types import V5, Will

WAIT_S = 5.0


class Stage:
    """A server and its clients; `got` has what each client received."""

    def __init__(self, folder: Path) -> None:
        self.server = ServerProcess(folder, ("--sys-interval-s", "0", "--queue-grace-s", "1", "--will-grace-s", "1"))
        self.server.start()
        self.clients = Clients(self.server.address)
        self.got: dict[str, list[tuple[bytes, int]]] = {}

    def client(self, name: str, window: int = 50, version: int = V5) -> Client:
        client = self.clients.add(name, version, window=window)
        got = self.got.setdefault(name, [])
        client.on_message = lambda _, message: got.append((message.payload, message.qos))
        client.go_online()
        self.until(lambda: client.state == ONLINE)
        return client

    def subscribe(self, client: Client, *filters: tuple[str, int]) -> None:
        client.subscribe(list(filters))
        self.until(lambda: client.idle)

    def publish(self, client: Client, topic: bytes, payloads: list[tuple[bytes, int]]) -> None:
        for payload, qos in payloads:
            client.publish(0, Message(topic, payload, qos))
        self.until(lambda: client.idle)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline, "waited in vain"
            self.clients.turn(0.005)

    def turns(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.clients.turn(0.005)

    def crash(self) -> None:
        """SIGKILL, start, and every client is back."""
        accepted = {client: client.accepted for client in self.clients.all if client.wanted}
        self.server.kill()
        self.server.start()
        self.until(lambda: all(client.state == ONLINE and client.accepted > before for client, before in accepted.items()))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    yield one
    one.clients.close()
    assert one.server.stop() == 0, one.server.last_lines()


def test_exchanges_done_before_a_crash_stay_done_when_the_next_connection_ends_early(stage: Stage) -> None:
    subscriber = stage.client("sub")
    stage.subscribe(subscriber, ("t/#", 2))
    publisher = stage.client("pub")
    stage.publish(publisher, b"t/x", [(b"%d" % number, 1 + number % 2) for number in range(40)])
    stage.until(lambda: len(stage.got["sub"]) == 40)
    stage.turns(0.05)
    subscriber.answers = False
    subscriber.window_asked = 1  # one QoS 1 message fills it: the reader stops in the middle of what was done
    stage.crash()
    stage.turns(0.2)
    subscriber.leave()
    stage.turns(0.1)
    subscriber.answers = True
    subscriber.window_asked = 50
    subscriber.go_online()
    stage.turns(0.5)
    exactly_once = [payload for payload, qos in stage.got["sub"] if qos == 2]
    assert sorted(exactly_once, key=int) == [b"%d" % number for number in range(1, 40, 2)]


def test_history_that_a_suback_promised_comes_after_the_crash(stage: Stage) -> None:
    publisher = stage.client("pub")
    stage.publish(publisher, b"t/x", [(b"%d" % number, 1) for number in range(200)])
    reader = stage.client("reader", window=5)
    reader.answers = False
    reader.subscribe([("t/+", 1)], Properties(user_properties=[(b"lmq-from", b"earliest")]))
    stage.until(lambda: not reader.awaited)
    reader.answers = True
    stage.crash()
    stage.publish(publisher, b"t/x", [(b"200", 1)])
    stage.until(lambda: (b"200", 1) in stage.got["reader"])
    assert list(dict.fromkeys(int(payload) for payload, _ in stage.got["reader"])) == list(range(201))


def test_a_shared_qos_2_message_goes_to_one_member_alone(stage: Stage) -> None:
    members = [stage.client(f"member-{number}") for number in range(2)]
    for member in members:
        stage.subscribe(member, ("$share/g/t/#", 2))
    publisher = stage.client("pub")
    stage.publish(publisher, b"t/x", [(b"%d" % number, 2) for number in range(100)])
    stage.until(lambda: len(stage.got["member-0"]) + len(stage.got["member-1"]) == 100)
    stage.crash()
    stage.publish(publisher, b"t/x", [(b"100", 2)])
    stage.until(lambda: (b"100", 2) in stage.got["member-0"] + stage.got["member-1"])
    stage.turns(0.3)
    everything = [int(payload) for payload, _ in stage.got["member-0"] + stage.got["member-1"]]
    assert sorted(everything) == list(range(101))


def test_wills_over_a_crash_fire_for_those_who_stay_away(stage: Stage) -> None:
    watcher = stage.client("watcher")
    stage.subscribe(watcher, ("gone/#", 2))
    mortals = {}
    for name in ("returns", "stays-away"):
        mortals[name] = stage.clients.add(name)
        mortals[name].will = Will(b"gone/" + name.encode(), name.encode(), 2)
        mortals[name].go_online()
    stage.until(lambda: all(one.state == ONLINE for one in mortals.values()))
    stage.server.kill()
    mortals["stays-away"].drop()
    stage.server.start()
    stage.until(lambda: len(stage.got["watcher"]) == 1)
    stage.turns(1.5)
    assert stage.got["watcher"] == [(b"stays-away", 2)]


def test_a_session_expires_after_a_crash(stage: Stage) -> None:
    short, long = (stage.clients.add(name, expiry_s=expiry_s) for name, expiry_s in (("short", 1), ("long", 60)))
    for client in (short, long):
        client.go_online()
    stage.until(lambda: short.state == long.state == ONLINE)
    stage.server.kill()
    for client in (short, long):
        client.drop()
    stage.server.start()
    stage.turns(1.6)
    for client in (short, long):
        client.go_online()
    stage.until(lambda: short.state == long.state == ONLINE)
    assert not short.session_present
    assert long.session_present


def test_subscribe_and_unsubscribe_that_were_answered_hold(stage: Stage) -> None:
    client = stage.client("client")
    stage.subscribe(client, ("a/#", 1), ("b/#", 1), ("$share/g/c/#", 1))
    client.unsubscribe(["b/#"])
    stage.until(lambda: client.idle)
    stage.crash()
    assert client.session_present
    publisher = stage.client("pub")
    for topic in (b"b/x", b"a/x", b"c/x"):
        stage.publish(publisher, topic, [(topic, 1)])
    stage.until(lambda: len(stage.got["client"]) >= 2)
    stage.turns(0.2)
    assert sorted(stage.got["client"]) == [(b"a/x", 1), (b"c/x", 1)]
