"""Replay over plain MQTT: every way to name a place, history into live, over reconnects and crashes, with and without a queue."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import wire
from tests.conformance.wire import Packet, Type
from tests.mqtt_proxy.in_memory import CLOCK_MS, BrokerInMemory, Client, open_unsynced

KEPT = (("session_expiry", 3_600),)
STEP_MS = 60_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BrokerInMemory]:
    with BrokerInMemory(open_unsynced(tmp_path)) as lab:
        yield lab


def write_history(lab: BrokerInMemory, count: int, first: int = 0, step_ms: int = 0, payload: bytes = b"") -> None:
    """Messages `first`, `first` + 1 … to a/0, a/1, a/2 in turn; nobody subscribes to them."""
    publisher = lab.connect("p")
    for number in range(first, first + count):
        publisher.send(wire.publish(f"a/{number % 3}", b"%d" % number + payload, qos=1, packet_id=1))
        if step_ms or number % 50 == 49:
            lab.settle()
        if step_ms:
            lab.advance(step_ms, step_ms)
    lab.settle()


def replay(lab: BrokerInMemory, client: Client, place: str, topic_filter: str = "a/#", qos: int = 1, packet_id: int = 1) -> int:
    """The reason of the SUBACK; what comes behind it stays in the inbox."""
    client.send(wire.subscribe(packet_id, [(topic_filter, qos)], properties=[("user_property", (b"lmq-from", place.encode()))]))
    lab.settle()
    packets = client.take()
    suback = next(packet for packet in packets if packet.type == Type.SUBACK)
    client.inbox = [packet for packet in packets if packet is not suback]
    return suback.reasons[0]


def numbers(packets: list[Packet]) -> list[int]:
    return [int(packet.payload.split(b"-")[0]) for packet in packets if packet.type == Type.PUBLISH]


def position_of(packet: Packet) -> str:
    return next(value[1].decode() for name, value in packet.properties if name == "user_property" and value[0] == b"lmq-offset")  # type: ignore[index, union-attr]


def time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("registered", [False, True])
def test_every_way_to_name_a_place(lab: BrokerInMemory, registered: bool) -> None:
    if registered:  # the filter has a queue of its own
        keeper = lab.connect("keeper", clean=False, properties=KEPT)
        keeper.send(wire.subscribe(1, [("a/#", 0)]))
        lab.settle()
    write_history(lab, 9, step_ms=STEP_MS)
    reader = lab.connect("r")
    lab.broker.sessions[b"r"].inflight_max = 100  # nothing is acknowledged here
    assert replay(lab, reader, "earliest") == 1
    history = reader.take()
    assert numbers(history) == list(range(9))
    for number, place in ((9, "latest"), (4, f"offset:{position_of(history[4])}"), (6, time_text(CLOCK_MS + 6 * STEP_MS)), (7, "-PT2M")):
        assert replay(lab, reader, place) == 1, place
        assert numbers(reader.take()) == list(range(number, 9)), place


def test_the_3_1_1_form(lab: BrokerInMemory) -> None:
    write_history(lab, 6)
    reader = lab.connect("r", 4)
    reader.send(wire.subscribe(1, [("$replay/earliest/a/1", 0), ("$replay/-PT5M/a/2", 0)], version=4))
    lab.settle()
    assert sorted(numbers(reader.take())) == [1, 2, 4, 5]
    lab.connect("p2").send(wire.publish("a/1", b"100"))
    lab.settle()
    assert numbers(reader.take()) == [100]


@pytest.mark.parametrize(
    "place", ["", "yesterday", "-P", "offset:x", "offset:", "2024-13-01T00:00:00Z", "-PT1", "-PT", "-P1DT", "earliest "]
)
def test_places_that_mean_nothing_are_refused_for_that_filter_alone(lab: BrokerInMemory, place: str) -> None:
    client = lab.connect("c")
    assert replay(lab, client, place) == 0x8F
    assert not client.closed and lab.faults.records == []


@pytest.mark.parametrize("topic_filter", ["$share/g/$replay/earliest/h", "$share/g/$replay/-PT1H/#", "$share/g/$replay/"])
def test_a_shared_subscription_has_no_replay(lab: BrokerInMemory, topic_filter: str) -> None:
    client = lab.connect("c")
    client.send(wire.subscribe(1, [(topic_filter, 1), ("$share/g/h", 1)]))
    lab.settle()
    suback = next(packet for packet in client.take() if packet.type == Type.SUBACK)
    assert list(suback.reasons) == [0x8F, 1] and lab.faults.records == []
    assert replay(lab, client, "earliest", "$share/g/h") == 0x8F


@pytest.mark.parametrize("place", ["-P" + "9" * 30 + "D", "-P" + "9" * 400 + "D", "0001-01-01T00:00:00Z", "1969-01-01T00:00:00+23:00"])
def test_a_time_before_everything_is_the_beginning(lab: BrokerInMemory, place: str) -> None:
    write_history(lab, 3)
    client = lab.connect("c")
    assert replay(lab, client, place) == 1
    assert numbers(client.take()) == [0, 1, 2] and lab.faults.records == []


def test_a_time_to_come_is_the_end(lab: BrokerInMemory) -> None:
    write_history(lab, 3)
    client = lab.connect("c")
    assert replay(lab, client, "9999-12-31T23:59:59Z") == 1
    assert numbers(client.take()) == []


def test_a_shared_subscription_is_refused(lab: BrokerInMemory) -> None:
    assert replay(lab, lab.connect("c"), "earliest", "$share/g/a/#") == 0x8F


def drain(lab: BrokerInMemory, client: Client, most: int, seen: list[int]) -> None:
    """Take and acknowledge, as long as something comes and no more than `most`."""
    while len(seen) < most:
        lab.settle()
        packets = [packet for packet in client.take() if packet.type == Type.PUBLISH]
        if not packets:
            return
        for packet in packets:
            seen.append(int(packet.payload.split(b"-")[0]))
            client.send(wire.ack(Type.PUBACK, packet.packet_id))


def test_history_goes_into_live_without_gap_or_repeat(lab: BrokerInMemory) -> None:
    """Published while the walk goes on; the window is small."""
    write_history(lab, 300, payload=b"-" + bytes(5_000))
    reader = lab.connect("r", properties=(("receive_maximum", 7),))
    assert replay(lab, reader, "earliest") == 1
    seen: list[int] = []
    for more in range(5):
        drain(lab, reader, 40 * (more + 1), seen)
        write_history(lab, 10, first=300 + 10 * more)
    drain(lab, reader, 10_000, seen)
    assert seen == list(range(350))


def test_what_comes_in_the_turn_of_the_subscribe_is_in_no_gap(lab: BrokerInMemory) -> None:
    """It lies behind the end of history, and was routed before the filter had a queue."""
    write_history(lab, 3)
    publisher = lab.connect("p")
    reader = lab.connect("r")
    publisher.send(wire.publish("a/0", b"3", qos=1, packet_id=1))
    assert replay(lab, reader, "earliest") == 1
    assert numbers(reader.take()) == [0, 1, 2, 3]


def test_what_is_retained_in_the_turn_of_the_subscribe_is_received(lab: BrokerInMemory) -> None:
    publisher = lab.connect("p")
    reader = lab.connect("r")
    publisher.send(wire.publish("a/0", b"7", qos=1, packet_id=1, retain=True))
    reader.send(wire.subscribe(1, [("a/+", 0)]))
    lab.settle()
    assert numbers(reader.take()) == [7]


@pytest.mark.parametrize("crash", [False, True])
def test_a_session_goes_on_where_its_replay_was(tmp_path: Path, crash: bool) -> None:
    lab = BrokerInMemory(open_unsynced(tmp_path))
    write_history(lab, 300, payload=b"-" + bytes(5_000))
    properties: Any = (*KEPT, ("receive_maximum", 5))
    reader = lab.connect("r", clean=False, properties=properties)
    assert replay(lab, reader, "earliest") == 1
    seen: list[int] = []
    drain(lab, reader, 100, seen)
    if crash:
        lab.advance(1_500)
        drain(lab, reader, 110, seen)
        lab.cut_off()
        lab = BrokerInMemory(open_unsynced(tmp_path), now_ms=lab.now_ms)
    else:
        reader.drop()
        lab.settle()
    write_history(lab, 10, first=300)
    again = lab.connect("r", clean=False, properties=properties)
    drain(lab, again, 10_000, seen)
    assert list(dict.fromkeys(seen)) == list(range(310))
    assert len(seen) - 310 <= (40 if crash else 5)  # what was in flight, or acknowledged since the last commit, comes again
    lab.close()


def test_a_place_in_time_is_found_quickly_after_the_index_was_rebuilt(tmp_path: Path) -> None:
    """The time marks are made anew, else the whole log would be read in one go."""
    lab = BrokerInMemory(open_unsynced(tmp_path / "data", segment_bytes=64 << 20))
    for number in range(20):
        write_history(lab, 10, first=10 * number, step_ms=1_000, payload=b"-" + bytes(100_000))
    now_ms = lab.now_ms
    lab.close()
    shutil.rmtree(tmp_path / "data" / "index")
    with BrokerInMemory(open_unsynced(tmp_path / "data", segment_bytes=64 << 20), now_ms=now_ms) as lab:
        scanned = 0
        scan = lab.store.reader.scan

        def counted(position: int, max_bytes: int, end: int) -> Any:
            nonlocal scanned
            messages, next_position = scan(position, max_bytes, end)
            scanned += next_position - position
            return messages, next_position

        lab.store.reader = type("Counted", (), {"scan": staticmethod(counted)})()
        lab.store.position_at_time(now_ms - 5_000)
        assert scanned <= 4 << 20
