"""paho-mqtt, MQTT 3.1.1 and 5.0."""

from __future__ import annotations

import queue
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from .conftest import Endpoints

WAIT_S = 5.0
V311, V5 = paho.MQTTv311, paho.MQTTv5
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


class Client:
    """A paho client that is connected; what comes goes to `messages`."""

    def __init__(self, version: int, client_id: str, *, transport: str = "tcp", clean: bool = True, expiry_s: int = 0) -> None:
        fixed: dict[str, Any] = {} if version == V5 else {"clean_session": clean}
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **fixed)
        self.version, self.clean, self.expiry_s = version, clean, expiry_s
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.session_present = False
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_connect = self._connected
        self.paho.on_subscribe = lambda client, data, mid, reasons, properties: self.events.put(("suback", reasons))
        self.paho.on_disconnect = lambda client, data, flags, reason, properties: self.events.put(("disconnect", reason))

    def _connected(self, client: paho.Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.session_present = flags.session_present
        self.connack = properties
        self.events.put(("connack", reason))

    def connect(self, port: int) -> Client:
        extra: dict[str, Any] = {}
        if self.version == V5:
            extra["clean_start"] = self.clean
            extra["properties"] = Properties(PacketTypes.CONNECT)
            extra["properties"].SessionExpiryInterval = self.expiry_s
        self.paho.connect("127.0.0.1", port, 30, **extra)
        self.paho.loop_start()
        assert not self.wait("connack").is_failure
        return self

    def wait(self, what: str) -> Any:
        while True:
            kind, value = self.events.get(timeout=WAIT_S)
            if kind == what:
                return value

    def subscribe(self, *arguments: Any, **more: Any) -> Any:
        self.paho.subscribe(*arguments, **more)
        return self.wait("suback")

    def publish(self, topic: str, payload: bytes | str, qos: int = 0, retain: bool = False, properties: Any = None) -> None:
        self.paho.publish(topic, payload, qos, retain, properties).wait_for_publish(WAIT_S)

    def take(self, number: int = 1) -> list[paho.MQTTMessage]:
        return [self.messages.get(timeout=WAIT_S) for _ in range(number)]

    def end(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def die(self) -> None:
        """Close the socket without DISCONNECT."""
        self.paho.on_disconnect = None
        self.paho.loop_stop()
        self.paho._sock_close()


Connect = Callable[..., Client]


@pytest.fixture
def connect(server: Endpoints) -> Iterator[Connect]:
    opened: list[Client] = []

    def connect(version: int, client_id: str, port: int = 0, **more: Any) -> Client:
        opened.append(Client(version, client_id, **more))
        return opened[-1].connect(port or server.mqtt)

    yield connect
    for client in opened:
        client.end()


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_qos_both_ways(connect: Connect, name: str, version: int, qos: int) -> None:
    subscriber, publisher = connect(version, f"{name}-s"), connect(version, f"{name}-p")
    subscriber.subscribe(f"{name}/+/reading", qos)
    for number in range(50):
        publisher.publish(f"{name}/{number % 3}/reading", str(number), qos)
    messages = subscriber.take(50)
    assert [int(message.payload) for message in messages] == list(range(50))
    assert {message.qos for message in messages} == {qos}


@VERSIONS
def test_retained(connect: Connect, name: str, version: int) -> None:
    client = connect(version, name)
    client.publish(f"{name}/state", "on", 1, retain=True)
    client.subscribe(f"{name}/#", 1)
    (message,) = client.take()
    assert (message.payload, message.retain) == (b"on", True)
    client.publish(f"{name}/state", "", 1, retain=True)
    (deleted,) = client.take()
    assert not deleted.retain
    later = connect(version, f"{name}-later")
    later.subscribe(f"{name}/#", 1)
    client.publish(f"{name}/end", "end", 1)
    assert later.take()[0].payload == b"end"


@VERSIONS
def test_will(connect: Connect, server: Endpoints, name: str, version: int) -> None:
    watcher = connect(version, f"{name}-w")
    watcher.subscribe(f"{name}/gone", 2)
    mortal = Client(version, f"{name}-m")
    mortal.paho.will_set(f"{name}/gone", "it is dead", 2)
    mortal.connect(server.mqtt)
    mortal.die()
    (message,) = watcher.take()
    assert (message.payload, message.qos) == (b"it is dead", 2)


@VERSIONS
def test_a_persistent_session_resumes(connect: Connect, server: Endpoints, name: str, version: int) -> None:
    first = Client(version, name, clean=False, expiry_s=600).connect(server.mqtt)
    assert not first.session_present
    first.subscribe([(f"{name}/#", 2)])
    first.end()
    publisher = connect(version, f"{name}-p")
    for number in range(30):
        publisher.publish(f"{name}/x", str(number), 1 + number % 2)
    second = connect(version, name, clean=False, expiry_s=600)
    assert second.session_present
    messages = second.take(30)
    for qos in (1, 2):  # paho hands QoS 2 over at PUBREL, so the order holds for each QoS
        assert [int(message.payload) for message in messages if message.qos == qos] == list(range(qos - 1, 30, 2))


@VERSIONS
def test_takeover(connect: Connect, name: str, version: int) -> None:
    first = connect(version, name)
    first.paho.reconnect_delay_set(60, 60)
    connect(version, name)
    reason = first.wait("disconnect")
    if version == V5:
        assert reason.value == 0x8E


@VERSIONS
def test_shared_subscription(connect: Connect, name: str, version: int) -> None:
    members = [connect(version, f"{name}-{number}") for number in range(3)]
    for member in members:
        member.subscribe(f"$share/workers/{name}/#", 1)
    publisher = connect(version, f"{name}-p")
    for number in range(60):
        publisher.publish(f"{name}/job", str(number), 1)
    got: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(got) < 60 and time.monotonic() < deadline:
        for member in members:
            while not member.messages.empty():
                got.append(int(member.messages.get().payload))
        time.sleep(0.01)
    assert sorted(got) == list(range(60))


@VERSIONS
def test_unsubscribe(connect: Connect, name: str, version: int) -> None:
    client = connect(version, name)
    client.subscribe([(f"{name}/a", 1), (f"{name}/b", 1)])
    client.paho.on_unsubscribe = lambda *_: client.events.put(("unsuback", None))
    client.paho.unsubscribe(f"{name}/a")
    client.wait("unsuback")
    client.publish(f"{name}/a", "no", 1)
    client.publish(f"{name}/b", "yes", 1)
    assert client.take()[0].payload == b"yes"


def test_properties_are_carried(connect: Connect, name: str) -> None:
    client = connect(V5, name)
    client.subscribe(f"{name}/#", 1)
    sent = Properties(PacketTypes.PUBLISH)
    sent.ContentType = "application/json"
    sent.ResponseTopic = f"{name}/answer"
    sent.CorrelationData = b"\x00\x01"
    sent.PayloadFormatIndicator = 1
    sent.MessageExpiryInterval = 100
    sent.UserProperty = [("unit", "°C"), ("unit", "K")]
    client.publish(f"{name}/x", "21.5", 1, properties=sent)
    got = client.take()[0].properties
    for field in ("ContentType", "ResponseTopic", "CorrelationData", "PayloadFormatIndicator", "UserProperty"):
        assert getattr(got, field) == getattr(sent, field), field
    assert 98 <= got.MessageExpiryInterval <= 100


def test_subscription_options(connect: Connect, name: str) -> None:
    client = connect(V5, name)
    client.publish(f"{name}/x", "old", 1, retain=True)
    identifier = Properties(PacketTypes.SUBSCRIBE)
    identifier.SubscriptionIdentifier = 77
    options = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    client.subscribe(f"{name}/x", options=options, properties=identifier)
    client.publish(f"{name}/x", "mine", 1)
    connect(V5, f"{name}-other").publish(f"{name}/x", "theirs", 1, retain=True)
    (message,) = client.take()
    assert (message.payload, message.retain) == (b"theirs", True)
    assert message.properties.SubscriptionIdentifier == [77]


def test_topic_aliases(connect: Connect, name: str) -> None:
    client = connect(V5, name)
    client.subscribe(f"{name}/#", 1)
    alias = Properties(PacketTypes.PUBLISH)
    alias.TopicAlias = 3
    client.publish(f"{name}/long/name", "1", 1, properties=alias)
    client.paho.publish("", "2", 1, properties=alias).wait_for_publish(WAIT_S)
    assert [(message.topic, message.payload) for message in client.take(2)] == [(f"{name}/long/name", b"1"), (f"{name}/long/name", b"2")]


@pytest.mark.parametrize("transport", ["tls", "mutual", "websockets", "wss"])
@VERSIONS
def test_transports(connect: Connect, server: Endpoints, name: str, version: int, transport: str) -> None:
    client = Client(version, name, transport="websockets" if transport in ("websockets", "wss") else "tcp")
    if transport != "websockets":
        identity = (server.client_cert, server.client_key) if transport == "mutual" else (None, None)
        client.paho.tls_set(server.ca, *identity, tls_version=ssl.PROTOCOL_TLS_CLIENT)
    ports = {"tls": server.mqtts, "mutual": server.mutual, "websockets": server.ws, "wss": server.wss}
    client.connect(ports[transport])
    topic = "private/device-7/x" if transport == "mutual" else f"{name}/x"
    client.subscribe(topic, 2)
    for number, size in enumerate((0, 200, 70_000, 300_000)):
        client.publish(topic, bytes(size), number % 3)
    assert [len(message.payload) for message in client.take(4)] == [0, 200, 70_000, 300_000]
    client.end()
