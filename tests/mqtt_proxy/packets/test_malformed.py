"""Every packet broken in every way that the specification names, with the reason code that it names."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from mqtt_proxy.packets.decoder import decode, frame_length
from mqtt_proxy.packets.reason_codes import MalformedPacket, ProtocolError, ReasonCode, UnsupportedProtocolVersion
from mqtt_proxy.packets.types import V5, V31, V311

from .table import CASES, FIRST, LIMIT, Case, decode_all, raw

pytestmark = pytest.mark.hot

MALFORMED, VIOLATION, VERSION, NAME, ALIAS = 0x81, 0x82, 0x84, 0x90, 0x94

BAD = [
    # Fixed header
    ("type 0", V311, "00 00", MALFORMED),
    ("type 15 in 3.1.1", V311, "f0 00", MALFORMED),
    ("remaining length of five bytes", V311, "30 80808080", MALFORMED),
    ("remaining length not the shortest", V5, "c0 8000", MALFORMED),
    # Time and direction [MQTT-3.1.0-1] [MQTT-3.1.0-2]
    ("publish first", FIRST, "30", VIOLATION),
    ("pingreq first", FIRST, "c0", VIOLATION),
    ("auth first", FIRST, "f0", VIOLATION),
    ("second CONNECT", V311, "10", VIOLATION),
    ("connack from a client", V5, "20", VIOLATION),
    ("suback from a client", V5, "90", VIOLATION),
    ("unsuback from a client", V5, "b0", VIOLATION),
    ("pingresp from a client", V5, "d0", VIOLATION),
    # CONNECT
    ("protocol name of 3.1.1", FIRST, "10 0c 0004 'MQTX' 04 02 0000 0000", MALFORMED),
    ("protocol name of 5.0", FIRST, "10 0d 0004 'MQTX' 05 02 0000 00 0000", VERSION),
    ("protocol name MQTT 3", FIRST, "10 0c 0004 'MQTT' 03 02 0000 0000", VERSION),
    ("protocol level", FIRST, "10 0c 0004 'MQTT' 06 02 0000 0000", VERSION),
    ("bridge's level", FIRST, "10 0c 0004 'MQTT' 84 02 0000 0000", VERSION),
    ("reserved connect flag", FIRST, "10 0c 0004 'MQTT' 04 03 0000 0000", MALFORMED),
    ("will QoS 3", FIRST, "10 12 0004 'MQTT' 04 1e 0000 0000 0001 'w' 0001 'm'", MALFORMED),
    ("will QoS without will", FIRST, "10 0c 0004 'MQTT' 04 0a 0000 0000", MALFORMED),
    ("will retain without will", FIRST, "10 0c 0004 'MQTT' 04 22 0000 0000", MALFORMED),
    ("3.1.1 password without user name", FIRST, "10 0f 0004 'MQTT' 04 42 0000 0000 0001 'p'", MALFORMED),
    ("client id not UTF-8", FIRST, "10 0d 0004 'MQTT' 04 02 0000 0001 ff", MALFORMED),
    ("client id with U+0000", FIRST, "10 0d 0004 'MQTT' 04 02 0000 0001 00", MALFORMED),
    ("user name not UTF-8", FIRST, "10 0f 0004 'MQTT' 04 82 0000 0000 0001 c0", MALFORMED),
    ("will topic not UTF-8", FIRST, "10 12 0004 'MQTT' 04 06 0000 0000 0001 ff 0001 'm'", MALFORMED),
    ("will topic empty", FIRST, "10 11 0004 'MQTT' 04 06 0000 0000 0000 0001 'm'", VIOLATION),
    ("will topic with wildcard", FIRST, "10 12 0004 'MQTT' 04 06 0000 0000 0001 '#' 0001 'm'", NAME),
    ("bytes behind the payload", FIRST, "10 0d 0004 'MQTT' 04 02 0000 0000 00", MALFORMED),
    ("flagged user name missing", FIRST, "10 0c 0004 'MQTT' 04 82 0000 0000", MALFORMED),
    ("connect length not the shortest in 5", FIRST, "10 8d00 0004 'MQTT' 05 02 0000 00 0000", MALFORMED),
    ("receive maximum 0", FIRST, "10 [0004 'MQTT' 05 02 0000 [21 0000] 0000]", VIOLATION),
    ("maximum packet size 0", FIRST, "10 [0004 'MQTT' 05 02 0000 [27 00000000] 0000]", VIOLATION),
    ("request problem information 2", FIRST, "10 [0004 'MQTT' 05 02 0000 [17 02] 0000]", VIOLATION),
    ("request response information 2", FIRST, "10 [0004 'MQTT' 05 02 0000 [19 02] 0000]", VIOLATION),
    ("session expiry twice", FIRST, "10 [0004 'MQTT' 05 02 0000 [11 00000000 11 00000000] 0000]", VIOLATION),
    ("authentication data without method", FIRST, "10 [0004 'MQTT' 05 02 0000 [16 0001 'x'] 0000]", VIOLATION),
    ("will delay outside of the will", FIRST, "10 [0004 'MQTT' 05 02 0000 [18 00000001] 0000]", MALFORMED),
    ("session expiry inside the will", FIRST, "10 [0004 'MQTT' 05 06 0000 00 0000 [11 00000001] 0001 'w' 0000]", MALFORMED),
    ("unknown property", FIRST, "10 [0004 'MQTT' 05 02 0000 [7f 00] 0000]", MALFORMED),
    ("property identifier of two bytes", FIRST, "10 [0004 'MQTT' 05 02 0000 [9100 00000000] 0000]", MALFORMED),
    ("properties longer than the packet", FIRST, "10 [0004 'MQTT' 05 02 0000 20 0000]", MALFORMED),
    ("property cut short", FIRST, "10 [0004 'MQTT' 05 02 0000 [11 0000] 0000]", MALFORMED),
    ("user property not UTF-8", FIRST, "10 [0004 'MQTT' 05 02 0000 [26 0001 ff 0001 'v'] 0000]", MALFORMED),
    # PUBLISH
    ("QoS 3", V311, "36", MALFORMED),
    ("DUP with QoS 0", V311, "38", MALFORMED),
    ("packet id 0", V311, "32 05 0001 'a' 0000", VIOLATION),
    ("no topic", V311, "30 00", MALFORMED),
    ("half a topic length", V311, "30 01 00", MALFORMED),
    ("topic cut short", V311, "30 03 0002 'a'", MALFORMED),
    ("no packet id", V311, "32 03 0001 'a'", MALFORMED),
    ("half a packet id", V311, "32 04 0001 'a' 00", MALFORMED),
    ("topic empty", V311, "30 02 0000", VIOLATION),
    ("topic empty without alias", V5, "30 03 0000 00", VIOLATION),
    ("topic with +", V311, "30 05 0003 'a/+'", NAME),
    ("topic with #", V5, "30 04 0001 '#' 00", NAME),
    ("topic with U+0000", V311, "30 03 0001 00", MALFORMED),
    ("topic with a surrogate", V311, "30 05 0003 eda080", MALFORMED),
    ("topic overlong", V311, "30 04 0002 c080", MALFORMED),
    ("topic cut inside a character", V311, "30 04 0002 'a' c3", MALFORMED),
    ("topic beyond U+10FFFF", V311, "30 06 0004 f4908080", MALFORMED),
    ("no property length", V5, "30 03 0001 'a'", MALFORMED),
    ("property length cut short", V5, "30 04 0001 'a' 80", MALFORMED),
    ("property length of five bytes", V5, "30 08 0001 'a' 8080808001", MALFORMED),
    ("property length not the shortest", V5, "30 05 0001 'a' 8000", MALFORMED),
    ("publish properties longer than the packet", V5, "30 05 0001 'a' 02 01", MALFORMED),
    ("payload format 2", V5, "30 [0001 'a' [01 02]]", VIOLATION),
    ("payload format twice", V5, "30 [0001 'a' [01 01 01 01]]", VIOLATION),
    ("payload format cut short", V5, "30 [0001 'a' [01]]", MALFORMED),
    ("expiry twice", V5, "30 [0001 'a' [02 00000001 02 00000001]]", VIOLATION),
    ("expiry cut short", V5, "30 [0001 'a' [02 000000]]", MALFORMED),
    ("content type twice", V5, "30 [0001 'a' [03 0000 03 0000]]", VIOLATION),
    ("content type not UTF-8", V5, "30 [0001 'a' [03 0001 ff]]", MALFORMED),
    ("response topic with wildcard", V5, "30 [0001 'a' [08 0001 '+']]", NAME),
    ("response topic with U+0000", V5, "30 [0001 'a' [08 0001 00]]", MALFORMED),
    ("response topic twice", V5, "30 [0001 'a' [08 0001 'r' 08 0001 'r']]", VIOLATION),
    ("correlation data cut short", V5, "30 [0001 'a' [09 0002 'x']]", MALFORMED),
    ("correlation data twice", V5, "30 [0001 'a' [09 0000 09 0000]]", VIOLATION),
    ("subscription identifier from a client", V5, "30 [0001 'a' [0b 01]]", VIOLATION),
    ("alias 0", V5, "30 [0001 'a' [23 0000]]", ALIAS),
    ("alias twice", V5, "30 [0001 'a' [23 0001 23 0001]]", VIOLATION),
    ("alias cut short", V5, "30 [0001 'a' [23 00]]", MALFORMED),
    ("user property without value", V5, "30 [0001 'a' [26 0001 'k']]", MALFORMED),
    ("user property key not UTF-8", V5, "30 [0001 'a' [26 0001 ff 0000]]", MALFORMED),
    ("user property value with U+0000", V5, "30 [0001 'a' [26 0000 0002 'a' 00]]", MALFORMED),
    *((f"property {n} in publish", V5, f"30 [0001 'a' [{n:02x} 0000000000]]", MALFORMED)
      for n in range(256) if n not in (1, 2, 3, 8, 9, 11, 35, 38)),
    # PUBACK and its kin
    *((f"{name} id 0", version, f"{first} 02 0000", VIOLATION)
      for name, first in (("puback", "40"), ("pubrec", "50"), ("pubrel", "62"), ("pubcomp", "70")) for version in (V311, V5)),
    *((f"{name} too short", V311, f"{first} 01 00", MALFORMED)
      for name, first in (("puback", "40"), ("pubrec", "50"), ("pubrel", "62"), ("pubcomp", "70"))),
    *((f"{name} too long", V311, f"{first} 03 0001 00", MALFORMED)
      for name, first in (("puback", "40"), ("pubrec", "50"), ("pubrel", "62"), ("pubcomp", "70"))),
    *((f"{name} unknown reason", V5, f"{first} 03 0001 01", VIOLATION)
      for name, first in (("puback", "40"), ("pubrec", "50"), ("pubrel", "62"), ("pubcomp", "70"))),
    ("puback properties too long", V5, "40 04 0001 00 01", MALFORMED),
    ("puback bytes behind the properties", V5, "40 05 0001 10 00 00", MALFORMED),
    ("puback property not allowed", V5, "40 [0001 10 [11 00000000]]", MALFORMED),
    ("pubrel reason string twice", V5, "62 [0001 92 [1f 0000 1f 0000]]", VIOLATION),
    # SUBSCRIBE [MQTT-3.8.1-1] [MQTT-3.8.3-2] …
    ("subscribe flags", V311, "80", MALFORMED),
    ("subscribe DUP in 3.1.1", V311, "8a", MALFORMED),
    ("subscribe id 0", V311, "82 06 0000 0001 'a' 00", VIOLATION),
    ("subscribe without filter", V311, "82 02 0001", VIOLATION),
    ("subscribe without filter", V5, "82 03 0001 00", VIOLATION),
    ("subscribe empty filter", V311, "82 05 0001 0000 00", VIOLATION),
    ("subscribe filter not UTF-8", V311, "82 06 0001 0001 ff 00", MALFORMED),
    ("subscribe filter with U+0000", V5, "82 07 0001 00 0001 00 00", MALFORMED),
    ("subscribe QoS 3", V311, "82 06 0001 0001 'a' 03", MALFORMED),
    ("subscribe QoS 3", V5, "82 07 0001 00 0001 'a' 03", VIOLATION),
    ("subscribe reserved bits", V311, "82 06 0001 0001 'a' 04", MALFORMED),
    ("subscribe reserved bits", V5, "82 07 0001 00 0001 'a' 40", MALFORMED),
    ("subscribe retain handling 3", V5, "82 07 0001 00 0001 'a' 30", VIOLATION),
    ("subscribe No Local shared", V5, "82 [0001 00 000a '$share/g/a' 04]", VIOLATION),
    ("subscribe without options", V311, "82 05 0001 0001 'a'", MALFORMED),
    ("subscribe identifier 0", V5, "82 [0001 [0b 00] 0001 'a' 00]", VIOLATION),
    ("subscribe identifier twice", V5, "82 [0001 [0b 01 0b 02] 0001 'a' 00]", VIOLATION),
    ("subscribe identifier of five bytes", V5, "82 [0001 [0b 8080808001] 0001 'a' 00]", MALFORMED),
    ("subscribe too short", V311, "82 01 00", MALFORMED),
    # UNSUBSCRIBE
    ("unsubscribe flags", V311, "a0", MALFORMED),
    ("unsubscribe id 0", V311, "a2 05 0000 0001 'a'", VIOLATION),
    ("unsubscribe without filter", V311, "a2 02 0001", VIOLATION),
    ("unsubscribe empty filter", V5, "a2 05 0001 00 0000", VIOLATION),
    ("unsubscribe filter not UTF-8", V311, "a2 05 0001 0001 ff", MALFORMED),
    ("unsubscribe filter cut short", V311, "a2 05 0001 0002 'a'", MALFORMED),
    # The rest
    ("pubrel flags", V311, "60", MALFORMED),
    ("puback flags", V311, "41", MALFORMED),
    ("pubrec flags", V5, "52", MALFORMED),
    ("pubcomp flags", V5, "72", MALFORMED),
    ("pingreq flags", V311, "c1", MALFORMED),
    ("pingreq with a body", V311, "c0 01 00", MALFORMED),
    ("disconnect flags", V311, "e1", MALFORMED),
    ("disconnect with a body in 3.1.1", V311, "e0 01 00", MALFORMED),
    ("disconnect unknown reason", V5, "e0 01 01", VIOLATION),
    ("disconnect reason of a server", V5, "e0 01 8b", VIOLATION),
    ("disconnect server reference from a client", V5, "e0 [00 [1c 0001 's']]", VIOLATION),
    ("disconnect bytes behind", V5, "e0 03 00 00 00", MALFORMED),
    ("auth flags", V5, "f1", MALFORMED),
    ("auth without method", V5, "f0 02 18 00", VIOLATION),
    ("auth reason of a server", V5, "f0 [00 [15 0001 'm']]", VIOLATION),
    ("auth unknown reason", V5, "f0 [01 [15 0001 'm']]", VIOLATION),
]  # fmt: skip

BAD_FOR_A_CLIENT = [
    ("connect from a server", V5, "10", VIOLATION),
    ("subscribe from a server", V5, "82", VIOLATION),
    ("unsubscribe from a server", V5, "a2", VIOLATION),
    ("pingreq from a server", V5, "c0", VIOLATION),
    ("disconnect from a 3.1.1 server", V311, "e0", VIOLATION),
    ("publish before CONNACK", FIRST, "30", VIOLATION),
    ("connack reserved flags", V311, "20 02 02 00", MALFORMED),
    ("connack return code 6", V311, "20 02 00 06", VIOLATION),
    ("connack session present with a refusal", V5, "20 03 01 87 00", VIOLATION),
    ("connack unknown reason", V5, "20 03 00 01 00", VIOLATION),
    ("connack maximum QoS 2", V5, "20 [00 00 [24 02]]", VIOLATION),
    ("connack too short", V5, "20 02 00 00", MALFORMED),
    ("suback unknown reason", V311, "90 03 0001 03", VIOLATION),
    ("suback unknown reason", V5, "90 04 0001 00 03", VIOLATION),
    ("unsuback with a body in 3.1.1", V311, "b0 03 0001 00", MALFORMED),
    ("pingresp with a body", V311, "d0 01 00", MALFORMED),
    ("disconnect session expiry from a server", V5, "e0 [00 [11 00000000]]", VIOLATION),
    ("subscription identifier 0", V5, "30 [0001 'a' [0b 00]]", VIOLATION),
    ("subscription identifier cut short", V5, "30 [0001 'a' [0b 80]]", MALFORMED),
    ("subscription identifier of five bytes", V5, "30 [0001 'a' [0b 8080808001]]", MALFORMED),
]


def outcome(data: bytes, version: int, from_client: bool) -> int:
    """The reason that these bytes are refused with; 0 where they aren't, or not yet. Nothing is decoded of them."""
    out: list[Any] = []
    reason = 0
    try:
        assert decode(bytearray(data), 0, len(data), version, LIMIT, out, from_client) == 0
    except ProtocolError as error:
        reason = int(error.reason)
    assert out == []
    return reason


