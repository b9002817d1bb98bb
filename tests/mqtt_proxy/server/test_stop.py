"""The end of a server, as its clients and the next process see it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance.wire import Type, Will
from tests.mqtt_proxy.server.running import RunningServer, running


def stop(server: RunningServer) -> None:
    asyncio.run_coroutine_threadsafe(server.server.stop(), server.loop).result(10)


@pytest.mark.parametrize(("reference", "reason"), [("", 0x8B), ("other:1883", 0x9C)])
def test_clients_are_told(tmp_path: Path, reference: str, reason: int) -> None:
    with running(tmp_path, server_reference=reference) as server:
        five, four = server.connect("five"), server.connect("four", 4)
        stop(server)
        last = five.closed()[-1]
        assert (last.type, last.reason) == (Type.DISCONNECT, reason)
        assert [value for name, value in last.properties if name == "server_reference"] == ([reference.encode()] if reference else [])
        assert four.closed() == []


def test_what_was_sent_last_is_kept_and_wills_wait(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        reader = server.connect("reader", expiry=1000)
        reader.subscribe("t", "will", qos=1)
        reader.disconnect()
        writer = server.connect("writer", expiry=1000, will=Will("will", b"gone", qos=1))
        for n in range(100):
            assert writer.publish("t", str(n).encode(), qos=1) in (0, 0x10)
        stop(server)
    with running(tmp_path, will_grace_s=1) as server:
        reader = server.connect("reader", clean=False, expiry=1000)
        assert reader.payloads(100) == [str(n).encode() for n in range(100)]
        assert reader.message().payload == b"gone"


def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        stop(server)
        stop(server)
