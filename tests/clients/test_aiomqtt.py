"""aiomqtt, MQTT 3.1.1 and 5.0."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from .conftest import Endpoints

WAIT_S = 5.0
V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


def client(server: Endpoints, version: aiomqtt.ProtocolVersion, client_id: str, *, keep: bool = False, **more: Any) -> aiomqtt.Client:
    if version == V5 and keep:
        more["properties"] = Properties(PacketTypes.CONNECT)
        more["properties"].SessionExpiryInterval = 600
    started: dict[str, Any] = {"clean_start": not keep} if version == V5 else {"clean_session": not keep}
    return aiomqtt.Client(
        "127.0.0.1", more.pop("port", server.mqtt), protocol=version, identifier=client_id, timeout=WAIT_S, **started, **more
    )


async def take(receiver: aiomqtt.Client, number: int) -> list[aiomqtt.Message]:
    messages: list[aiomqtt.Message] = []
    async with asyncio.timeout(WAIT_S):
        async for message in receiver.messages:
            messages.append(message)
            if len(messages) == number:
                break
    return messages


@VERSIONS
def test_qos_retained_and_shared(server: Endpoints, name: str, version: aiomqtt.ProtocolVersion) -> None:
    async def scenario() -> None:
        async with client(server, version, f"{name}-p") as publisher, client(server, version, f"{name}-s") as subscriber:
            await publisher.publish(f"{name}/kept", "before", qos=1, retain=True)
            await subscriber.subscribe(f"{name}/#", qos=2)
            (kept,) = await take(subscriber, 1)
            assert (kept.payload, kept.retain) == (b"before", True)
            for number in range(30):
                await publisher.publish(f"{name}/x", str(number), qos=number % 3)
            messages = await take(subscriber, 30)
            for qos in range(3):
                assert [int(message.payload) for message in messages if message.qos == qos] == list(range(qos, 30, 3))
            async with client(server, version, f"{name}-m1") as one, client(server, version, f"{name}-m2") as two:
                for member in (one, two):
                    await member.subscribe(f"$share/g/{name}/jobs", qos=1)
                for number in range(20):
                    await publisher.publish(f"{name}/jobs", str(number), qos=1)
                got = [*(await take(one, 10)), *(await take(two, 10))]
                assert sorted(int(message.payload) for message in got) == list(range(20))

    asyncio.run(scenario())


@VERSIONS
def test_session_and_will(server: Endpoints, name: str, version: aiomqtt.ProtocolVersion) -> None:
    async def scenario() -> None:
        async with client(server, version, name, keep=True) as first:
            await first.subscribe(f"{name}/#", qos=1)
        will = aiomqtt.Will(f"{name}/gone", "dead", 1)
        mortal = client(server, version, f"{name}-m", will=will)
        await mortal.__aenter__()
        mortal._client._sock_close()
        async with client(server, version, f"{name}-p") as publisher:
            await publisher.publish(f"{name}/x", "while away", qos=1)
        async with client(server, version, name, keep=True) as second:
            assert {message.payload for message in await take(second, 2)} == {b"dead", b"while away"}

    asyncio.run(scenario())


def test_properties_and_websocket(server: Endpoints, name: str) -> None:
    async def scenario() -> None:
        sent = Properties(PacketTypes.PUBLISH)
        sent.UserProperty = [("unit", "°C")]
        sent.MessageExpiryInterval = 60
        async with client(server, V5, name, transport="websockets", port=server.ws) as both:
            await both.subscribe(f"{name}/#", qos=2)
            await both.publish(f"{name}/x", bytes(100_000), qos=2, properties=sent)
            (message,) = await take(both, 1)
            assert len(message.payload) == 100_000
            assert message.properties.UserProperty == [("unit", "°C")]
            assert 58 <= message.properties.MessageExpiryInterval <= 60

    asyncio.run(scenario())