def check(version: int, text: str, reason: int, from_client: bool) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_all(raw(text), version, from_client)
    assert caught.value.reason == reason
    assert isinstance(caught.value.reason, ReasonCode)
    assert "\n" not in str(caught.value)
    assert str(caught.value)


@pytest.mark.parametrize(("name", "version", "text", "reason"), BAD, ids=[f"{row[0]} v{row[1]}" for row in BAD])
def test_refused_by_a_server(name: str, version: int, text: str, reason: int) -> None:
    check(version, text, reason, True)


@pytest.mark.parametrize(("name", "version", "text", "reason"), BAD_FOR_A_CLIENT, ids=[f"{row[0]} v{row[1]}" for row in BAD_FOR_A_CLIENT])
def test_refused_by_a_client(name: str, version: int, text: str, reason: int) -> None:
    check(version, text, reason, False)


@pytest.mark.parametrize(("name", "version", "text", "reason"), BAD, ids=[f"{row[0]} v{row[1]}" for row in BAD])
def test_bad_packets_split_at_every_byte(name: str, version: int, text: str, reason: int) -> None:
    """A part is either not judged yet or refused with the same reason; never something else."""
    data = raw(text)
    for cut in range(len(data)):
        assert outcome(data[:cut], version, True) in (0, reason)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cut_short_inside(case: Case) -> None:
    """A remaining length that ends inside a field: a ProtocolError, or a legal shorter packet; nothing else is raised."""
    whole = len(case.data)
    if whole > 129 or (case.data[1] & 128):
        return
    for length in range(whole - 2):
        data = bytes((case.data[0], length)) + case.data[2 : 2 + length]
        with contextlib.suppress(ProtocolError):
            decode_all(data, case.version, case.from_client)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_behind(case: Case) -> None:
    """A packet longer than its fields is Malformed, unless its last field has no end of its own."""
    kind = case.data[0] >> 4
    if (
        len(case.data) > 127
        or (kind == 2 and case.version == FIRST)
        or kind in (3, 8, 9, 10, 11)
        or (kind in (4, 5, 6, 7, 14, 15) and case.version == V5)
    ):
        return
    with pytest.raises(ProtocolError) as caught:
        decode_all(bytes((case.data[0], case.data[1] + 1)) + case.data[2:] + b"\0", case.version, case.from_client)
    assert caught.value.reason == MALFORMED


