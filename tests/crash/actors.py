"""The clients of a crash campaign: who publishes, who subscribes, and the habits that make trouble."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from lmq_store.api.model import Message
from mqtt_proxy.demo.client import ONLINE, Client, Clients
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.types import V5, V311, Subscribe, Unsubscribe, Will

from .ledger import Publisher, Receipts, Retained, payload_of


class Source:
    """A publisher: keeps its client's queue filled while it has a budget."""

    def __init__(self, clients: Clients, publisher: Publisher, rng: random.Random) -> None:
        self.publisher = publisher
        self.rng = rng
        self.client = clients.add(f"pub-{publisher.number}", V5 if publisher.number % 2 else V311, window=20)
        self.client.on_acked = lambda client, token: publisher.acknowledge(token)
        self.budget = 0

    def feed(self) -> None:
        client, publisher = self.client, self.publisher
        while self.budget > 0 and len(client.to_send) < 20 and (publisher.qos or client.state == ONLINE):
            self.budget -= 1
            number = publisher.next()
            filler = bytes(self.rng.choice((0, 20, 200, 1_500)))
            client.publish(number, Message(publisher.topic(number), payload_of(publisher, number, filler), publisher.qos))


class Subscriber:
    """One persistent session with one or more filters, subscribed once. A lost session is a fault."""

    def __init__(
        self, clients: Clients, name: str, version: int, filters: list[tuple[str, int]], receipts: Receipts, window: int = 50
    ) -> None:
        self.name = name
        self.filters = filters
        self.receipts = receipts
        self.client = clients.add(name, version, window=window)
        self.client.on_message = lambda client, message: self.receipts.took(message)
        self.client.on_online = self._online
        self.client.on_reply = self._reply
        self.subscribed = False

    def _online(self, client: Client, session_present: bool) -> None:
        if self.subscribed and not session_present:
            self.receipts.fault("the session is gone")
            self.subscribed = False
            self.receipts.session_ended()
        if not self.subscribed:
            self._subscribe(client)

    def _subscribe(self, client: Client) -> None:
        if self.filters:
            client.subscribe(self.filters)
        else:  # `$p2p/` messages come without
            self.subscribed = True
            self.receipts.subscribed()

    def _reply(self, client: Client, request: Subscribe | Unsubscribe, reasons: list[int]) -> None:
        if any(reason >= 0x80 for reason in reasons):
            self.receipts.fault(f"SUBACK says {reasons}")
        self.subscribed = True
        self.receipts.subscribed()

    @property
    def settled(self) -> bool:
        return self.client.state == ONLINE and self.subscribed


class Churner:
    """Subscribes and unsubscribes one filter all the time, over crashes."""

    def __init__(self, clients: Clients, name: str, version: int, topic_filter: str, receipts: Receipts) -> None:
        self.name = name
        self.filter = topic_filter
        self.receipts = receipts
        self.wish = True
        self.asked = False
        """What the last packet asked for; the server may or may not have seen it."""
        self.answered = True
        self.existed = False
        self.client = clients.add(name, version)
        self.client.on_message = lambda client, message: self.receipts.took(message)
        self.client.on_online = self._online
        self.client.on_reply = self._reply

    def toggle(self) -> None:
        if self.client.state == ONLINE and self.answered:
            self.wish = not self.asked
            self._ask()

    def _ask(self) -> None:
        self.asked = self.wish
        self.answered = False
        if self.wish:
            self.client.subscribe([(self.filter, self.receipts.qos)])
        else:
            self.receipts.unsubscribing()
            self.client.unsubscribe([self.filter])

    def _online(self, client: Client, session_present: bool) -> None:
        if self.existed and not session_present:
            self.receipts.fault("the session is gone")
            self.receipts.session_ended()
            self.answered = False
        if not self.answered or not self.existed:
            self._ask()
        self.existed = True

    def _reply(self, client: Client, request: Subscribe | Unsubscribe, reasons: list[int]) -> None:
        self.answered = True
        if isinstance(request, Subscribe):
            self.receipts.subscribed()

    @property
    def settled(self) -> bool:
        return self.client.state == ONLINE and self.answered


