"""Raw bytes and the packet they are: one table for the decoder, the splitting and the encoder tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lmq_store.api.model import Message
from mqtt_proxy.packets.decoder import decode
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.types import (
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Puback,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)

FIRST = 0
LIMIT = 1 << 20


@dataclass(frozen=True)
class Publish:
    """A Message by value."""

    topic: bytes
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: bytes = b""
    topic_alias: int = 0
    expiry_s: int = -1


def plain(item: Any) -> Any:
    """What was decoded, comparable."""
    if isinstance(item, Message):
        return Publish(
            item.topic, item.payload, item.qos, item.retain, item.dup, item.packet_id, item.properties, item.topic_alias, item.expiry_s
        )
    return item


def decode_all(data: bytes, version: int, from_client: bool = True, max_packet: int = LIMIT) -> list[Any]:
    """The packets of exactly these bytes."""
    out: list[Any] = []
    at = decode(bytearray(data), 0, len(data), version, max_packet, out, from_client)
    assert at == len(data)
    return [plain(item) for item in out]


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    packet: Any
    version: int = V311
    from_client: bool = True
    canonical: bool = True
    """False: the encoder would write it in another way."""


def raw(text: str) -> bytes:
    """Hex, with 'quoted' ASCII between; [brackets] put the one-byte length of what is inside before it."""
    stack = [b""]
    for token in re.findall(r"'[^']*'|[0-9a-f]+|[\[\]]", text):
        if token == "[":
            stack.append(b"")
        elif token == "]":
            inside = stack.pop()
            assert len(inside) < 128
            stack[-1] += bytes((len(inside),)) + inside
        else:
            stack[-1] += token[1:-1].encode() if token[0] == "'" else bytes.fromhex(token)
    return stack[0]


USER = [(b"k", b"v"), (b"k", b"w")]
USER_HEX = "26 0001 'k' 0001 'v' 26 0001 'k' 0001 'w'"

CASES = [
    # CONNECT
    Case("connect 3.1", raw("10 0e 0006 'MQIsdp' 03 02 003c 0000"), Connect(V31, b"", True, 60), FIRST),
    Case("connect 3.1.1", raw("10 0d 0004 'MQTT' 04 02 000a 0001 'c'"), Connect(V311, b"c", True, 10), FIRST),
    Case("connect 3.1.1 no clean", raw("10 0d 0004 'MQTT' 04 00 ffff 0001 'c'"), Connect(V311, b"c", False, 65535), FIRST),
    Case("connect 5", raw("10 0e 0004 'MQTT' 05 02 0000 00 0001 'c'"), Connect(V5, b"c"), FIRST),
    Case(
        "connect 3.1.1 with all",
        raw("10 [0004 'MQTT' 04 ee 000a 0001 'c' 0003 'w/t' 0002 0000 0001 'u' 0002 00ff]"),
        Connect(V311, b"c", True, 10, b"u", b"\0\xff", Will(b"w/t", b"\0\0", 1, True)),
        FIRST,
    ),
    Case(
        "connect 3.1 with flags for fields that are missing",
        raw("10 0f 0006 'MQIsdp' 03 c2 003c 0001 'c'"),
        Connect(V31, b"c", True, 60),
        FIRST,
        canonical=False,
    ),
    Case(
        "connect 5 password alone",
        raw("10 [0004 'MQTT' 05 42 0000 00 0001 'c' 0001 'p']"),
        Connect(V5, b"c", password=b"p"),
        FIRST,
    ),
    Case(
        "connect 5 with all properties",
        raw(
            f"10 [0004 'MQTT' 05 02 0000 [11 00000e10 15 0001 'm' 16 0001 ff 17 00 19 01 21 0014 22 000a {USER_HEX} 27 00010000] 0001 'c']"
        ),
        Connect(
            V5,
            b"c",
            properties=Properties(
                session_expiry=3600,
                authentication_method=b"m",
                authentication_data=b"\xff",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=10,
                user_properties=USER,
                maximum_packet_size=65536,
            ),
        ),
        FIRST,
    ),
    Case(
        "connect 5 with a will and its properties",
        raw("10 [0004 'MQTT' 05 16 0000 00 0001 'c' [01 01 03 0001 't' 18 00000005 02 0000000a] 0001 'w' 0003 'bye']"),
        Connect(V5, b"c", will=Will(b"w", b"bye", 2, False, raw("01 01 03 0001 't'"), 5, 10)),
        FIRST,
    ),
    # CONNACK
    Case("connack 3.1.1", raw("20 02 01 00"), Connack(True, 0), V311, False),
    Case("connack 3.1.1 refused", raw("20 02 00 05"), Connack(False, 5), V311, False, canonical=False),
    Case("connack of a version not known", raw("20 02 00 00"), Connack(False, 0), FIRST, False),
    Case("connack 5", raw("20 03 00 00 00"), Connack(False, 0), V5, False),
    Case(
        "connack 5 with all properties",
        raw(
            "20 [01 00 [11 0000000a 12 0001 'i' 13 001e 15 0001 'm' 16 0001 'd' 1a 0001 'r' 1c 0001 's' 1f 0001 't'"
            " 21 0005 22 0006 24 01 25 00"
            f" {USER_HEX} 27 00000100 28 00 29 01 2a 00]]"
        ),
        Connack(
            True,
            0,
            Properties(
                session_expiry=10,
                assigned_client_id=b"i",
                server_keep_alive=30,
                authentication_method=b"m",
                authentication_data=b"d",
                response_information=b"r",
                server_reference=b"s",
                reason_string=b"t",
                receive_maximum=5,
                topic_alias_maximum=6,
                maximum_qos=1,
                retain_available=0,
                user_properties=USER,
                maximum_packet_size=256,
                wildcard_subscription_available=0,
                subscription_identifier_available=1,
                shared_subscription_available=0,
            ),
        ),
        V5,
        False,
    ),
    Case("connack 5 refused", raw("20 03 00 87 00"), Connack(False, 0x87), V5, False),
    # PUBLISH
    Case("publish QoS 0", raw("30 05 0001 'a' 'hi'"), Publish(b"a", b"hi")),
    Case("publish QoS 0 empty", raw("30 03 0001 'a'"), Publish(b"a")),
    Case("publish QoS 1 retained", raw("33 08 0003 'a/b' 000a 'x'"), Publish(b"a/b", b"x", 1, True, packet_id=10)),
    Case("publish QoS 2 again", raw("3c 08 0003 'a/b' ffff 'x'"), Publish(b"a/b", b"x", 2, dup=True, packet_id=65535)),
    Case("publish 3.1", raw("32 06 0001 'a' 0001 'x'"), Publish(b"a", b"x", 1, packet_id=1), V31),
    Case("publish to a client", raw("32 06 0001 'a' 0001 'x'"), Publish(b"a", b"x", 1, packet_id=1), V311, False),
    Case("publish of 200 bytes", raw("30 c801 0001 'a'") + b"y" * 197, Publish(b"a", b"y" * 197)),
    Case("publish UTF-8 topic", raw("30 06 0004 f09f9880"), Publish("😀".encode())),
    Case("publish topic with BOM", raw("30 06 0004 efbbbf 'a'"), Publish(b"\xef\xbb\xbfa")),
    Case("publish 5", raw("32 06 0001 'a' 0001 00"), Publish(b"a", b"", 1, packet_id=1), V5),
    Case("publish 5 payload", raw("30 06 0001 'a' 00 'hi'"), Publish(b"a", b"hi"), V5),
    Case(
        "publish 5 with all properties",
        raw(f"30 [0001 'a' [01 01 03 0001 't' 08 0001 'r' 09 0002 00ff {USER_HEX} 02 00000e10 23 0007] 'p']"),
        Publish(b"a", b"p", properties=raw(f"01 01 03 0001 't' 08 0001 'r' 09 0002 00ff {USER_HEX}"), topic_alias=7, expiry_s=3600),
        V5,
    ),
    Case(
        "publish 5 expiry and alias between others",
        raw("30 [0001 'a' [23 ffff 01 00 02 ffffffff 03 0002 'tt'] 'p']"),
        Publish(b"a", b"p", properties=raw("01 00 03 0002 'tt'"), topic_alias=65535, expiry_s=2**32 - 1),
        V5,
        canonical=False,
    ),
    Case("publish 5 alias for the topic", raw("30 06 0000 03 23 0001"), Publish(b"", topic_alias=1), V5),
    Case(
        "publish 5 with subscription identifiers",
        raw("30 [0001 'a' [0b 01 0b 8001] 'p']"),
        Publish(b"a", b"p", properties=raw("0b 01 0b 8001")),
        V5,
        False,
    ),
    # Acknowledgements
    *(
        Case(f"{kind.name} {version}", bytes((first, 2, 1, 2)), kind << 16 | 0x0102, version, side)
        for first, kind in ((0x40, PacketType.PUBACK), (0x50, PacketType.PUBREC), (0x62, PacketType.PUBREL), (0x70, PacketType.PUBCOMP))
        for version in (V31, V311, V5)
        for side in (True, False)
    ),
    Case("puback 5 with success spelt out", raw("40 03 0001 00"), 4 << 16 | 1, V5, canonical=False),
    Case("pubcomp 5 with no properties", raw("70 04 0001 00 00"), 7 << 16 | 1, V5, canonical=False),
    Case("puback 5 with a reason", raw("40 03 0001 10"), Puback(PacketType.PUBACK, 1, 0x10), V5),
    Case("pubrec 5 refused", raw("50 04 0001 97 00"), Puback(PacketType.PUBREC, 1, 0x97), V5, canonical=False),
    Case("pubrel 5 not found", raw("62 03 0001 92"), Puback(PacketType.PUBREL, 1, 0x92), V5),
    Case(
        "pubcomp 5 with properties",
        raw(f"70 [0001 00 [1f 0001 't' {USER_HEX}]]"),
        Puback(PacketType.PUBCOMP, 1, 0, Properties(reason_string=b"t", user_properties=USER)),
        V5,
    ),
    # SUBSCRIBE, UNSUBSCRIBE and their answers
    Case(
        "subscribe",
        raw("82 [000a 0001 'a' 01 0003 'b/#' 02]"),
        Subscribe(10, [SubscriptionRequest(b"a", 1), SubscriptionRequest(b"b/#", 2)]),
    ),
    Case("subscribe 3.1 again", raw("8a 06 000a 0001 'a' 01"), Subscribe(10, [SubscriptionRequest(b"a", 1)]), V31, canonical=False),
    Case(
        "subscribe 5",
        raw("82 [000a [0b ff01] 0001 'a' 2d]"),
        Subscribe(10, [SubscriptionRequest(b"a", 1, True, True, 2)], Properties(subscription_identifiers=[255])),
        V5,
    ),
    Case("suback", raw("90 05 000a 00 02 80"), Suback(10, [0, 2, 0x80]), V311, False),
    Case("suback 5", raw("90 05 000a 00 01 8f"), Suback(10, [1, 0x8F]), V5, False),
    Case("unsubscribe", raw("a2 08 000a 0001 'a' 0001 'b'"), Unsubscribe(10, [b"a", b"b"])),
    Case(
        "unsubscribe 5",
        raw(f"a2 [000a [{USER_HEX}] 0001 'a']"),
        Unsubscribe(10, [b"a"], Properties(user_properties=USER)),
        V5,
    ),
    Case("unsuback", raw("b0 02 000a"), Unsuback(10, []), V311, False),
    Case("unsuback 5", raw("b0 05 000a 00 00 11"), Unsuback(10, [0, 0x11]), V5, False),
    # The rest
    Case("pingreq", raw("c0 00"), 12 << 16),
    Case("pingresp", raw("d0 00"), 13 << 16, V311, False),
    Case("disconnect", raw("e0 00"), Disconnect()),
    Case("disconnect 5", raw("e0 00"), Disconnect(), V5),
    Case("disconnect 5 with will", raw("e0 01 04"), Disconnect(4), V5),
    Case("disconnect 5 expiry", raw("e0 07 00 05 11 00000000"), Disconnect(0, Properties(session_expiry=0)), V5),
    Case(
        "disconnect 5 from a server",
        raw("e0 06 9c 04 1c 0001 's'"),
        Disconnect(0x9C, Properties(server_reference=b"s")),
        V5,
        False,
    ),
    Case("auth empty", raw("f0 00"), Auth(), V5, canonical=False),
    Case(
        "auth",
        raw("f0 [18 [15 0001 'm' 16 0001 'd']]"),
        Auth(0x18, Properties(authentication_method=b"m", authentication_data=b"d")),
        V5,
    ),
    Case(
        "auth during CONNECT, client's view",
        raw("f0 06 18 04 15 0001 'm'"),
        Auth(0x18, Properties(authentication_method=b"m")),
        V5,
        False,
    ),
]
