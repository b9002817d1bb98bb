"""What ends is gone by its reference counts: the server's cycle collector leaves old objects alone (server.COLLECTOR_STEPS)."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_proxy.flows.shared import SharedGroup
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.settings import Settings
from tests.conformance import wire
from tests.mqtt_proxy.in_memory import BrokerInMemory, open_unsynced

ROUNDS = 20


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BrokerInMemory]:
    with BrokerInMemory(open_unsynced(tmp_path), Settings(allow_anonymous=True, queue_grace_s=1)) as lab:
        yield lab


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only the cycle collector finds, from here to the end of the test."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("expiry_s", [0, 60], ids=["clean", "kept"])
def test_sessions_leave_no_cycles(lab: BrokerInMemory, garbage: list[object], expiry_s: int) -> None:
    for number in range(ROUNDS):
        client = lab.connect(f"c{number}", properties=(("session_expiry", expiry_s),))
        filters = [("a/+", 1), (f"b/{number}", 1), ("$share/g/s/#", 1)]
        client.send(wire.subscribe(1, filters), wire.publish("a/1", b"x", qos=1, packet_id=2))
        lab.settle()
        client.drop()
        lab.settle()
    del client
    lab.clients.clear()
    gc.collect()
    left = Counter(type(one).__name__ for one in garbage if isinstance(one, Session | Reader | SharedGroup))
    assert not left
