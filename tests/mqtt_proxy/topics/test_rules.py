from __future__ import annotations

from itertools import product

import pytest

from mqtt_proxy.topics.rules import covers, filter_fault, levels, matches, name_fault, parse_share, valid_filter, valid_name


@pytest.mark.parametrize("topic", [b"a", b"/", b"//", b"a/b/", b"$SYS/x", b" ", b"a b", "ä/😀".encode(), b"\xef\xbb\xbf", b"x" * 65_535])
def test_names(topic: bytes) -> None:
    assert valid_name(topic)
    assert name_fault(topic) is None
    assert valid_filter(topic)


@pytest.mark.parametrize(
    ("topic", "fault"),
    [(b"", "empty"), (b"+", "wildcard"), (b"a/#", "wildcard"), (b"a+", "wildcard"), (b"a\0", "U+0000"), (b"\xff", "UTF-8"),
     (b"\xed\xa0\x80", "UTF-8"), (b"x" * 65_536, "65535")],
)  # fmt: skip
def test_no_names(topic: bytes, fault: str) -> None:
    assert not valid_name(topic)
    assert fault in str(name_fault(topic))


@pytest.mark.parametrize(
    "topic_filter",
    [b"#", b"+", b"/#", b"+/+", b"a/+/b/#", b"+/#", b"/+", b"sport/+", b"$SYS/#", b"$share/g/a", b"$share/g/#",
     b"$share/g/+/x", b"$share/g//",
     b"$shared/+", b"$share"],
)  # fmt: skip
def test_filters(topic_filter: bytes) -> None:
    assert valid_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "fault"),
    [(b"", "empty"), (b"a#", "#"), (b"a/#/b", "#"), (b"#/a", "#"), (b"##", "#"), (b"a+", "+"), (b"+a/b", "+"),
     (b"a/b+/c", "+"), (b"a\0", "U+0000"),
     (b"++", "+"), (b"$share/g", "no filter"), (b"$share/g/", "no filter"), (b"$share//a", "empty share"), (b"$share/+/a", "share name"),
     (b"$share/g#/a", "share name"), (b"$share/", "empty share"), (b"$share/g/a#", "#")],
)  # fmt: skip
def test_no_filters(topic_filter: bytes, fault: str) -> None:
    assert not valid_filter(topic_filter)
    assert fault in str(filter_fault(topic_filter))


def test_parse_share() -> None:
    assert parse_share(b"$share/g/a/#") == (b"g", b"a/#")
    assert parse_share(b"$share/g//") == (b"g", b"/")
    assert parse_share(b"a/b") == (b"", b"a/b")
    assert parse_share(b"$shared/g/a") == (b"", b"$shared/g/a")
    for broken in (b"$share/g", b"$share/g/", b"$share//a", b"$share/+/a", b"$share/"):
        with pytest.raises(ValueError, match="share"):
            parse_share(broken)


def test_levels() -> None:
    assert [levels(topic) for topic in (b"a", b"a/b", b"/", b"a//b/")] == [1, 2, 2, 4]


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # The specification's own examples. MQTT 5.0 §4.7.1, §4.7.2
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"#", b"$SYS/monitor/Clients", False),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),
        (b"$SYS/#", b"$SYS/monitor/Clients", True),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
        # Ours
        (b"a/$b", b"a/$b", True),
        (b"a/+", b"a/$b", True),
        (b"a", b"A", False),
        (b"/a", b"a", False),
        (b"#", b"/", True),
        (b"/#", b"/", True),
        (b"a//b", b"a/b", False),
        (b"a/+/b", b"a//b", True),
    ],
)
def test_matches(topic_filter: bytes, topic: bytes, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


def test_covers_is_what_matching_says() -> None:
    """Against all names of up to four levels over an alphabet with one level that no filter names."""
    words = [b"a", b"$x", b"", b"other"]
    topics = [b"/".join(name) for depth in (1, 2, 3, 4) for name in product(words, repeat=depth)]
    parts = [b"a", b"$x", b"", b"+", b"#"]
    filters = [b"/".join(some) for depth in (1, 2, 3) for some in product(parts, repeat=depth)]
    filters = [some for some in filters if some and valid_filter(some)]
    matched = {some: frozenset(topic for topic in topics if matches(some, topic)) for some in filters}
    for broad in filters:
        for narrow in filters:
            assert covers(broad, narrow) is (matched[narrow] <= matched[broad]), (broad, narrow)
