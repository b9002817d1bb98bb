"""AUTH and enhanced authentication (3.15, 4.12), shown with SCRAM-SHA-256 (RFC 7677)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

import pytest

from . import wire
from .client import Client
from .conftest import KIND, USERS, Connect, ConnectAs, Dial
from .covers import V5, covers
from .properties import Properties
from .wire import Packet, Type

METHOD = b"SCRAM-SHA-256"

needs_scram = pytest.mark.skipif(KIND != "lmq", reason="mosquitto has no enhanced authentication of its own")


class Scram:
    """The client's side of one exchange."""

    def __init__(self, user: str, password: str) -> None:
        self.password = password.encode()
        self.bare = b"n=" + user.encode() + b",r=" + base64.b64encode(os.urandom(18))
        self.first = b"n,," + self.bare
        self.signature = b""

    def final(self, challenge: bytes) -> bytes:
        """The answer to the server's first message."""
        fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
        assert fields[b"r"].startswith(self.bare.split(b"r=")[1]), "the server's nonce begins with ours"
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(fields[b"s"]), int(fields[b"i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = b"c=biws,r=" + fields[b"r"]
        signed = b",".join([self.bare, challenge, without_proof])
        proof = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        self.signature = base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256"))
        return without_proof + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(client_key, proof, strict=True)))


def data_of(packet: Packet) -> bytes:
    (data,) = packet.every("authentication_data")
    assert isinstance(data, bytes)
    return data


def step(data: bytes, method: bytes = METHOD) -> Properties:
    return [("authentication_method", method), ("authentication_data", data)]


def begin(client: Client, name: str, scram: Scram, *more: tuple[str, int]) -> Packet:
    """CONNECT with the first message; the server's challenge."""
    client.send(wire.connect(name, properties=[*step(scram.first), *more]))
    challenge = client.next()
    assert (challenge.type, challenge.reason) == (Type.AUTH, 0x18)
    assert challenge.every("authentication_method") == [METHOD]
    return challenge


def log_in(client: Client, name: str, user: str = "bob", *more: tuple[str, int]) -> list[Packet]:
    """The whole exchange, up to a CONNACK that says welcome."""
    scram = Scram(user, USERS[user])
    challenge = begin(client, name, scram, *more)
    client.send(wire.auth(0x18, step(scram.final(data_of(challenge)))))
    connack = client.next()
    assert (connack.type, connack.reason) == (Type.CONNACK, 0)
    assert data_of(connack) == b"v=" + scram.signature
    return [challenge, connack]


@needs_scram
@covers(v5="4.12.0-2 4.12.0-5 3.15.2-1 3.2.0-1 4.12.0-3")
def test_exchange_ends_in_connack(guarded_dial: Dial, name: str) -> None:
    client = guarded_dial()
    _, connack = log_in(client, name)
    assert connack.every("authentication_method") == [METHOD]
    client.subscribe(f"open/{name}", qos=1)
    client.publish(f"open/{name}", b"x", qos=1)
    assert client.message().payload == b"x"


@needs_scram
@covers(v5="4.12.0-4 3.2.2-7 3.2.2-6 4.13.2-1")
@pytest.mark.parametrize(("user", "password"), [("bob", "wrong"), ("nobody", "x"), ("bob", "")])
def test_wrong_proof_is_refused(guarded_dial: Dial, name: str, user: str, password: str) -> None:
    """A user that doesn't exist gets a challenge like any other."""
    client = guarded_dial()
    scram = Scram(user, password)
    challenge = begin(client, name, scram)
    client.send(wire.auth(0x18, step(scram.final(data_of(challenge)))))
    packets = client.closed()
    assert [packet.type for packet in packets] == [Type.CONNACK]
    assert packets[0].reason in (0x86, 0x87)


@covers(v5="4.12.0-1 4.12.0-4")
@pytest.mark.parametrize("method", [b"", b"SCRAM-SHA-1", b"scram-sha-256", b"PLAIN"])
def test_unknown_method_is_refused(guarded_dial: Dial, name: str, method: bytes) -> None:
    client = guarded_dial()
    client.send(wire.connect(name, properties=step(b"n,,n=bob,r=x", method)))
    assert [(packet.type, packet.reason in (0x8C, 0x87)) for packet in client.closed()] in ([], [(Type.CONNACK, True)])


@needs_scram
@covers(v5="3.1.2-30 4.12.0-4")
@pytest.mark.parametrize(
    "packet",
    [wire.PINGREQ, wire.publish("open/x", b"x"), wire.subscribe(1, [("open/x", 0)]), wire.connect("x"), b"\xf0\x00"],
    ids=["PINGREQ", "PUBLISH", "SUBSCRIBE", "CONNECT", "bare AUTH"],
)
def test_nothing_but_auth_before_connack(guarded_dial: Dial, name: str, packet: bytes) -> None:
    client = guarded_dial()
    begin(client, name, Scram("bob", "builder"))
    client.send(packet)
    assert all(answer.type == Type.CONNACK and answer.reason >= 0x80 for answer in client.closed())


