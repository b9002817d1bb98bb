"""What is encoded decodes to the same, for any values; any bytes at all decode or raise a ProtocolError."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmq_store.api.model import Message
from mqtt_proxy.packets import encoder
from mqtt_proxy.packets.decoder import decode
from mqtt_proxy.packets.properties import TABLE, WILL, Properties, decode_properties, encode_properties
from mqtt_proxy.packets.reason_codes import (
    ACK_REASONS,
    CLIENT_DISCONNECT_REASONS,
    CONNACK_REASONS,
    SUBACK_REASONS,
    UNSUBACK_REASONS,
    ProtocolError,
)
from mqtt_proxy.packets.types import (
    V5,
    V31,
    V311,
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

from .fuzz import fuzz
from .table import CASES, FIRST, Publish, decode_all, plain

pytestmark = pytest.mark.hot

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40).map(str.encode)
names = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=40).map(str.encode)
data = st.binary(max_size=40)
packet_ids = st.integers(1, 65_535)
versions = st.sampled_from([V31, V311, V5])
varints = st.integers(1, 268_435_455)

BYTES = {"correlation_data": data, "authentication_data": data, "response_topic": names}
NUMBERS = {"server_keep_alive": 65_535, "receive_maximum": 65_535, "topic_alias_maximum": 65_535, "topic_alias": 65_535}
LISTS = {"user_properties": st.lists(st.tuples(texts, texts), max_size=3), "subscription_identifiers": st.lists(varints, max_size=3)}
TEXTS = ("content_type", "assigned_client_id", "authentication_method", "response_information", "server_reference", "reason_string")


def property_values(packet: int) -> st.SearchStrategy[Properties]:
    """Any legal properties of a packet type."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for row in TABLE.values():
        if packet not in row.packets:
            continue
        if row.name in LISTS:
            values[row.name] = LISTS[row.name] if packet in row.repeats else st.lists(varints, max_size=1)
        elif row.name in BYTES or row.name in TEXTS:
            values[row.name] = st.none() | BYTES.get(row.name, texts)
        else:
            values[row.name] = st.none() | st.integers(row.lowest, min(row.highest, NUMBERS.get(row.name, 2**32 - 1)))

    def coherent(properties: Properties) -> Properties:
        if properties.authentication_method is None:
            properties.authentication_data = None
        return properties

    return st.builds(Properties, **values).map(coherent)


def for_version(packet: int) -> st.SearchStrategy[tuple[int, Properties]]:
    return st.one_of(st.tuples(st.sampled_from([V31, V311]), st.builds(Properties)), st.tuples(st.just(V5), property_values(packet)))


@given(
    st.sampled_from([WILL, *(kind for kind in PacketType if kind not in (12, 13))]).flatmap(
        lambda k: st.tuples(st.just(k), property_values(k))
    )
)
def test_properties(pair: tuple[int, Properties]) -> None:
    packet, properties = pair
    assert decode_properties(encode_properties(properties), packet) == properties


@given(names, st.binary(max_size=300), st.integers(0, 2), st.booleans(), st.booleans(), packet_ids, versions, property_values(3))
def test_publish(topic: bytes, payload: bytes, qos: int, retain: bool, dup: bool, packet_id: int, version: int, given_: Properties) -> None:
    alias, expiry_s = given_.topic_alias or 0, -1 if given_.message_expiry is None else given_.message_expiry
    given_.topic_alias = given_.message_expiry = None
    message = Message(topic, payload)
    message.properties = encode_properties(given_)
    dup = dup and qos > 0
    packet_id = packet_id if qos else 0
    encoded = encoder.publish(message, version, qos, retain, dup, packet_id, (), alias, True, expiry_s)
    block = message.properties if version == V5 else b""
    expected = Publish(topic, payload, qos, retain, dup, packet_id, block, alias if version == V5 else 0, expiry_s if version == V5 else -1)
    assert decode_all(encoded, version, False) == [expected]


@given(
    for_version(1), texts, st.booleans(), st.integers(0, 65_535), st.none() | texts, st.none() | data,
    st.none() | st.builds(Will, names, data, st.integers(0, 2), st.booleans()), property_values(WILL),
)  # fmt: skip
def test_connect(
    pair: tuple[int, Properties], client_id: bytes, clean: bool, alive: int, user: bytes | None, password: bytes | None, will: Will | None,
    will_properties: Properties,
) -> None:  # fmt: skip
    version, properties = pair
    if version != V5 and user is None:
        password = None
    if will is not None and version == V5:
        will.delay_s = will_properties.will_delay or 0
        will.expiry_s = -1 if will_properties.message_expiry is None else will_properties.message_expiry
        will_properties.will_delay = will_properties.message_expiry = None
        will.properties = encode_properties(will_properties)
    packet = Connect(version, client_id, clean, alive, user, password, will, properties)
    assert decode_all(encoder.connect(packet), FIRST) == [packet]


