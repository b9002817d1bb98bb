"""CONNECT (section 3.1): what the server takes, what it refuses, and how."""

from __future__ import annotations

import string
from pathlib import Path

import pytest

from . import wire
from .conftest import Connect, Dial
from .covers import V5, V31, V311, both_versions, covers
from .properties import encode, text
from .servers import Server
from .wire import Type, Will

ILL_FORMED = b"a\xed\xa0\x80b"  # a surrogate
FIELDS = text("id") + text("will") + text("gone") + text("user") + text("word")


def assert_connect_refused(dial: Dial, version: int, raw: bytes, *reasons: int) -> None:
    """MQTT 3.1.1 closes without a CONNACK [MQTT-3.1.4-1]; MQTT 5.0 may send one with the reason."""
    client = dial(version)
    client.send(raw)
    packets = client.closed()
    if version == V311:
        assert packets == []
        return
    assert [packet.type for packet in packets] in ([], [Type.CONNACK])
    assert all(packet.reason in reasons for packet in packets), packets


# name -> (versions, arguments of wire.connect). Will properties of MQTT 5.0 are put before the Will Topic where flags ask for a will.
BAD_CONNECTS: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "header flags": ((V311, V5), {"header": 0x11}),
    "reserved flag": ((V311, V5), {"flags": 0x03}),
    "will QoS 3": ((V311, V5), {"will": Will("will", qos=3)}),
    "will QoS without will": ((V311, V5), {"flags": 0x0A}),
    "will retain without will": ((V311, V5), {"flags": 0x22}),
    "will fields without will flag": ((V311, V5), {"flags": 0x02, "payload": text("id") + text("will") + text("gone")}),
    "will flag without will fields": ((V311, V5), {"flags": 0x06}),
    "user flag without user name": ((V311, V5), {"flags": 0x82}),
    "user name without flag": ((V311, V5), {"flags": 0x02, "payload": text("id") + text("user")}),
    "password flag without password": ((V311, V5), {"flags": 0xC2, "payload": text("id") + text("user")}),
    "password without flag": ((V311, V5), {"flags": 0x82, "payload": text("id") + text("user") + text("word")}),
    "password flag without user flag": ((V311,), {"flags": 0x42, "payload": text("id") + text("word")}),
    "no client id": ((V311, V5), {"payload": b""}),
    "client id cut": ((V311, V5), {"payload": b"\x00\x05ab"}),
    "ill-formed client id": ((V311, V5), {"client_id": ILL_FORMED}),
    "null in client id": ((V311, V5), {"client_id": b"a\0b"}),
    "ill-formed will topic": ((V311, V5), {"will": Will(ILL_FORMED)}),
    "wildcard in will topic": ((V311, V5), {"will": Will("a/#")}),
    "empty will topic": ((V311, V5), {"will": Will("")}),
    "ill-formed user name": ((V311, V5), {"username": ILL_FORMED, "password": b"word"}),
    "property twice": ((V5,), {"properties": [("session_expiry", 1), ("session_expiry", 1)]}),
    "receive maximum 0": ((V5,), {"properties": [("receive_maximum", 0)]}),
    "maximum packet size 0": ((V5,), {"properties": [("maximum_packet_size", 0)]}),
    "request problem information 2": ((V5,), {"properties": [("request_problem_information", 2)]}),
    "request response information 2": ((V5,), {"properties": [("request_response_information", 2)]}),
    "authentication data alone": ((V5,), {"properties": [("authentication_data", b"x")]}),
    "property of PUBLISH": ((V5,), {"properties": [("content_type", b"x")]}),
    "ill-formed user property": ((V5,), {"properties": [("user_property", (b"k", ILL_FORMED))]}),
    "will payload format 2": ((V5,), {"will": Will("will", properties=[("payload_format", 2)])}),
    "topic alias in will": ((V5,), {"will": Will("will", properties=[("topic_alias", 1)])}),
}
BAD_CASES = [
    pytest.param(version, arguments, id=f"{case}, {'5.0' if version == V5 else '3.1.1'}")
    for case, (versions, arguments) in BAD_CONNECTS.items()
    for version in versions
]