@needs_scram
@covers(v5="4.12.0-5 4.12.0-3 4.12.0-4")
@pytest.mark.parametrize(("reason", "method"), [(0x18, b"SCRAM-SHA-1"), (0x19, METHOD), (0x00, METHOD)])
def test_exchange_keeps_to_its_method_and_reason(guarded_dial: Dial, name: str, reason: int, method: bytes) -> None:
    client = guarded_dial()
    scram = Scram("bob", "builder")
    challenge = begin(client, name, scram)
    client.send(wire.auth(reason, step(scram.final(data_of(challenge)), method)))
    assert all(answer.type == Type.CONNACK and answer.reason >= 0x80 for answer in client.closed())


@needs_scram
@covers(v5="4.12.0-4")
@pytest.mark.parametrize("first", [b"n,,", b"p=tls-unique,,n=bob,r=abc", b"n,,n=bob", b"\xff", b"n,,n=bob,r="])
def test_garbage_in_the_exchange_is_refused(guarded_dial: Dial, name: str, first: bytes) -> None:
    client = guarded_dial()
    client.send(wire.connect(name, properties=step(first)))
    assert all(answer.type == Type.CONNACK and answer.reason >= 0x80 for answer in client.closed())


@covers(v5="4.12.0-6")
def test_no_auth_without_a_method(guarded: ConnectAs, name: str) -> None:
    client = guarded("bob")
    assert not client.connack.every("authentication_method")
    assert not client.connack.every("authentication_data")
    client.silent()


@covers(v5="4.12.0-7 4.13.1-1")
def test_auth_of_a_client_without_a_method_ends_the_connection(connect: Connect) -> None:
    client = connect()
    client.send(wire.auth(0x19, step(b"n,,n=bob,r=abc")))
    client.refused(0x82)


@needs_scram
@covers(v5="4.12.1-1 3.15.2-1")
def test_authentication_again(guarded_dial: Dial, name: str) -> None:
    """Twice over, while messages flow."""
    client = guarded_dial()
    log_in(client, name)
    client.subscribe(f"open/{name}", qos=1)
    for _ in range(2):
        scram = Scram("bob", "builder")
        client.send(wire.auth(0x19, step(scram.first)))
        challenge = client.expect(Type.AUTH)
        assert challenge.reason == 0x18
        client.publish(f"open/{name}", b"between", qos=1)
        assert client.message().payload == b"between"
        client.send(wire.auth(0x18, step(scram.final(data_of(challenge)))))
        done = client.expect(Type.AUTH)
        assert (done.reason, data_of(done)) == (0x00, b"v=" + scram.signature)
        assert done.every("authentication_method") == [METHOD]


@needs_scram
@covers(v5="4.12.1-2 4.13.2-1 3.14.2-1")
@pytest.mark.parametrize(("user", "password"), [("bob", "wrong"), ("alice", "wonderland")])
def test_authentication_again_that_fails_ends_the_connection(guarded_dial: Dial, name: str, user: str, password: str) -> None:
    """With a wrong password, and as somebody else."""
    client = guarded_dial()
    log_in(client, name)
    scram = Scram(user, password)
    client.send(wire.auth(0x19, step(scram.first)))
    packet = client.next()
    if packet.type == Type.AUTH:
        client.send(wire.auth(0x18, step(scram.final(data_of(packet)))))
    else:
        client.inbox.append(packet)
    client.refused(0x86, 0x87, 0x82)


@needs_scram
@covers(v5="4.12.1-1 4.12.0-5")
def test_authentication_again_by_another_method_ends_the_connection(guarded_dial: Dial, name: str) -> None:
    client = guarded_dial()
    log_in(client, name)
    client.send(wire.auth(0x19, step(b"n,,n=bob,r=abc", b"SCRAM-SHA-1")))
    client.refused(0x82, 0x8C)


@needs_scram
@covers(v5="3.15.1-1 4.13.1-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8])
def test_reserved_flags_of_auth(guarded_dial: Dial, name: str, flags: int) -> None:
    client = guarded_dial()
    log_in(client, name)
    body = wire.auth(0x19, step(Scram("bob", "builder").first))[1:]
    client.send(bytes([0xF0 | flags]) + body)
    client.refused(0x81)


@needs_scram
@covers(v5="3.15.2-2 3.15.2-3 3.1.2-24")
def test_auth_fits_the_clients_packet_size(guarded_dial: Dial, name: str) -> None:
    """Room for what the exchange needs and no byte more: texts stay away."""
    challenge, connack = log_in(guarded_dial(), name)
    bare = len(wire.auth(0x18, step(data_of(challenge))))
    limit = max(bare, len(connack.raw))
    packets = log_in(guarded_dial(), f"{name}-again", "bob", ("maximum_packet_size", limit))
    assert all(len(packet.raw) <= limit for packet in packets)
    assert not packets[0].every("reason_string") and not packets[0].every("user_property")


@needs_scram
@covers(v5="3.1.4-2 4.12.0-4")
def test_session_starts_only_after_the_exchange(guarded_dial: Dial, name: str) -> None:
    """Somebody who can't finish it takes over no session."""
    victim = guarded_dial()
    log_in(victim, name)
    intruder = guarded_dial(V5)
    begin(intruder, name, Scram("bob", "wrong"))
    intruder.send(wire.auth(0x18, step(b"c=biws,r=x,p=AAAA")))
    intruder.closed()
    victim.alive()
