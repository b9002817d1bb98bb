"""amqtt's client (MQTT 3.1.1), over TCP, TLS and WebSocket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from amqtt.client import MQTTClient

from .conftest import Endpoints

WAIT_S = 5


def client(name: str, **config: Any) -> MQTTClient:
    return MQTTClient(client_id=name, config={"auto_reconnect": False, "keep_alive": 30, **config})


async def take(receiver: MQTTClient, number: int) -> list[tuple[str, bytes, int]]:
    messages = []
    for _ in range(number):
        message = await receiver.deliver_message(timeout_duration=WAIT_S)
        assert message is not None
        messages.append((message.topic, bytes(message.data), message.qos))
    return messages


def urls(server: Endpoints) -> dict[str, str]:
    return {"tcp": f"mqtt://127.0.0.1:{server.mqtt}", "tls": f"mqtts://localhost:{server.mqtts}", "ws": f"ws://127.0.0.1:{server.ws}/mqtt"}


@pytest.mark.parametrize("transport", ["tcp", "tls", "ws"])
def test_every_qos_both_ways_and_retained(server: Endpoints, name: str, transport: str) -> None:
    async def scenario() -> None:
        both = client(name, check_hostname=False)
        extra = {"cafile": server.ca} if transport == "tls" else {}
        await both.connect(urls(server)[transport], **extra)
        await both.publish(f"{name}/kept", b"before", qos=1, retain=True)
        await both.subscribe([(f"{name}/#", 2)])
        assert await take(both, 1) == [(f"{name}/kept", b"before", 1)]
        for number in range(12):
            await both.publish(f"{name}/x", b"%d" % number, qos=number % 3)
        messages = await take(both, 12)
        for qos in range(3):
            assert [int(data) for _, data, its_qos in messages if its_qos == qos] == list(range(qos, 12, 3))
        await both.disconnect()

    asyncio.run(scenario())


def test_persistent_session_and_shared_subscription(server: Endpoints, name: str) -> None:
    async def scenario() -> None:
        url = urls(server)["tcp"]
        first = client(name)
        await first.connect(url, cleansession=False)
        await first.subscribe([(f"{name}/#", 1)])
        await first.disconnect()
        publisher = client(f"{name}-p")
        await publisher.connect(url)
        for number in range(5):
            await publisher.publish(f"{name}/x", b"%d" % number, qos=2)
        second = client(name)
        await second.connect(url, cleansession=False)
        assert [data for _, data, _ in await take(second, 5)] == [b"%d" % number for number in range(5)]
        member = client(f"{name}-m")
        await member.connect(url)
        await member.subscribe([(f"$share/g/{name}/jobs", 1)])
        await publisher.publish(f"{name}/jobs", b"work", qos=1)
        assert await take(member, 1) == [(f"{name}/jobs", b"work", 1)]
        for one in (publisher, second, member):
            await one.disconnect()

    asyncio.run(scenario())


def test_will(server: Endpoints, name: str) -> None:
    async def scenario() -> None:
        url = urls(server)["tcp"]
        watcher = client(f"{name}-w")
        await watcher.connect(url)
        await watcher.subscribe([(f"{name}/gone", 1)])
        mortal = client(f"{name}-m", will={"topic": f"{name}/gone", "message": "dead", "qos": 1, "retain": False})
        await mortal.connect(url)
        assert mortal._handler is not None
        mortal._handler.writer._writer.transport.abort()  # type: ignore[union-attr]
        assert await take(watcher, 1) == [(f"{name}/gone", b"dead", 1)]
        await watcher.disconnect()

    asyncio.run(scenario())