@covers(
    v3="3.1.2-3 3.1.2-9 3.1.2-11 3.1.2-13 3.1.2-14 3.1.2-15 3.1.2-18 3.1.2-19 3.1.2-20 3.1.2-21 3.1.2-22 3.1.3-3 3.1.3-4 3.1.3-10 "
    "3.1.3-11 3.1.4-1 3.2.2-6 2.2.2-1 2.2.2-2 1.5.3-1 1.5.3-2 4.7.1-1",
    v5="3.1.2-3 3.1.2-9 3.1.2-11 3.1.2-12 3.1.2-13 3.1.2-16 3.1.2-17 3.1.2-18 3.1.2-19 3.1.3-3 3.1.3-4 3.1.3-8 3.1.3-11 3.1.3-12 "
    "3.1.4-1 2.1.3-1 1.5.4-1 1.5.4-2 1.5.7-1 3.14.0-1 4.13.1-1",
)
@pytest.mark.parametrize(("version", "arguments"), BAD_CASES)
def test_connect_that_breaks_a_rule_is_refused(dial: Dial, version: int, arguments: dict[str, object]) -> None:
    arguments = {"client_id": "id", **arguments}
    raw = wire.connect(version=version, **arguments)  # type: ignore[arg-type]
    assert_connect_refused(dial, version, raw, 0x81, 0x82, 0x85, 0x90, 0x9B)


@covers(v3="3.1.4-1 3.1.3-1", v5="3.1.4-1 3.1.3-1")
@both_versions
def test_connect_cut_short_is_refused(dial: Dial, version: int) -> None:
    """Each cut keeps the fixed header honest, so the packet is whole on the wire and short inside."""
    body = wire.connect("id", version, will=Will("will"), username="user", password=b"word")[2:]
    for length in range(len(body)):
        client = dial(version)
        client.send(wire.frame(0x10, body[:length]))
        assert all(packet.reason >= 0x80 for packet in client.closed())


@covers(v3="3.1.2-1 3.1.4-1", v5="3.1.2-1")
@both_versions
@pytest.mark.parametrize("protocol", [b"", b"MQT", b"mqtt", b"MQTTX", b"HTTP", b"MQ\xff\xff"])
def test_wrong_protocol_name_is_refused(dial: Dial, version: int, protocol: bytes) -> None:
    """Without a CONNACK in 3.1.1; in 5.0 the server may show with one that it speaks MQTT."""
    client = dial(version)
    client.send(wire.connect("id", version, protocol=protocol))
    assert [packet.reason for packet in client.closed()] in ([[]] if version == V311 else [[], [0x81], [0x84]])


@covers(v3="3.1.2-2 3.2.2-5", v5="3.1.2-2")
@pytest.mark.parametrize("form", [V311, V5])
@pytest.mark.parametrize("level", [0, 1, 2, 6, 7, 99, 127, 255])
def test_unknown_protocol_level_is_refused(dial: Dial, level: int, form: int) -> None:
    """Return code 1 as 3.1.1 has it; a level still to come gets 0x84 where the packet has the form of 5.0, and only there."""
    client = dial(V311)
    will = Will("will", qos=1)
    client.send(wire.connect("id", form, level=level, will=will, username="user", password=b"secret"))
    answer = b""
    while chunk := client.stream.recv(4096):
        answer += chunk
    if level > V5 and form == V5:
        assert answer[:1] + answer[2:4] == b"\x20\x00\x84"
    else:
        assert answer == b"\x20\x02\x00\x01"


@covers(v3="3.1.0-1 3.2.0-1", v5="3.1.0-1 3.2.0-1 3.14.0-1")
@both_versions
@pytest.mark.parametrize("kind", [kind for kind in Type if kind != Type.CONNECT])
def test_first_packet_must_be_connect(dial: Dial, version: int, kind: Type) -> None:
    client = dial(version)
    client.send(wire.frame(kind << 4 | wire.FLAGS.get(kind, 0), b"\x00\x01a\x00\x01\x00"[: 0 if kind in (12, 13, 14) else None]))
    assert all(packet.type == Type.CONNACK and packet.reason for packet in client.closed())


@covers(v3="3.1.0-2 4.8.0-1", v5="3.1.0-2 3.2.0-2 4.13.1-1")
@both_versions
def test_second_connect_ends_the_connection(connect: Connect, name: str, version: int) -> None:
    client = connect(version, name)
    client.send(wire.connect(name, version))
    client.refused(0x82)


@covers(v3="3.1.4-4 3.2.0-1 3.2.2-1", v5="3.1.4-5 3.2.0-1 3.2.0-2 3.2.2-1 3.2.2-8")
@both_versions
def test_connect_is_acknowledged_once_and_first(dial: Dial, name: str, version: int) -> None:
    client = dial(version)
    client.send(wire.connect(name, version), wire.subscribe(1, [(name, 0)], version=version), wire.PINGREQ)
    assert client.next().type == Type.CONNACK
    assert {client.next().type for _ in range(2)} == {Type.SUBACK, Type.PINGRESP}
    client.silent()