@given(for_version(2), st.booleans(), st.sampled_from(sorted(CONNACK_REASONS)))
def test_connack(pair: tuple[int, Properties], present: bool, reason: int) -> None:
    version, properties = pair
    present = present and reason == 0
    encoded = encoder.connack(version, present, reason, properties)
    if version == V5:
        assert decode_all(encoded, version, False) == [Connack(present, reason, properties)]
    elif encoded:
        (packet,) = decode_all(encoded, version, False)
        assert (packet.reason == 0) == (reason == 0)
        assert packet.session_present == (present and version != V31)


@given(
    st.sampled_from([4, 5, 6, 7]).flatmap(lambda k: st.tuples(st.just(k), st.sampled_from(sorted(ACK_REASONS[k])), property_values(k))),
    packet_ids,
)
def test_acknowledgements(given_: tuple[int, int, Properties], packet_id: int) -> None:
    kind, reason, properties = given_
    encoded = encoder.ack_reason(kind, packet_id, reason, V5, properties)
    plain_one = reason == 0 and properties == Properties()
    expected = kind << 16 | packet_id if plain_one else Puback(PacketType(kind), packet_id, reason, properties)
    assert decode_all(encoded, V5) == [expected]


requests = st.builds(SubscriptionRequest, texts.filter(bool), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2))


@given(for_version(8), packet_ids, st.lists(requests, min_size=1, max_size=4))
def test_subscribe(pair: tuple[int, Properties], packet_id: int, filters: list[SubscriptionRequest]) -> None:
    version, properties = pair
    if version != V5:
        filters = [SubscriptionRequest(request.filter, request.qos) for request in filters]
    packet = Subscribe(packet_id, filters, properties)
    assert decode_all(encoder.subscribe(packet, version), version) == [packet]


@given(for_version(10), packet_ids, st.lists(texts.filter(bool), min_size=1, max_size=4))
def test_unsubscribe(pair: tuple[int, Properties], packet_id: int, filters: list[bytes]) -> None:
    version, properties = pair
    packet = Unsubscribe(packet_id, filters, properties)
    assert decode_all(encoder.unsubscribe(packet, version), version) == [packet]


@given(for_version(9), packet_ids, st.lists(st.sampled_from(sorted(SUBACK_REASONS)), max_size=4))
def test_suback(pair: tuple[int, Properties], packet_id: int, reasons: list[int]) -> None:
    version, properties = pair
    expected = reasons if version == V5 else [min(reason, 0x80) for reason in reasons]
    assert decode_all(encoder.suback(version, packet_id, reasons, properties), version, False) == [Suback(packet_id, expected, properties)]


@given(for_version(11), packet_ids, st.lists(st.sampled_from(sorted(UNSUBACK_REASONS)), max_size=4))
def test_unsuback(pair: tuple[int, Properties], packet_id: int, reasons: list[int]) -> None:
    version, properties = pair
    expected = Unsuback(packet_id, reasons if version == V5 else [], properties)
    assert decode_all(encoder.unsuback(version, packet_id, reasons, properties), version, False) == [expected]


@given(st.sampled_from(sorted(CLIENT_DISCONNECT_REASONS)), property_values(14))
def test_disconnect(reason: int, properties: Properties) -> None:
    properties.server_reference = None  # the server's alone
    assert decode_all(encoder.disconnect(V5, reason, properties), V5) == [Disconnect(reason, properties)]


def decode_anything(buffer: bytes, version: int, from_client: bool) -> None:
    """No other exception, nothing past the end, no packet that was not complete."""
    out: list[Any] = []
    try:
        assert 0 <= decode(bytearray(buffer), 0, len(buffer), version, 1000, out, from_client) <= len(buffer)
    except ProtocolError as error:
        assert error.reason >= 0x80  # noqa: PT017
    for item in out:
        repr(plain(item))


@given(st.binary(max_size=200), st.sampled_from([FIRST, V31, V311, V5]), st.booleans())
def test_any_bytes(buffer: bytes, version: int, from_client: bool) -> None:
    decode_anything(buffer, version, from_client)


@given(st.sampled_from(CASES), st.data())
def test_any_damage(case: Any, damage: st.DataObject) -> None:
    """Bytes of a good packet replaced, removed and inserted."""
    buffer = bytearray(case.data)
    for _ in range(damage.draw(st.integers(1, 3))):
        at = damage.draw(st.integers(0, len(buffer)))
        buffer[at : at + damage.draw(st.integers(0, 2))] = damage.draw(st.binary(max_size=2))
    decode_anything(bytes(buffer), case.version, case.from_client)


@given(
    st.lists(st.sampled_from([case for case in CASES if case.version == V5 and case.from_client]), max_size=6),
    st.lists(st.integers(0, 400)),
)
def test_any_split(cases: list[Any], cuts: list[int]) -> None:
    """However the stream is cut into reads, the same packets come out."""
    stream = b"".join(case.data for case in cases)
    found: list[Any] = []
    held = bytearray()
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, stop in pairwise(borders):
        held += stream[start:stop]
        del held[: decode(held, 0, len(held), V5, 1000, found)]
    assert [plain(item) for item in found] == [case.packet for case in cases]


def test_some_fuzzing() -> None:
    """A taste of `fuzz.py`, which is for millions: damaged packets of every kind end in every reason."""
    ended = fuzz(5_000, 7)
    assert {0, 0x81, 0x82} <= set(ended)
