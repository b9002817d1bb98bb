"""A whole broker without sockets under random clients: packets right, wrong and damaged, in any order, at any moment.

After each round all clients go and time passes until nothing may be left. It is a failure when anything escapes or is
logged as an error, a turn takes long, a client is sent what it may not be sent, or something is left.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmq_store.api.model import Message
from lmq_store.api.ports import Table
from mqtt_proxy.packets.types import PacketType, Puback
from mqtt_proxy.policy.limits import Limits
from mqtt_proxy.settings import Settings
from tests.conformance import wire
from tests.conformance.wire import Type
from tests.fuzz.packets import PacketSource
from tests.mqtt_proxy.in_memory import CLOCK_MS, BrokerInMemory, Client, open_unsynced

CLIENT_IDS = (*(f"c{number}" for number in range(1, 14)), "ü" * 30)
MOST_CLIENTS = 8
ROUND = 4_000
"""Inputs between two looks at what is left."""
EXPIRY_S = 30
GRACE_S = 1
TURN_S = 1.0
"""Processor time that no turn may take: what other programs do meanwhile doesn't count."""
LEFTOVERS = (Table.SESSION, Table.SUBSCRIPTION, Table.SNAPSHOT, Table.JOURNAL, Table.FILTER, Table.GROUP, Table.WILL, Table.OFFSET)
SETTINGS = Settings(
    allow_anonymous=True,
    queue_grace_s=GRACE_S,
    will_grace_s=0,
    session_events=True,
    response_information="answers/%c",
    limits=Limits(
        session_expiry_max_s=EXPIRY_S, will_delay_max_s=EXPIRY_S, inflight_in_max=16, inflight_out_max=8, max_packet_bytes=4_000,
        max_topic_levels=20, max_subscriptions_per_client=12, max_retained=10, topic_alias_in_max=10,
    ),
)  # fmt: skip

FITTING = {
    0: (Type.PUBACK, Type.PUBREC, Type.PUBREL, Type.PUBCOMP),
    1: (Type.PUBACK, Type.PUBREL),
    2: (Type.PUBREC, Type.PUBREL),
    3: (Type.PUBREC, Type.PUBREL, Type.PUBCOMP),
}
"""What may be sent for a packet that is owed: 1 of QoS 1, 2 of QoS 2, 3 of QoS 2 after its PUBREL; 0 for anything."""


class Device:
    """A random client and what it may expect of the broker."""

    def __init__(self, fuzz: SessionFuzz) -> None:
        self.fuzz = fuzz
        self.chance = fuzz.chance
        self.client: Client = fuzz.lab.accept()
        self.packets = PacketSource(self.chance, self.chance.choice((3, 4, 5, 5)))
        self.owed: dict[int, int] = {}
        """Packet ids that the broker may not use anew → QoS, or 3 once PUBREL has come."""
        self.connected = False
        self.lies = False
        """It has sent rubbish, which may have been an acknowledgement of anything: nothing can be expected any more."""

    def act(self) -> None:
        """One input."""
        if not self.connected and self.chance.random() < 0.98:
            self.connected = True
            connect = self.packets.connect(self.chance.choice(CLIENT_IDS))
            self._send(connect)
            return
        self.chance.choices(self._moves, self._weights)[0](self)

    def _send(self, data: bytes) -> None:
        """All at once, or cut in two with a turn between."""
        if self.chance.random() < 0.05:
            cut = self.chance.randrange(len(data) + 1)
            self.client.send(data[:cut])
            self.fuzz.lab.turn()
            data = data[cut:]
        self.client.send(data)

    def answer(self) -> None:
        """Look at what came, and acknowledge most of it."""
        for item in self.client.decoded():
            if type(item) is Message:
                self._published(item)
            elif type(item) is int and item >> 16 == PacketType.PUBREL:
                self._released(item & 65_535)
            elif type(item) is Puback and item.kind == PacketType.PUBREL:
                self._released(item.packet_id)

    def _published(self, message: Message) -> None:
        if not message.qos or self.lies:
            return
        known = self.owed.get(message.packet_id)
        assert known is None or message.dup, f"[MQTT-2.2.1-3] packet id {message.packet_id} is in use"
        self.owed[message.packet_id] = message.qos
        assert len(self.owed) <= SETTINGS.limits.inflight_out_max, f"[MQTT-3.3.4-9] {len(self.owed)} in flight"
        if self.chance.random() < 0.8:
            self.acknowledge(Type.PUBACK if message.qos == 1 else Type.PUBREC, message.packet_id)

    def _released(self, packet_id: int) -> None:
        if self.owed.get(packet_id) == 2:
            self.owed[packet_id] = 3
        if self.chance.random() < 0.9:
            self.acknowledge(Type.PUBCOMP, packet_id)

    def acknowledge(self, kind: Type, packet_id: int) -> None:
        """Send an acknowledgement and note what it sets free."""
        data = self.packets.ack_of(kind, packet_id)
        stage = self.owed.get(packet_id)
        failed = len(data) > 4 and data[4] >= 0x80
        if (
            (kind == Type.PUBACK and stage == 1)
            or (kind == Type.PUBREC and failed)
            or (kind == Type.PUBCOMP and stage in (2, 3))  # 2: right behind a PUBREC, or else the connection ends
        ):
            self.owed.pop(packet_id, None)
        self.client.send(data)

    def _ack(self) -> None:
        """An acknowledgement of a packet that is owed (seldom one that doesn't fit: it ends the connection), or of one that never was."""
        known = self.owed and self.chance.random() < 0.7
        packet_id = self.chance.choice(list(self.owed)) if known else self.chance.randint(60_000, 65_535)
        stage = self.owed.get(packet_id, 0) if self.chance.random() < 0.9 else 0
        self.acknowledge(self.chance.choice(FITTING[stage]), packet_id)

    def _rubbish(self) -> None:
        self.lies = True
        self._send(self.packets.rubbish())

    def _drop(self) -> None:
        self.client.drop()

    def _toggle_reading(self) -> None:
        self.client.reads = not self.client.reads

    _moves: tuple[Callable[[Device], None], ...] = (
        lambda self: self._send(self.packets.publish()),
        _ack,
        lambda self: self._send(self.packets.subscribe()),
        lambda self: self._send(self.packets.unsubscribe()),
        lambda self: self._send(wire.PINGREQ),
        lambda self: self._send(self.packets.disconnect()),
        lambda self: self._send(self.packets.auth()),
        _rubbish,
        lambda self: self._send(self.packets.connect("c1")),
        _drop,
        _toggle_reading,
    )
    _weights = (60, 12, 8, 3, 2, 0.6, 0.1, 0.6, 0.1, 0.4, 1)


