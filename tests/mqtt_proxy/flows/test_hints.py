"""An engine that hands nothing over: hints carry the news, and where they are lost the re-poll does (law three)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmq_store.api.model import UNKNOWN, LightQueue, Message, Pulled, Route, Run
from lmq_store.api.ports import Done
from mqtt_proxy.settings import Settings
from notify.api import Hints
from tests.conformance import wire
from tests.conformance.wire import Type
from tests.mqtt_proxy.in_memory import BrokerInMemory, Client, open_unsynced

REPOLL_MS = 1_000


class DistantStore:
    """The embedded store as seen from afar: handles of its own, which learn of an append only by asking."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.bounds = replace(inner.bounds, hands_over=False)
        self.handles: dict[int, LightQueue] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open_queue(self, queue_id: int, name: bytes) -> LightQueue:
        self.inner.open_queue(queue_id, name)
        return self.handles.setdefault(queue_id, LightQueue(queue_id, name, UNKNOWN))

    def drop_queue(self, queue: LightQueue) -> None:
        del self.handles[queue.id]
        self.inner.drop_queue(self._inner(queue))

    def _inner(self, queue: LightQueue) -> LightQueue:
        handle: LightQueue = self.inner.open_queue(queue.id, queue.name)
        return handle

    def append(self, messages: list[Message], now_ms: int, done: Done) -> list[Run]:
        for message in messages:
            route = message.route
            assert route is not None
            parents = [self._inner(queue) for queue in route.parents]
            message.route = Route(route.topic, route.parent_id, parents, [self._inner(queue) for queue in route.lights])
        self.inner.append(messages, now_ms, done)
        return []

    def pull(self, queue: LightQueue, offset: int, max_messages: int, max_bytes: int, done: Callable[[Pulled], None]) -> Pulled | None:
        pulled: Pulled | None = self.inner.pull(self._inner(queue), offset, max_messages, max_bytes, done)
        return pulled

    def min_offset(self, queue: LightQueue) -> int:
        return int(self.inner.min_offset(self._inner(queue)))

    def max_offset(self, queue: LightQueue) -> int:
        queue.next_offset = int(self.inner.max_offset(self._inner(queue)))
        return queue.next_offset

    def load_offsets(self, queues: list[LightQueue]) -> None:
        pass

    def offset_at_position(self, queue: LightQueue, position: int) -> int:
        return int(self.inner.offset_at_position(self._inner(queue), position))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BrokerInMemory]:
    store = DistantStore(open_unsynced(tmp_path / "data"))
    with BrokerInMemory(store, Settings(allow_anonymous=True, repoll_ms=REPOLL_MS)) as lab:
        yield lab
        assert not lab.faults.records


def subscriber(lab: BrokerInMemory, client_id: str, *filters: tuple[str, int], **connect: Any) -> Client:
    client = lab.connect(client_id, **connect)
    client.send(wire.subscribe(1, filters))
    lab.settle()
    assert client.take()[0].type == Type.SUBACK
    return client


def publish(lab: BrokerInMemory, client: Client, count: int, topic: str = "a/b", qos: int = 1, first: int = 0) -> None:
    client.send(*(wire.publish(topic, b"%d" % n, qos=qos, packet_id=n + 1 if qos else None) for n in range(first, first + count)))
    lab.settle()


def received(lab: BrokerInMemory, client: Client) -> list[int]:
    """The payloads that have come, each acknowledged as its QoS wants it."""
    found = []
    while packets := client.take():
        for packet in packets:
            if packet.type == Type.PUBLISH:
                found.append(int(packet.payload))
                if packet.qos:
                    client.send(wire.ack(Type.PUBACK if packet.qos == 1 else Type.PUBREC, packet.packet_id))
            elif packet.type == Type.PUBREL:
                client.send(wire.ack(Type.PUBCOMP, packet.packet_id))
        lab.settle()
    return found


def lose_all_hints(lab: BrokerInMemory) -> None:
    class Silent:
        def publish(self, hints: Hints) -> None: ...

    lab.broker.hints.notify = Silent()  # type: ignore[assignment]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_hints_wake_those_who_are_caught_up(lab: BrokerInMemory, qos: int) -> None:
    one = subscriber(lab, "one", ("a/+", qos))
    two = subscriber(lab, "two", ("a/#", qos), ("a/b", qos))
    publisher = lab.connect("publisher")
    publish(lab, publisher, 50, qos=qos)
    assert received(lab, one) == received(lab, two) == list(range(50))
    assert lab.broker.hints.behind_without_hint == 0


def test_nothing_is_told_before_it_is_durable(lab: BrokerInMemory) -> None:
    one = subscriber(lab, "one", ("a/+", 1))
    publisher = lab.connect("publisher")
    ends = []
    send = lab.broker.hints.notify

    class Watched:
        def publish(self, hints: Hints) -> None:
            ends.append((lab.store.durable_end(), lab.store.end()))
            send.publish(hints)

    lab.broker.hints.notify = Watched()  # type: ignore[assignment]
    publish(lab, publisher, 5)
    assert ends
    assert all(durable == end for durable, end in ends)
    assert received(lab, one) == list(range(5))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lost_hint_costs_latency_only(lab: BrokerInMemory, qos: int) -> None:
    one = subscriber(lab, "one", ("a/+", qos))
    two = subscriber(lab, "two", ("a/#", qos), ("a/b", qos))
    lose_all_hints(lab)
    publisher = lab.connect("publisher")
    publish(lab, publisher, 50, qos=qos)
    assert one.take() == two.take() == []
    lab.advance(REPOLL_MS + 100)
    assert received(lab, one) == received(lab, two) == list(range(50))
    assert lab.broker.hints.behind_without_hint >= 2


@pytest.mark.parametrize("hints", [True, False])
def test_a_shared_group(lab: BrokerInMemory, hints: bool) -> None:
    members = [subscriber(lab, f"member{number}", ("$share/g/a/+", 1)) for number in range(3)]
    if not hints:
        lose_all_hints(lab)
    publisher = lab.connect("publisher")
    publish(lab, publisher, 30)
    if not hints:
        lab.advance(REPOLL_MS + 100)
    parts = [received(lab, member) for member in members]
    assert all(parts)
    assert sorted(n for part in parts for n in part) == list(range(30))


def test_an_offline_session_finds_what_came(lab: BrokerInMemory) -> None:
    stays: dict[str, Any] = {"clean": False, "properties": [("session_expiry", 100)]}
    one = subscriber(lab, "one", ("a/+", 1), **stays)
    publisher = lab.connect("publisher")
    publish(lab, publisher, 3)
    assert received(lab, one) == [0, 1, 2]
    one.drop()
    publish(lab, publisher, 4, first=3)
    one = lab.connect("one", **stays)
    assert received(lab, one) == [3, 4, 5, 6]
    publish(lab, publisher, 2, first=7)
    assert received(lab, one) == [7, 8]


def test_a_look_round_is_spread_over_its_time(lab: BrokerInMemory) -> None:
    readers = [subscriber(lab, f"reader{number}", (f"a/{number}", 1)) for number in range(45)]
    lose_all_hints(lab)
    publisher = lab.connect("publisher")
    for number in range(45):
        publish(lab, publisher, 1, f"a/{number}", first=number)
    seen = []
    for _ in range(2 * REPOLL_MS // 100):
        lab.advance(100)
        seen.append(sum(len(received(lab, reader)) for reader in readers))
    assert sum(seen) == 45
    assert max(seen) <= 10
    assert sum(1 for count in seen if count) >= 9