@covers(v3="3.1.4-5 3.1.3-8 3.1.3-9 3.2.2-4 3.2.2-5")
def test_nothing_after_a_refused_connect_is_processed(dial: Dial, connect: Connect, name: str) -> None:
    client = dial(V311)
    client.send(wire.connect("", V311, clean=False), wire.publish(name, b"x", version=V311, retain=True))
    assert [packet.raw for packet in client.closed()] == [b"\x20\x02\x00\x02"]
    reader = connect()
    reader.subscribe(name)
    reader.silent()


@pytest.mark.parametrize("clean", [True, False])
def test_mqtt_3_1_has_no_empty_client_id(dial: Dial, clean: bool) -> None:
    """MQTT 3.1, section 3.1: the identifier is 1 to 23 characters long; return code 2 is "identifier rejected"."""
    client = dial(V31)
    client.send(wire.connect("", V31, clean=clean))
    assert [packet.raw for packet in client.closed()] == [b"\x20\x02\x00\x02"]


@covers(v5="3.1.4-6 3.2.2-6 3.2.2-7 4.12.0-1 4.12.0-4 4.13.2-1")
def test_nothing_after_a_refused_connect_is_processed_5(dial: Dial, connect: Connect, name: str) -> None:
    client = dial()
    refused = wire.connect(name, properties=[("authentication_method", b"NO-SUCH-METHOD")])
    client.send(refused, wire.publish(name, b"x", retain=True))
    packets = client.closed()
    assert [(packet.type, packet.reason) for packet in packets] == [(Type.CONNACK, 0x8C)]
    reader = connect()
    reader.subscribe(name)
    reader.silent()


@covers(v3="3.1.3-5", v5="3.1.3-5")
@both_versions
@pytest.mark.parametrize("client_id", ["a", "0123456789abcdefghijklm", *(string.ascii_letters[i : i + 23] for i in (0, 29)), "x9"])
def test_plain_client_ids_are_allowed(connect: Connect, version: int, client_id: str) -> None:
    connect(version, client_id).alive()


@covers(v3="3.1.3-9", v5="3.1.3-8")
@both_versions
@pytest.mark.parametrize("client_id", ["a b", "+", "#", "a/b", "$x", "ü" * 20, "\ufeffx", "y" * 200, "z" * 65535], ids=range(9))
def test_other_client_ids_work_or_are_refused_by_name(dial: Dial, version: int, client_id: str) -> None:
    client = dial(version)
    connack = client.connect(client_id)
    if connack.reason:
        assert connack.reason == (0x85 if version == V5 else 2)
        assert client.closed() == []
    else:
        client.alive()


@covers(v3="3.1.3-6 3.1.3-7")
def test_empty_client_ids_are_each_somebody(connect: Connect, name: str) -> None:
    one, other = connect(V311, ""), connect(V311, "")
    for client in (one, other):
        client.subscribe(name)
    one.publish(name, b"x")
    for client in (one, other):
        assert client.message().payload == b"x"


@covers(v5="3.1.3-6 3.1.3-7 3.2.2-16")
def test_empty_client_id_is_told_its_name(connect: Connect, name: str) -> None:
    given = []
    for _ in range(3):
        client = connect(5, "", expiry=60)
        (assigned,) = client.connack.every("assigned_client_id")
        assert isinstance(assigned, bytes) and assigned
        given.append(assigned.decode())
    assert len(set(given)) == 3
    client.subscribe(name, qos=1)
    client.drop()
    connect().publish(name, b"kept", qos=1)
    again = connect(5, given[2], clean=False, expiry=0)
    assert again.connack.session_present and not again.connack.every("assigned_client_id")
    assert again.message().payload == b"kept"


@covers(v5="3.1.2-18 3.1.2-19")
def test_password_needs_no_user_name(dial: Dial, name: str) -> None:
    """MQTT 5.0 takes a password alone, where 3.1.1 forbids it."""
    client = dial()
    client.send(wire.connect(name, password=b"word"))
    assert client.next().reason == 0


@covers(v3="3.1.3-1 3.1.2-19 3.1.2-21", v5="3.1.3-1 3.1.2-17 3.1.2-19 2.2.2-1")
@both_versions
def test_fields_are_read_in_their_order(guarded_dial: Dial, version: int, name: str) -> None:
    """Client id, will and credentials each have their effect, so none was taken for another."""
    watcher = guarded_dial(version)
    assert watcher.connect(name + "w", username="alice", password=b"wonderland").reason == 0
    watcher.subscribe(f"open/{name}")
    client = guarded_dial(version)
    assert client.connect(name, will=Will(f"open/{name}", b"payload"), username="bob", password=b"builder").reason == 0
    client.close()
    message = watcher.message()
    assert (message.topic, message.payload) == (f"open/{name}".encode(), b"payload")


