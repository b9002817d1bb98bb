"""Topic names and filters (4.7) and the UTF-8 strings they are (1.5.3 of 3.1.1, 1.5.4 of 5.0)."""

from __future__ import annotations

import unicodedata

import pytest

from . import wire
from .client import Closed
from .conftest import Connect
from .covers import V5, both_versions, covers

MATCHES = [
    # filter, topics that match, topics that don't; "{}" is a word of the test's own
    ("{}/#", ["{}", "{}/", "{}/a", "{}/a/b/c", "{}/$a"], ["{}x", "/{}", "{}x/a"]),
    ("{}/+", ["{}/a", "{}/", "{}/$a"], ["{}", "{}/a/b", "{}/a/"]),
    ("{}/+/c", ["{}/a/c", "{}//c"], ["{}/c", "{}/a/b/c", "{}/a/c/"]),
    ("{}/a/+", ["{}/a/b", "{}/a/"], ["{}/a", "{}/b/a"]),
    ("{}/+/+", ["{}/a/b", "{}//", "{}/a/"], ["{}/a", "{}/a/b/c"]),
    ("{}/+/#", ["{}/a", "{}/a/b", "{}/", "{}//"], ["{}"]),
    ("{}/a//b", ["{}/a//b"], ["{}/a/b", "{}/a/x/b"]),
    ("+/{}", ["a/{}", "/{}"], ["{}", "a/b/{}", "$a/{}"]),
    ("+/{}/#", ["a/{}", "a/{}/b"], ["$b/{}", "$a/{}/b"]),
    ("/{}", ["/{}"], ["{}", "{}/", "//{}"]),
    ("/+/{}", ["/a/{}", "//{}"], ["a/{}", "/{}"]),
    ("$a/{}/#", ["$a/{}", "$a/{}/b"], ["a/{}"]),
    ("$a/+/{}", ["$a/b/{}"], ["$b/b/{}"]),
]


@covers(v3="4.7.1-2 4.7.1-3 4.7.2-1 3.3.2-3", v5="4.7.1-1 4.7.1-2 4.7.2-1 3.3.2-3")
@both_versions
@pytest.mark.parametrize(("topic_filter", "matching", "others"), MATCHES, ids=[m[0] for m in MATCHES])
def test_matching(connect: Connect, name: str, version: int, topic_filter: str, matching: list[str], others: list[str]) -> None:
    """As of live messages, so of retained ones."""
    names = [t.format(name) for t in matching + others]
    live, publisher = connect(version), connect(version)
    live.subscribe(topic_filter.format(name), qos=1)
    for topic in names:
        publisher.publish(topic, b"x", qos=1, retain=True)
    assert [m.topic.decode() for m in live.take(len(matching))] == [t.format(name) for t in matching]
    live.silent(0.05)
    later = connect(version)
    later.subscribe(topic_filter.format(name), qos=1)
    assert {m.topic.decode() for m in later.take(len(matching))} == {t.format(name) for t in matching}
    later.silent(0.05)
    for topic in names:
        publisher.publish(topic, b"", qos=1, retain=True)


@covers(v3="4.7.2-1", v5="4.7.2-1")
@both_versions
@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+/{}", "+/+"])
def test_leading_wildcard_does_not_match_dollar(connect: Connect, name: str, version: int, topic_filter: str) -> None:
    client = connect(version)
    client.subscribe(topic_filter.format(name), qos=1)
    publisher = connect(version)
    publisher.publish(f"$hidden/{name}", b"hidden", qos=1)
    publisher.publish(f"shown/{name}", b"shown", qos=1)
    while (message := client.message()).payload != b"shown":
        assert not message.topic.startswith(b"$")


@covers(v3="4.7.2-1", v5="4.7.2-1")
@both_versions
def test_hash_does_not_match_sys_topics(connect: Connect, version: int) -> None:
    client = connect(version)
    client.subscribe("#", qos=0)
    client.alive()
    assert not any(p.topic.startswith(b"$") for p in client.inbox)


@covers(v3="4.7.3-4", v5="4.7.3-4")
@both_versions
def test_names_are_not_normalized(connect: Connect, name: str, version: int) -> None:
    """Case, composition, spaces and slashes all count; each subscription gets its own alone."""
    words = ["é", unicodedata.normalize("NFD", "é"), "É", "a b", "a  b", "ab", "AB", "/", "//"]
    words += ["\ufb01", "fi", "\u200b", "ß", "ss", "%41", "a\\b"]
    topics = [f"{name}/{word}" for word in words]
    client = connect(version)
    for topic in topics:
        other = connect(version)
        other.subscribe(topic)
        client.publish(topic, topic.encode())
        message = other.message()
        assert message.topic == topic.encode()
        for different in topics:
            if different != topic:
                client.send(wire.publish(different, b"no", version=version))
        client.alive()
        other.silent(0.01)
        other.close()