class Reborn(Subscriber):
    """Now and then ends its session by a clean start; after that nothing old may come."""

    def end_session(self) -> None:
        client = self.client
        client.leave()
        client.clean = True
        self.subscribed = False
        self.receipts.session_ended()
        client.go_online()

    def _online(self, client: Client, session_present: bool) -> None:
        if client.clean:
            if session_present:
                self.receipts.fault("a clean start found a session [MQTT-3.1.2-4]")
            client.clean = False
        super()._online(client, session_present)


class Historian(Reborn):
    """Now and then begins a new session that reads all history of its filter, then live, over crashes."""

    def end_session(self) -> None:
        old = self.receipts
        self.receipts = Receipts(old.name, old.publishers, old.qos, ordered=False)
        self.receipts.only = old.only
        self.receipts.faults = old.faults
        super().end_session()

    def _subscribe(self, client: Client) -> None:
        client.subscribe(self.filters, Properties(user_properties=[(b"lmq-from", b"earliest")]))


class Keeper:
    """Writes retained messages and deletes some. Each topic has one QoS: between two, resending after a crash keeps no order."""

    def __init__(self, clients: Clients, rng: random.Random) -> None:
        self.rng = rng
        self.retained = Retained()
        self.client = clients.add("keeper", V5)
        self.count = 0
        self.budget = 0

    def feed(self) -> None:
        while self.budget > 0 and len(self.client.to_send) < 5:
            self.budget -= 1
            self.count += 1
            which = self.rng.randrange(12)
            topic = b"keep/%d" % which
            payload = b"" if self.rng.random() < 0.2 else b"%d %s" % (self.count, bytes(self.rng.choice((0, 300))))
            self.client.publish(self.count, Message(topic, payload, 1 + which % 2, True))
            self.retained.values[topic] = payload


class Witness:
    """A new client of each round that looks at what is retained."""

    END = b"keep/end"

    def __init__(self, clients: Clients, name: str) -> None:
        self.found: dict[bytes, bytes] = {}
        self.complete = False
        self.client = clients.add(name, V5, clean=True, expiry_s=0)
        self.client.on_message = self._took
        self.client.on_online = lambda client, present: client.subscribe([("keep/#", 1)])
        self.client.on_reply = lambda client, request, reasons: client.publish(0, Message(self.END, b"end", 1))

    def _took(self, client: Client, message: Message) -> None:
        if message.topic == self.END:
            self.complete = True
        elif message.retain:
            self.found[message.topic] = message.payload


class Mourned:
    """Clients with wills: most die with the server or just before it, and each of their wills has to come."""

    def __init__(self, clients: Clients, rng: random.Random) -> None:
        self.clients = clients
        self.rng = rng
        self.count = 0
        self.alive: dict[int, Client] = {}
        self.owed: set[int] = set()
        self.seen: set[int] = set()
        self.repeats = 0
        self.mourner = clients.add("mourner", V5)
        self.mourner.on_message = self._took
        self.mourner.on_online = lambda client, present: None if present else client.subscribe([("will/#", 2)])

    def bear(self, number: int) -> None:
        for _ in range(number):
            self.count += 1
            client = self.clients.add(f"mortal-{self.count}", self.rng.choice((V311, V5)), clean=True, expiry_s=0)
            client.will = Will(b"will/%d" % self.count, b"%d" % self.count, 1)
            self.alive[self.count] = client
            client.go_online()

    def die(self, most: int) -> None:
        """Some die before the server does."""
        for number in self.rng.sample(sorted(self.alive), min(most, len(self.alive))):
            self._end(number, self.alive.pop(number))

    def crash(self) -> None:
        """The server is gone, and so are they."""
        for number, client in self.alive.items():
            self._end(number, client)
        self.alive.clear()

    def _end(self, number: int, client: Client) -> None:
        if client.accepted:
            self.owed.add(number)
        client.drop()
        self.clients.all.remove(client)

    def _took(self, client: Client, message: Message) -> None:
        number = int(message.payload)
        self.repeats += number in self.seen
        self.seen.add(number)

    def missing(self) -> list[str]:
        lacking = sorted(self.owed - self.seen)
        return [f"wills missing: {lacking}"] if lacking else []


def wild(rng: random.Random, chances: list[tuple[float, Callable[[], Any]]]) -> None:
    """Do some of the things, each with its chance."""
    for chance, action in chances:
        if rng.random() < chance:
            action()
