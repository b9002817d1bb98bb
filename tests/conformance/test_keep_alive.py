"""Keep alive (3.1.2.10, 3.2.2.3.14) and PINGREQ (3.12)."""

from __future__ import annotations

import threading
import time

from . import wire
from .client import Client
from .conftest import Connect
from .covers import V5, V311, both_versions, covers
from .servers import Server
from .wire import Type, Will


@covers(v3="3.12.4-1", v5="3.12.4-1")
@both_versions
def test_each_ping_is_answered(connect: Connect, version: int) -> None:
    client = connect(version)
    client.send(wire.PINGREQ * 7)
    assert [client.next().type for _ in range(7)] == [Type.PINGRESP] * 7
    client.silent()


def note_close(client: Client, found: dict[str, tuple[float, list[int]]], case: str) -> None:
    """Notes the seconds until the server's close and the reason codes that it sent."""
    started = time.monotonic()
    packets = client.closed(8)
    found[case] = time.monotonic() - started, [packet.reason for packet in packets]


@covers(v3="3.1.2-24 3.1.2-8", v5="3.1.2-22 3.2.2-22 3.1.2-8 3.14.2-1")
def test_silent_clients_are_closed_after_one_and_a_half(connect: Connect, name: str) -> None:
    """All cases run side by side: silence, half a packet, and those who must stay."""
    watcher = connect()
    watcher.subscribe(f"{name}/#")
    found: dict[str, tuple[float, list[int]]] = {}
    cases = {
        "3.1.1": connect(V311, keep_alive=1, will=Will(f"{name}/3.1.1")),
        "5.0": connect(V5, keep_alive=1, will=Will(f"{name}/5.0")),
        "half": connect(V311, keep_alive=1),
        "later": connect(V5, keep_alive=2),
    }
    assert not cases["5.0"].connack.every("server_keep_alive")
    endless, busy, acking = connect(V5, keep_alive=0), connect(V311, keep_alive=1), connect(V5, keep_alive=1)
    threads = [threading.Thread(target=note_close, args=(client, found, case)) for case, client in cases.items()]
    for thread in threads:
        thread.start()
    cases["half"].send(wire.publish(name, b"x" * 100, version=V311)[:50])
    for _ in range(8):
        time.sleep(0.5)
        busy.alive()
        acking.send(wire.publish(f"other/{name}", b"any packet counts"))
    for thread in threads:
        thread.join()
    assert {case: reasons for case, (_, reasons) in found.items()} == {"3.1.1": [], "5.0": [0x8D], "half": [], "later": [0x8D]}
    assert all(1.4 <= seconds < 2.5 for case, (seconds, _) in found.items() if case != "later"), found
    assert 2.9 <= found["later"][0] < 4, found
    assert {m.topic for m in watcher.take(2)} == {f"{name}/3.1.1".encode(), f"{name}/5.0".encode()}
    for client in (endless, busy, acking):
        client.alive()


@covers(v5="3.1.2-21 3.2.2-21 3.1.2-22")
def test_server_keep_alive_replaces_the_clients(impatient_broker: Server, name: str) -> None:
    with Client.dial(impatient_broker.mqtt) as idle, Client.dial(impatient_broker.mqtt) as endless:
        for client, keep_alive in ((idle, 60), (endless, 0)):
            client.connect(f"{name}-{keep_alive}", keep_alive=keep_alive)
            assert client.connack.number("server_keep_alive") == 1
        started = time.monotonic()
        for client in (idle, endless):
            assert [packet.reason for packet in client.closed(4)] == [0x8D]
        assert 1.4 <= time.monotonic() - started < 3
