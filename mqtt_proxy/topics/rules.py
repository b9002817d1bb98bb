"""What is a topic name, what a filter, and which matches which. MQTT 5.0 §4.7, §4.8.2

Names and filters are UTF-8 bytes. The answers here are the reference: `trie` gives the same, fast and for many filters.
"""

from __future__ import annotations

from mqtt_proxy.packets.wire import utf8_fault

LENGTH_MAX = 65_535
"""Bytes of a name or filter. [MQTT-4.7.3-3]"""

SHARE_PREFIX = b"$share/"


def levels(topic: bytes) -> int:
    """How many levels a name or filter has: one more than it has `/`."""
    return topic.count(b"/") + 1


def _text_fault(text: bytes) -> str | None:
    if not text:
        return "is empty"  # [MQTT-4.7.3-1]
    if len(text) > LENGTH_MAX:
        return f"is longer than {LENGTH_MAX} bytes"  # [MQTT-4.7.3-3]
    return utf8_fault(text)  # [MQTT-4.7.3-2]


def name_fault(topic: bytes) -> str | None:
    """Why this is no topic name to publish to, as the end of a sentence; None where it is one. [MQTT-3.3.2-2]"""
    fault = _text_fault(topic)
    if fault is None and (b"+" in topic or b"#" in topic):
        return "has a wildcard in it"
    return fault


def filter_fault(topic_filter: bytes) -> str | None:
    """Why this is no topic filter, shared or not, as the end of a sentence; None where it is one."""
    fault = _text_fault(topic_filter)
    if fault is not None:
        return fault
    if topic_filter.startswith(SHARE_PREFIX):
        group, slash, topic_filter = topic_filter[len(SHARE_PREFIX) :].partition(b"/")
        if not group:
            return "has an empty share name"  # [MQTT-4.8.2-1]
        if b"+" in group or b"#" in group:
            return "has a wildcard in its share name"  # [MQTT-4.8.2-2]
        if not slash or not topic_filter:
            return "has no filter behind its share name"  # [MQTT-4.8.2-2]
    if b"#" in topic_filter[:-1] or (topic_filter.endswith(b"#") and topic_filter[-2:] not in (b"#", b"/#")):
        return "has a # that is not its whole last level"  # [MQTT-4.7.1-1]
    if b"+" in topic_filter and any(len(level) > 1 and b"+" in level for level in topic_filter.split(b"/")):
        return "has a + that is not a whole level"  # [MQTT-4.7.1-2]
    return None


def valid_name(topic: bytes) -> bool:
    return name_fault(topic) is None


def valid_filter(topic_filter: bytes) -> bool:
    return filter_fault(topic_filter) is None


def has_wildcard(topic_filter: bytes) -> bool:
    return b"+" in topic_filter or b"#" in topic_filter


def parse_share(topic_filter: bytes) -> tuple[bytes, bytes]:
    """`$share/group/filter` → (group, filter); a filter that isn't shared → (b"", filter). ValueError where it is broken.

    [MQTT-4.8.2-1] [MQTT-4.8.2-2]
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return b"", topic_filter
    group, _, rest = topic_filter[len(SHARE_PREFIX) :].partition(b"/")
    if not group or not rest or has_wildcard(group):
        raise ValueError(f"{topic_filter[:64]!r} {filter_fault(topic_filter)}")
    return group, rest


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Does the (unshared, valid) filter match the name? [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.2-1]"""
    if topic.startswith(b"$") and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted = topic_filter.split(b"/")
    given = topic.split(b"/")
    for at, level in enumerate(wanted):
        if level == b"#":
            return True  # the parent level as well: "a/#" matches "a"
        if at == len(given) or level not in (b"+", given[at]):
            return False
    return len(wanted) == len(given)


def covers(broad: bytes, narrow: bytes) -> bool:
    """Does `broad` match every name that `narrow` can match? Both are valid, unshared filters. [MQTT-4.7.2-1]"""
    if broad == b"+/#":
        broad = b"#"  # every name has a first level
    if narrow.startswith(b"$") and broad[:1] in (b"+", b"#"):
        return False
    wide = broad.split(b"/")
    slim = narrow.split(b"/")
    for at, level in enumerate(wide):
        if level == b"#":
            return True
        if at == len(slim) or slim[at] == b"#" or level not in (b"+", slim[at]):
            return False
    return len(wide) == len(slim)
