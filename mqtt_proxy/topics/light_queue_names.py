"""What a queue is called where `/`, `+` and `#` are not allowed: RocketMQ's topic and queue names.

A wire name is a letter for the kind and the escaped name, at most 64 characters of `[A-Za-z0-9_-]`. Letters, digits and
`-` stand for themselves; every other byte is `_` and one letter (the frequent ones) or `_` and two hex digits. A name
that gets too long that way is cut, and a 128-bit hash follows; its kind letter is a capital then, so that no short name
looks like a long one. Short names are injective and can be read back; long ones are as unique as the hash, and the
registry, which holds the full name, refuses a collision.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b

WIRE_NAME_MAX = 64
"""Characters. RocketMQ's client refuses more than 127 in a topic, ours leaves room for prefixes like `%LMQ%`."""

_HASH_BYTES = 16
_PREFIX_MAX = WIRE_NAME_MAX - 2 - 2 * _HASH_BYTES  # kind letter, prefix, "-", hash in hex


class QueueKind(Enum):
    """What a queue serves; the value is the wire name's first letter."""

    FILTER = "f"  # a topic filter's light queue
    PARENT = "p"  # a parent topic (first level of topic names)
    DEVICE = "d"  # $p2p of one client id
    DEAD_LETTER = "x"  # what a shared group could not deliver
    INTERNAL = "i"


_SHORT = {b"/": "__", b"_": "_u", b"+": "_p", b"#": "_h", b"$": "_s", b".": "_o", b" ": "_w", b":": "_k"}
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")
_ESCAPED = [chr(byte) if byte in _PLAIN else _SHORT.get(bytes((byte,)), f"_{byte:02x}") for byte in range(256)]
_UNESCAPED = {text: byte for byte, text in enumerate(_ESCAPED)}


def wire_name(kind: QueueKind, name: bytes) -> str:
    """The wire name of a queue, the same for ever: it stands on disk and in RocketMQ."""
    pieces = [_ESCAPED[byte] for byte in name[:WIRE_NAME_MAX]]
    escaped = "".join(pieces)
    if len(name) < WIRE_NAME_MAX and len(escaped) < WIRE_NAME_MAX:
        return kind.value + escaped
    while len(escaped) > _PREFIX_MAX:  # never cut inside an escape
        escaped = escaped[: -len(pieces.pop())]
    return f"{kind.value.upper()}{escaped}-{blake2b(name, digest_size=_HASH_BYTES).hexdigest()}"


def parse_wire_name(text: str) -> tuple[QueueKind, bytes | None]:
    """Kind and name back; the name is None where only the registry knows it. ValueError for what is no wire name."""
    if not 1 <= len(text) <= WIRE_NAME_MAX:
        raise ValueError(f"a wire name has 1 to {WIRE_NAME_MAX} characters: {text[:80]!r}")
    kind = QueueKind(text[0].lower())
    if text[0].isupper():
        return kind, None
    name = bytearray()
    at = 1
    while at < len(text):
        for size in (1, 2, 3):
            byte = _UNESCAPED.get(text[at : at + size])
            if byte is not None:
                break
        else:
            raise ValueError(f"no wire name: {text!r} at {at}")
        name.append(byte)
        at += size
    return kind, bytes(name)
