"""Random packets of a client: mostly ones that the specification allows, some that it forbids, some that are only bytes."""

from __future__ import annotations

import random

from tests.conformance import wire
from tests.conformance.properties import PropertyValue
from tests.conformance.wire import Type
from tests.mqtt_proxy.packets.fuzz import damaged

TOPICS = ("a", "a/b", "a/b", "a/b/c", "b/x", "b/x", "b//", "/", "$p2p/c1", "$p2p/nobody", "ü/ß", "a/" + "x" * 200)
WRONG_TOPICS = ("$SYS/x", "$events/x", "$share/g/a", "d/" + "/" * 30, "", "a/+", "#", "$p2p/", "\0")
FILTERS = (
    "#", "a/#", "a/+", "+/b", "+/+", "a/b", "b/x", "b/#", "/", "$SYS/#", "$p2p/c1", "ü/+", "a", "d/#",
    "$share/g/a/#", "$share/g/a/b", "$share/h/#", "$share/g/b/#",
)  # fmt: skip
REPLAYS = (
    "$replay/earliest/a/#", "$replay/-PT10M/b/#", "$replay/latest/#", "$replay/never/a", "$replay/2020-01-01T00:00:00Z/nobody/+",
)  # fmt: skip
WRONG_FILTERS = ("", "a#", "a/#/b", "a+", "$share/g", "$share//a", "$share/+/a", "$replay/earliest/", "$replay/", "$share/g/", "a\0b")
PLACES = (b"earliest", b"latest", b"-PT1S", b"offset:0-1-0", b"offset:x", b"2031-01-01T00:00:00Z", b"")
SIZES = (0, 0, 1, 10, 10, 10, 100, 100, 1_000)
TOO_LARGE = 5_000
PACKET_IDS = 24
Properties = list[tuple[str, PropertyValue]]