@covers(v3="1.5.3-3 4.7.3-4", v5="1.5.4-3 4.7.3-4")
@both_versions
def test_zero_width_no_break_space_stays(connect: Connect, name: str, version: int) -> None:
    """EF BB BF is a character wherever it stands, never a byte order mark to be stripped."""
    client = connect(version)
    for topic in (f"\ufeff{name}", f"{name}\ufeff", f"{name}/\ufeff/x", f"\ufeff\ufeff{name}"):
        client.subscribe(topic, qos=1)
    client.subscribe(name, qos=1)
    for topic in (f"\ufeff{name}", f"{name}\ufeff", f"{name}/\ufeff/x", f"\ufeff\ufeff{name}", name):
        client.publish(topic, b"x", qos=1)
        assert client.message().topic == topic.encode()
    client.silent(0.05)


ILL_FORMED = {
    "surrogate D800": b"\xed\xa0\x80",
    "surrogate DFFF": b"\xed\xbf\xbf",
    "surrogate pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "overlong slash": b"\xc0\xaf",
    "overlong null": b"\xc0\x80",
    "overlong of three": b"\xe0\x80\xaf",
    "overlong of four": b"\xf0\x80\x80\xaf",
    "beyond 10FFFF": b"\xf4\x90\x80\x80",
    "byte F5": b"\xf5\x80\x80\x80",
    "byte FF": b"\xff",
    "stray continuation": b"\x80",
    "cut of two": b"\xc3",
    "cut of three": b"\xe2\x82",
    "cut of four": b"\xf0\x9f\x98",
    "null": b"\0",
}
STRINGS = pytest.mark.parametrize("bad", ILL_FORMED.values(), ids=ILL_FORMED.keys())


@covers(
    v3="1.5.3-1 1.5.3-2 4.7.3-2 3.3.2-1 3.8.3-1 3.10.3-1 4.8.0-1", v5="1.5.4-1 1.5.4-2 4.7.3-2 3.3.2-1 3.8.3-1 3.10.3-1 4.13.1-1 1.5.7-1"
)
@both_versions
@STRINGS
def test_ill_formed_string_ends_the_connection(connect: Connect, version: int, bad: bytes) -> None:
    """In a name or filter, at its start, inside it and at its end."""
    for text in (bad, b"a" + bad, bad + b"a", b"a/" + bad + b"/b"):
        packets = [
            wire.publish(text, version=version),
            wire.subscribe(1, [(text, 0)], version=version),
            wire.unsubscribe(1, [text], version=version),
        ]
        if version == V5:
            packets.append(wire.publish("a", properties=[("user_property", (text, b""))]))
            packets.append(wire.disconnect(0, [("reason_string", text)]))
        for raw in packets:
            client = connect(version)
            client.send(raw)
            client.refused(0x81, 0x82, 0x8F, 0x90)


@covers(v3="1.5.3-1", v5="1.5.4-1")
@both_versions
@pytest.mark.parametrize("word", ["\u07ff", "\u0800", "\ud7ff", "\ue000", "\U00010000", "\U0010fffd", "漢字", "😀", "\uf8ff"])
def test_well_formed_strings_pass(connect: Connect, name: str, version: int, word: str) -> None:
    client = connect(version)
    client.subscribe(f"{name}/{word}", qos=1)
    client.publish(f"{name}/{word}", word.encode(), qos=1)
    message = client.message()
    assert (message.topic, message.payload) == (f"{name}/{word}".encode(), word.encode())


@covers(v3="1.5.3-1", v5="1.5.4-1")
@both_versions
@pytest.mark.parametrize("word", ["\u0001", "\u001f", "\u007f", "\u009f", "\ufdd0", "\uffff", "\U0001fffe", "\U0010ffff"])
def test_discouraged_characters_pass_or_end_the_connection(connect: Connect, name: str, version: int, word: str) -> None:
    """SHOULD NOT of section 1.5.3 / 1.5.4: a receiver may treat them as malformed; it may not change them."""
    client = connect(version)
    try:
        client.subscribe(f"{name}/{word}", qos=1)
        client.publish(f"{name}/{word}", b"x", qos=1)
        assert client.message().topic == f"{name}/{word}".encode()
    except Closed:
        connect(version).alive()