def test_unsupported_version_is_told() -> None:
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        decode_all(raw("10 0c 0004 'MQTT' 06 02 0000 0000"), FIRST)
    assert caught.value.version == 6


@pytest.mark.parametrize(
    ("version", "text"),
    [(V5, "30 [0001 'a' [26 0000 0000 26 0000 0000 26 0000 0000]]"), (V5, "e0 [00 [26 0000 0000 26 0000 0000 26 0000 0000]]"),
     (FIRST, "10 [0004 'MQTT' 05 02 0000 [26 0000 0000 26 0000 0000 26 0000 0000] 0000]")],
)  # fmt: skip
def test_number_of_properties(version: int, text: str) -> None:
    data = bytearray(raw(text))
    out: list[Any] = []
    assert decode(data, 0, len(data), version, LIMIT, out, True, 3) == len(data)
    with pytest.raises(ProtocolError) as caught:
        decode(data, 0, len(data), version, LIMIT, out, True, 2)
    assert caught.value.reason == ReasonCode.QUOTA_EXCEEDED


def test_every_first_byte() -> None:
    """All 256 first bytes, in each state: legal or a reason, with nothing but the first byte there."""
    for version in (FIRST, V31, V311, V5):
        for from_client in (True, False):
            for first in range(256):
                reason = outcome(bytes((first,)), version, from_client)
                assert reason in (0, MALFORMED, VIOLATION)
                kind, flags = first >> 4, first & 15
                right_flags = {3: flags & 6 != 6 and flags & 14 != 8, 6: flags == 2, 8: flags == 2, 10: flags == 2}.get(kind, flags == 0)
                if version == V31 and kind in (6, 8, 10):
                    right_flags = flags in (2, 10)
                kinds = {1} if from_client else {2, 15}
                if version != FIRST:
                    kinds = {3, 4, 5, 6, 7, 8, 10, 12, 14} if from_client else {2, 3, 4, 5, 6, 7, 9, 11, 13}
                    if version == V5:
                        kinds |= {14, 15}
                assert (reason == 0) == (right_flags and kind in kinds), (version, from_client, first)


def test_frame_length_of_rubbish() -> None:
    with pytest.raises(MalformedPacket):
        frame_length(bytearray(b"\x30\xff\xff\xff\xff"), 0, 5)
    assert frame_length(bytearray(b"\x30\xff\xff\xff"), 0, 4) == 0


def test_a_first_packet_from_a_server_with_a_long_length_is_judged_like_any_other() -> None:
    """It has no protocol version, which only a CONNECT brings."""
    assert decode_all(raw("f0 8000"), FIRST, from_client=False) == decode_all(raw("f0 00"), FIRST, from_client=False)