class SessionFuzz:
    """Rounds of random input on one store, which is closed, or cut off, and opened again between some of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.inputs = 0
        self.slowest_s = 0.0
        self.devices: list[Device] = []
        self.lab = self._open(CLOCK_MS)

    def _open(self, now_ms: int) -> BrokerInMemory:
        store = open_unsynced(self.folder, now_ms, segment_bytes=1 << 20, retention_bytes=4 << 20)
        lab = BrokerInMemory(store, SETTINGS, now_ms)
        lab.turn_state.high_bytes = 8_192
        lab.turn_state.low_bytes = 2_048
        return lab

    def run(self, inputs: int) -> None:
        """At least so many inputs. AssertionError says what went wrong."""
        until = self.inputs + inputs
        while self.inputs < until:
            for _ in range(min(ROUND, until - self.inputs)):
                self.step()
            if self.chance.random() < 0.2:
                self.reopen()
            else:
                self.quiesce()

    def step(self) -> None:
        """One input of one client, and now and then the turn that takes it."""
        chance = self.chance
        self.inputs += 1
        if not self.devices or (len(self.devices) < MOST_CLIENTS and chance.random() < 0.05):
            self.devices.append(Device(self))
        chance.choice(self.devices).act()
        if chance.random() < 0.4:
            self.turn()
        if chance.random() < 0.002:
            self.lab.advance(chance.choice((100, 300, 1_100, 5_000)))

    def turn(self) -> None:
        started = time.thread_time()
        self.lab.turn()
        self.slowest_s = max(self.slowest_s, time.thread_time() - started)
        assert self.slowest_s < TURN_S, f"a turn took {self.slowest_s:.1f} s"
        for device in self.devices:
            if device.client.got:
                device.answer()
        self.devices = [device for device in self.devices if not device.client.closed]
        assert not self.lab.faults.records, "\n".join(self.lab.faults.records)

    def quiesce(self) -> None:
        """Everybody goes, time passes: nothing may be left."""
        for device in self.devices:
            device.client.drop()
        self.devices = []
        lab = self.lab
        lab.settle()
        lab.advance((EXPIRY_S + 2) * 1000, 1_000)
        lab.advance((GRACE_S + 2) * 1000, 500)
        lab.settle()
        left = {name: found for name, found in self.left().items() if found}
        assert not left, f"left over: {left}"
        assert not lab.faults.records, "\n".join(lab.faults.records)

    def left(self) -> dict[str, Any]:
        """What may not outlive its clients."""
        broker = self.lab.broker
        found: dict[str, Any] = {
            "connections": broker.connections, "sessions": broker.sessions, "links": self.lab.turn_state.open_links,
            "paced": broker.paced, "dirty sessions": broker.dirty_sessions, "calls": broker.promises.calls,
            "gated": broker.promises.gated, "batch": broker.inbound.batch, "due": broker.deliverer.due,
            "journals due": broker.deliverer.journal_due, "groups due": broker.deliverer.groups_due,
            "stored sessions": broker.stored_sessions.stored, "expiries": broker.stored_sessions.expiries,
            "filters": list(broker.routes.trie), "unheld": broker.routes.unheld, "groups": broker.shared.live,
            "group holders": broker.shared.holders, "wills": broker.wills.waiting, "wills due": broker.wills.due,
        }  # fmt: skip
        for table in LEFTOVERS:
            found[table.name] = list(broker.meta.scan(table, b""))
        return found

    def reopen(self) -> None:
        """The server stops in order or is cut off, and another opens the folder."""
        lab, self.devices = self.lab, []
        if self.chance.random() < 0.5:
            lab.close()
        else:
            lab.cut_off()
        assert not lab.faults.records, "\n".join(lab.faults.records)
        self.lab = self._open(lab.now_ms)

    def close(self) -> None:
        self.lab.close()


def fuzz_sessions(inputs: int, seed: int) -> SessionFuzz:
    """A run on a folder of its own; the answer tells how it went."""
    with tempfile.TemporaryDirectory(prefix="lmq-fuzz-") as folder:
        fuzz = SessionFuzz(Path(folder) / "data", seed)
        try:
            fuzz.run(inputs)
        except BaseException:
            fuzz.lab.cut_off()
            raise
        fuzz.close()
        return fuzz
