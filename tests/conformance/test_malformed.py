"""Malformed and out-of-place packets of every type (2.2.2, 4.8 of 3.1.1; 2.1.3, 4.13 of 5.0), whole and cut at every byte."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from . import wire
from .client import Client
from .conftest import Connect, Dial
from .covers import V5, V311, both_versions, covers
from .packet_samples import Sample, right_packets, wrong_packets
from .wire import Packet, Type, Will

PAUSE_S = 0.004  # between the two halves of a packet, for all connections of a test at once
AT_ONCE = 60

WRONG = wrong_packets()
RIGHT = list(right_packets())


def assert_refused(sample: Sample, packets: list[Packet]) -> None:
    """3.1.1 closes without a word, 5.0 with a DISCONNECT that gives one of the reasons."""
    if sample.version == V311:
        assert packets == []
    else:
        assert [packet.type for packet in packets] == [Type.DISCONNECT]
        assert packets[0].reason in sample.reasons, hex(packets[0].reason)


def send_cut(connect: Callable[[], Client], raw: bytes, positions: range) -> list[Client]:
    """One connection for each position: the bytes before it, a pause, and the rest."""
    clients = [connect() for _ in positions]
    for client, at in zip(clients, positions, strict=True):
        client.send(raw[:at])
    time.sleep(PAUSE_S)
    for client, at in zip(clients, positions, strict=True):
        client.send(raw[at:])
    return clients


@covers(
    v3="2.2.2-1 2.2.2-2 3.6.1-1 3.8.1-1 3.10.1-1 3.14.1-1 4.8.0-1 2.3.1-1 3.8.3-3 3.10.3-2",
    v5="2.1.3-1 3.6.1-1 3.8.1-1 3.10.1-1 3.14.1-1 3.15.1-1 4.13.1-1 3.14.2-1 4.13.2-1 3.14.4-1 3.14.4-2 4.12.0-7 3.8.3-2 3.10.3-2",
)
@pytest.mark.parametrize("sample", WRONG, ids=str)
def test_wrong_packet_ends_the_connection(connect: Connect, sample: Sample) -> None:
    client = connect(sample.version)
    client.send(sample.raw)
    assert_refused(sample, client.closed())


@covers(v3="2.2.2-2 4.8.0-1", v5="4.13.1-1 4.13.2-1")
@pytest.mark.parametrize("sample", WRONG, ids=str)
def test_wrong_packet_cut_at_every_byte_ends_the_connection(connect: Connect, sample: Sample) -> None:
    for client in send_cut(lambda: connect(sample.version), sample.raw, range(1, len(sample.raw))):
        assert_refused(sample, client.closed())
        client.close()


@covers(v3="7.1.1-1", v5="4.2-1")
@pytest.mark.parametrize("sample", RIGHT, ids=str)
def test_right_packet_cut_at_every_byte_is_taken(connect: Connect, sample: Sample) -> None:
    """The answer comes, and the packet after it is read from its first byte."""
    raw = sample.raw + wire.PINGREQ
    step = max(1, len(raw) // AT_ONCE)
    for client in send_cut(lambda: connect(sample.version), raw, range(1, len(raw), step)):
        if sample.answer not in (None, Type.PINGRESP):
            client.expect(sample.answer)
        client.expect(Type.PINGRESP)
        client.close()


@covers(v3="7.1.1-1", v5="4.2-1")
@both_versions
def test_connect_cut_at_every_byte_is_taken(dial: Dial, name: str, version: int) -> None:
    will = Will(f"{name}/will", b"gone", 1, properties=[("payload_format", 1)])
    properties = [("receive_maximum", 10)] if version == V5 else []
    raw = wire.connect("", version, will=will, username="user", password=b"word", properties=properties) + wire.PINGREQ
    for client in send_cut(lambda: dial(version), raw, range(1, len(raw))):
        assert client.next().reason == 0
        assert client.next().type == Type.PINGRESP
        client.close()


@covers(v3="7.1.1-1", v5="4.2-1")
@both_versions
def test_bytes_one_by_one_and_all_at_once(connect: Connect, name: str, version: int) -> None:
    """The stream has no borders but those in the packets."""
    stream = b"".join(sample.raw for sample in RIGHT if sample.version == version)
    expected = [sample.answer for sample in RIGHT if sample.version == version and sample.answer is not None]
    at_once, drop_by_drop = connect(version), connect(version)
    at_once.send(stream)
    for at in range(len(stream)):
        drop_by_drop.send(stream[at : at + 1])
    for client in (at_once, drop_by_drop):
        assert sorted(client.next().type for _ in expected) == sorted(expected)


@covers(v3="4.8.0-1", v5="4.13.1-1")
@both_versions
def test_what_came_before_the_wrong_packet_counts(connect: Connect, name: str, version: int) -> None:
    """And nothing after it does."""
    watcher = connect(version)
    watcher.subscribe(f"{name}/#", qos=1)
    client = connect(version)
    before = wire.publish(f"{name}/before", version=version, qos=1, packet_id=1)
    after = wire.publish(f"{name}/after", version=version, qos=1, packet_id=2)
    client.send(before, b"\x00\x00", after)
    assert Type.PUBACK not in [packet.type for packet in client.closed()[1:]]
    assert watcher.message().topic == f"{name}/before".encode()
    watcher.silent(0.05)


@covers(v3="4.8.0-1", v5="4.13.1-1 3.2.2-15")
@both_versions
def test_claim_of_a_huge_packet_is_refused_at_once(connect: Connect, version: int) -> None:
    """256 MiB, announced in four bytes."""
    client = connect(version)
    client.send(b"\x30\xff\xff\xff\x7f")
    client.refused(0x95)


@covers(v3="4.8.0-1")
def test_claim_of_a_huge_connect_is_refused_at_once(dial: Dial) -> None:
    client = dial(V311)
    client.send(b"\x10\xff\xff\xff\x7f")
    assert client.closed() == []


@covers(v3="3.1.0-1")
def test_another_protocol_on_the_port_is_closed(dial: Dial) -> None:
    client = dial(V311)
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.closed() == []