@covers(v3="3.2.2-4 3.2.2-5", v5="3.1.4-2 3.2.2-6 3.2.2-7 3.2.2-8 4.13.2-1")
@both_versions
@pytest.mark.parametrize("credentials", [{}, {"username": "bob", "password": b"wrong"}, {"username": "nobody", "password": b"x"}], ids=len)
def test_bad_credentials_are_refused(guarded_dial: Dial, version: int, credentials: dict[str, object], name: str) -> None:
    client = guarded_dial(version)
    connack = client.connect(name, clean=False, **credentials)  # type: ignore[arg-type]
    assert connack.reason in ((4, 5) if version == V311 else (0x86, 0x87))
    assert not connack.session_present
    assert client.closed() == []


@covers(v3="7.0.0-2 7.1.1-1 4.1.0-2", v5="4.2-1 3.2.2-9 3.2.2-10 3.2.2-12 3.2.2-13")
@both_versions
def test_bare_client_gets_every_qos(connect: Connect, name: str, version: int) -> None:
    """No property, no extension, plain TCP: all three QoS in both directions, and wills at each.

    The server announces neither a Maximum QoS nor missing retain, so it has to accept both.
    """
    client = connect(version, will=Will(name + "/will", qos=2, retain=True))
    assert client.connack.number("maximum_qos", 2) == 2
    assert client.connack.number("retain_available", 1) == 1
    assert client.subscribe(*(f"{name}/{qos}" for qos in range(3)), qos=2).reasons == (2, 2, 2)
    for qos in range(3):
        client.publish(f"{name}/{qos}", b"x", qos=qos, retain=True)
        assert client.message().qos == qos


@covers(v5="2.2.2-1 3.2.2-1 4.12.0-6")
def test_connack_is_plain_without_authentication_method(connect: Connect) -> None:
    client = connect()
    assert not client.connack.every("authentication_method")
    assert not client.connack.every("authentication_data")


@covers(v5="3.1.2-28")
@pytest.mark.parametrize("properties", [[], [("request_response_information", 0)]], ids=["absent", "0"])
def test_response_information_only_where_asked(connect: Connect, properties: list[tuple[str, int]]) -> None:
    assert not connect(properties=properties).connack.every("response_information")


@covers(v3="7.0.0-1")
def test_server_opens_no_connection_of_its_own(connect: Connect, broker: Server) -> None:
    """It is no client of other servers: each of its TCP connections has a listener's port on its side."""
    connect()
    assert open_ports(broker.process.pid) <= {broker.mqtt[1], broker.websocket[1]}


def open_ports(pid: int) -> set[int]:
    """Local ports of the established IPv4 connections that a process holds (Linux)."""
    sockets = {str(link.readlink())[8:-1] for link in Path(f"/proc/{pid}/fd").iterdir() if str(link.readlink()).startswith("socket:")}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "01" and row[9] in sockets}


@covers(v5="3.1.2-24")
@pytest.mark.parametrize("size", [1, 2, 4, 5, 10, 15])
def test_no_connack_larger_than_the_client_takes(dial: Dial, name: str, size: int) -> None:
    """It is closed at once: without its CONNACK it could go on with nothing."""
    client = dial()
    client.send(wire.connect(name, properties=[("maximum_packet_size", size)], will=Will(f"{name}/will")))
    assert client.closed() == []


@covers(v5="3.2.2-19 3.2.2-20")
def test_refusal_fits_the_clients_packet_size(guarded_dial: Dial, name: str) -> None:
    """A CONNACK without texts has 5 bytes: texts that don't fit stay away."""
    for size in (5, 8, 12, 20):
        client = guarded_dial()
        client.send(wire.connect(name, username="bob", password=b"wrong", properties=[("maximum_packet_size", size)]))
        assert all(len(packet.raw) <= size for packet in client.closed())


def test_properties_of_connect_are_all_taken(connect: Connect) -> None:
    """Every property of table 2-4 for CONNECT and its will, at its bounds."""
    will = Will(
        "w",
        properties=[
            ("will_delay", 0),
            ("payload_format", 1),
            ("message_expiry", 0xFFFFFFFF),
            ("content_type", b""),
            ("response_topic", b"r"),
            ("correlation_data", b"\0"),
            ("user_property", (b"", b"")),
        ],
    )
    properties = [
        ("session_expiry", 0),
        ("receive_maximum", 65535),
        ("maximum_packet_size", 0xFFFFFFFF),
        ("topic_alias_maximum", 65535),
        ("request_response_information", 1),
        ("request_problem_information", 0),
        ("user_property", (b"k", b"v")),
        ("user_property", (b"k", b"v")),
    ]
    connect(will=will, properties=properties).disconnect()  # type: ignore[arg-type]
    assert len(encode([])) == 1