class PacketSource:
    """Packets of one client, in the language of one version, from one source of chance."""

    def __init__(self, chance: random.Random, version: int) -> None:
        self.chance = chance
        self.version = version
        self.number = 0
        self.aliases: set[int] = set()
        """Those that were set on this connection."""

    def _text(self) -> PropertyValue:
        return self.chance.choice((b"", b"x", b"text", "ü".encode() * 40))

    def _user_properties(self, found: Properties, odds: float = 0.15) -> Properties:
        while self.chance.random() < odds:
            found.append(("user_property", (b"key", b"value")))
        return found

    def packet_id(self) -> int:
        return self.chance.randint(1, PACKET_IDS)

    def connect(self, client_id: str) -> bytes:
        chance = self.chance
        v5 = self.version == 5
        properties: Properties = []
        if v5:
            for name, values in (
                ("session_expiry", (0, 1, 5, 20, 0xFFFFFFFF)),
                ("receive_maximum", (1, 2, 5, 65_535)),
                ("maximum_packet_size", (30, 100, 2_000)),
                ("topic_alias_maximum", (0, 1, 3)),
                ("request_problem_information", (0, 1)),
                ("request_response_information", (0, 1)),
            ):
                if chance.random() < 0.35:
                    properties.append((name, chance.choice(values)))
            if chance.random() < 0.02:
                properties.append(("authentication_method", b"SCRAM-SHA-256"))
            self._user_properties(properties)
        will = self._will() if chance.random() < 0.3 else None
        named = chance.random() < 0.95
        return wire.connect(
            client_id if named else "", self.version, clean=chance.random() < 0.5, keep_alive=chance.choice((0, 0, 1, 60)),
            will=will, username=chance.choice((None, None, "user")), properties=properties,
        )  # fmt: skip

    def _will(self) -> wire.Will:
        chance = self.chance
        properties: Properties = []
        if self.version == 5:
            if chance.random() < 0.5:
                properties.append(("will_delay", chance.choice((0, 1, 5, 100))))
            if chance.random() < 0.3:
                properties.append(("message_expiry", chance.choice((0, 1, 100))))
        return wire.Will(self._topic(), chance.choice((b"", b"will")), chance.randrange(3), chance.random() < 0.3, properties)

    def _topic(self) -> str:
        return self.chance.choice(TOPICS if self.chance.random() < 0.995 else WRONG_TOPICS)

    def publish(self) -> bytes:
        chance = self.chance
        qos = chance.choice((0, 0, 1, 1, 1, 2, 2))
        topic = self._topic()
        properties: Properties = []
        if self.version == 5 and chance.random() < 0.5:
            if chance.random() < 0.3:
                topic = self._alias(topic, properties)
            if chance.random() < 0.3:
                properties.append(("message_expiry", chance.choice((0, 1, 3, 100))))
            if chance.random() < 0.2:
                properties.append(("response_topic", self._text() or b"r"))
            if chance.random() < 0.2:
                properties.append(("correlation_data", self._text()))
            self._user_properties(properties)
        self.number += 1
        size = chance.choice(SIZES) if chance.random() < 0.998 else TOO_LARGE
        payload = self.number.to_bytes(4, "big") + bytes(size) if chance.random() < 0.9 else b""
        return wire.publish(
            topic, payload, version=self.version, qos=qos, packet_id=self.packet_id() if qos else None,
            retain=chance.random() < 0.15, dup=qos > 0 and chance.random() < 0.1, properties=properties,
        )  # fmt: skip

    def _alias(self, topic: str, properties: Properties) -> str:
        """Set an alias, or use one in place of the topic; now and then one that is out of range or was never set."""
        alias = self.chance.randint(1, 10)
        if self.chance.random() < 0.01:
            alias = self.chance.choice((0, 11, 65_535))
        elif alias in self.aliases or self.chance.random() < 0.01:
            topic = ""
        self.aliases.add(alias)
        properties.append(("topic_alias", alias))
        return topic

    def ack(self) -> bytes:
        """An acknowledgement out of the blue."""
        kind = self.chance.choice((Type.PUBACK, Type.PUBREC, Type.PUBREL, Type.PUBCOMP))
        return self.ack_of(kind, self.packet_id())

    def ack_of(self, kind: Type, packet_id: int) -> bytes:
        if self.version != 5 or self.chance.random() < 0.7:
            return wire.ack(kind, packet_id)
        reasons = (0, 0x10, 0x80, 0x87) if kind in (Type.PUBACK, Type.PUBREC) else (0, 0x92)
        return wire.ack(kind, packet_id, self.chance.choice(reasons), self._user_properties([]))

    def subscribe(self) -> bytes:
        chance = self.chance
        filters = []
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            name = chance.choice(chance.choices((FILTERS, REPLAYS, WRONG_FILTERS), (97, 1, 1))[0])
            option = chance.randrange(3)
            if self.version == 5:
                no_local = chance.random() < 0.2 and not name.startswith("$share")
                option = wire.options(
                    option, no_local=no_local, retain_as_published=chance.random() < 0.2, retain_handling=chance.randrange(3)
                )
            filters.append((name, option))
        properties: Properties = []
        if self.version == 5:
            if chance.random() < 0.3:
                properties.append(("subscription_identifier", chance.choice((1, 2, 268_435_455))))
            if chance.random() < 0.02:
                properties.append(("user_property", (b"lmq-from", chance.choice(PLACES))))
        return wire.subscribe(self.packet_id(), filters, version=self.version, properties=properties)

    def unsubscribe(self) -> bytes:
        names = self.chance.choices(FILTERS + REPLAYS, k=self.chance.choice((1, 1, 2, 5)))
        return wire.unsubscribe(self.packet_id(), names, version=self.version)

    def disconnect(self) -> bytes:
        if self.version != 5:
            return wire.DISCONNECT
        properties: Properties = [("session_expiry", self.chance.choice((0, 3, 100)))] if self.chance.random() < 0.4 else []
        return wire.disconnect(self.chance.choice((0, 0, 4)), properties)

    def auth(self) -> bytes:
        properties: Properties = [("authentication_method", b"SCRAM-SHA-256"), ("authentication_data", b"n,,n=user,r=1234")]
        return wire.auth(self.chance.choice((0x18, 0x19)), properties if self.chance.random() < 0.8 else [])

    def rubbish(self) -> bytes:
        """A good packet damaged, or bytes without meaning."""
        if self.chance.random() < 0.2:
            return self.chance.randbytes(self.chance.randint(1, 40))
        good = self.chance.choice((self.publish, self.subscribe, self.ack, self.unsubscribe, self.auth, self.disconnect))()
        return damaged(self.chance, good)
