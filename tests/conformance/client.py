"""A synchronous MQTT client over a plain socket: sends any bytes, reads packet by packet, answers only when told to."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType

from . import wire
from .properties import Properties
from .wire import Packet, Type, Will

PATIENCE_S = float(os.environ.get("LMQ_TEST_PATIENCE_S", "5"))  # how long an answer may take before the test fails
QUIET_S = 0.12  # how long nothing must come where nothing may come

Filter = str | tuple[str, int]
Address = tuple[str, int]


class Closed(Exception):
    """The server has closed the connection."""


class Quiet(Exception):
    """Nothing came in the time given."""


class Client:
    """One connection. Packets that a call doesn't ask for wait in `inbox`, in the order of their coming."""

    def __init__(self, stream: socket.socket, version: int = 5) -> None:
        self.stream = stream
        self.version = version
        self.inbox: deque[Packet] = deque()
        self.buffer = bytearray()
        self.packet_ids = count(1)
        self.aliases: dict[int, bytes] = {}
        self.connack = Packet(Type.CONNACK, 0, b"")

    @classmethod
    def dial(cls, address: Address, version: int = 5) -> Client:
        """Opens a connection and sends nothing."""
        stream = socket.create_connection(address, timeout=PATIENCE_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(stream, version)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Bytes out and packets in

    def send(self, *packets: bytes) -> None:
        """Writes the packets in one send; a connection that the server has closed shows at the next read."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.stream.sendall(b"".join(packets))

    def close(self) -> None:
        """Ends the connection without DISCONNECT, as a crashed client would."""
        self.stream.close()

    def read(self, timeout: float = PATIENCE_S) -> Packet:
        """The next packet from the stream, past the inbox. Raises Closed or Quiet."""
        deadline = time.monotonic() + timeout
        while not (size := wire.frame_size(self.buffer)) or len(self.buffer) < size:
            self.stream.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                chunk = self._receive()
            except TimeoutError:
                raise Quiet from None
            except ConnectionError:
                raise Closed from None
            if not chunk:
                raise Closed
            self.buffer += chunk
        raw = bytes(self.buffer[:size])
        del self.buffer[:size]
        return self._resolve_alias(wire.read_packet(raw, self.version))

    def _receive(self) -> bytes:
        return self.stream.recv(65536)

    def _resolve_alias(self, packet: Packet) -> Packet:
        alias = packet.number("topic_alias")
        if alias and packet.topic:
            self.aliases[alias] = packet.topic
        elif alias:
            assert alias in self.aliases, f"the server used Topic Alias {alias} before it gave a name [MQTT-3.3.2-7]"
            packet.topic = self.aliases[alias]
        return packet

    def wait(self, wanted: Callable[[Packet], bool], timeout: float = PATIENCE_S) -> Packet:
        """The first packet that is wanted; the others stay in the inbox in their order."""
        for packet in self.inbox:
            if wanted(packet):
                self.inbox.remove(packet)
                return packet
        deadline = time.monotonic() + timeout
        while not wanted(packet := self.read(deadline - time.monotonic())):
            self.inbox.append(packet)
        return packet

    def expect(self, kind: Type, packet_id: int | None = None, timeout: float = PATIENCE_S) -> Packet:
        """The next packet of a type, and with a packet identifier if one is given."""
        return self.wait(lambda packet: packet.type == kind and packet_id in (None, packet.packet_id), timeout)

    def next(self, timeout: float = PATIENCE_S) -> Packet:
        """The very next packet, of whatever type."""
        return self.wait(lambda _: True, timeout)

    def closed(self, timeout: float = PATIENCE_S) -> list[Packet]:
        """Waits until the server closes the connection; the packets that came before it did."""
        packets = list(self.inbox)
        self.inbox.clear()
        deadline = time.monotonic() + timeout
        while True:
            try:
                packets.append(self.read(deadline - time.monotonic()))
            except Closed:
                return packets
            except Quiet:
                raise AssertionError(f"the server keeps the connection open after {packets}") from None

    def refused(self, *reasons: int) -> None:
        """Waits for the server's close; MQTT 5.0: after a DISCONNECT with one of the reasons, and nothing else."""
        packets = self.closed()
        if self.version < 5:
            assert packets == []
            return
        assert [packet.type for packet in packets] == [Type.DISCONNECT], packets
        assert packets[0].reason in reasons, f"reason {packets[0].reason:#x}, not {[hex(r) for r in reasons]}"

    def silent(self, seconds: float = QUIET_S) -> None:
        """Nothing comes, and the connection stays open."""
        with suppress(Quiet):
            raise AssertionError(f"unexpected: {self.next(seconds)}")

    def alive(self) -> None:
        """The server still answers."""
        self.send(wire.PINGREQ)
        self.expect(Type.PINGRESP)

    # Whole exchanges

    def connect(
        self,
        client_id: str,
        *,
        clean: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties = (),
    ) -> Packet:
        """CONNECT, and the CONNACK whatever it says."""
        self.send(
            wire.connect(
                client_id,
                self.version,
                clean=clean,
                keep_alive=keep_alive,
                will=will,
                username=username,
                password=password,
                properties=properties,
            )
        )
        self.connack = self.next()
        assert self.connack.type == Type.CONNACK, "[MQTT-3.2.0-1] the first packet from the server is a CONNACK"
        return self.connack

    def disconnect(self, reason: int = 0, properties: Properties = ()) -> None:
        """DISCONNECT, then waits for the server's close so that its effects are there."""
        self.send(wire.disconnect(reason, properties) if self.version == 5 else wire.DISCONNECT)
        self.stream.shutdown(socket.SHUT_WR)
        self.closed()
        self.close()

    def drop(self) -> None:
        """Ends the connection as a failing network does, and waits until the server has noticed."""
        self.stream.shutdown(socket.SHUT_WR)
        with suppress(Quiet, Closed):
            while True:
                self.read(1.0)
        self.close()

    def subscribe(self, *filters: Filter, qos: int = 0, properties: Properties = ()) -> Packet:
        """SUBSCRIBE, and its SUBACK. A filter is a name at `qos`, or a name with its options byte."""
        packet_id = next(self.packet_ids)
        pairs: Sequence[tuple[str, int]] = [(f, qos) if isinstance(f, str) else f for f in filters]
        self.send(wire.subscribe(packet_id, pairs, version=self.version, properties=properties))
        return self.expect(Type.SUBACK, packet_id)

    def unsubscribe(self, *filters: str) -> Packet:
        packet_id = next(self.packet_ids)
        self.send(wire.unsubscribe(packet_id, filters, version=self.version))
        return self.expect(Type.UNSUBACK, packet_id)

    def publish(
        self, topic: str, payload: bytes = b"", *, qos: int = 0, retain: bool = False, dup: bool = False, properties: Properties = ()
    ) -> int:
        """Publishes and runs the QoS flow to its end; the reason code of PUBACK or PUBREC. QoS 0 has no answer: a PINGREQ follows it."""
        packet_id = next(self.packet_ids) if qos else None
        self.send(
            wire.publish(
                topic, payload, version=self.version, qos=qos, packet_id=packet_id, retain=retain, dup=dup, properties=properties
            )
        )
        if packet_id is None:
            self.alive()
            return 0
        if qos == 1:
            return self.expect(Type.PUBACK, packet_id).reason
        received = self.expect(Type.PUBREC, packet_id)
        if received.reason < 0x80:
            self.send(wire.ack(Type.PUBREL, packet_id))
            self.expect(Type.PUBCOMP, packet_id)
        return received.reason

    def answer(self, packet: Packet) -> None:
        """Acknowledges a PUBLISH from the server and runs its flow to the end."""
        if packet.qos == 1:
            self.send(wire.ack(Type.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self.send(wire.ack(Type.PUBREC, packet.packet_id))
            self.expect(Type.PUBREL, packet.packet_id)
            self.send(wire.ack(Type.PUBCOMP, packet.packet_id))

    def take(self, number: int = 1, *, answer: bool = True, timeout: float = PATIENCE_S) -> list[Packet]:
        """The next messages, acknowledged one by one unless told otherwise."""
        packets = []
        for _ in range(number):
            packets.append(self.expect(Type.PUBLISH, timeout=timeout))
            if answer:
                self.answer(packets[-1])
        return packets

    def message(self) -> Packet:
        """The next message, acknowledged."""
        return self.take()[0]

    def payloads(self, number: int) -> list[bytes]:
        return [packet.payload for packet in self.take(number)]
