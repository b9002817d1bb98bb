"""How `lmq sub` prints a message: payload, `-v`, `-F FORMAT` with mosquitto_sub's letters, or `--json`."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any

from lmq_store.api.model import Message
from mqtt_proxy.packets.properties import Properties, decode_properties
from mqtt_proxy.packets.types import PacketType

Printer = Callable[[Message], bytes]

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\a": "\a", "\\e": "\x1b", "\\v": "\v", "\\\\": "\\"}


def properties_of(message: Message) -> Properties:
    """The message's MQTT 5 properties."""
    return decode_properties(message.properties, PacketType.PUBLISH)


def user_property(message: Message, name: bytes) -> bytes | None:
    """The first user property of that name."""
    if name not in message.properties:
        return None
    return next((value for key, value in properties_of(message).user_properties if key == name), None)


def plain(message: Message) -> bytes:
    """The payload."""
    return message.payload


def verbose(message: Message) -> bytes:
    """Topic and payload; `(null)` for an empty one, as mosquitto_sub has it."""
    return message.topic + b" " + (message.payload or b"(null)")


def as_json(message: Message) -> bytes:
    """One object: tst, topic, qos, retain, payloadlen, payload (text, or payload_base64), and the properties there are."""
    return json.dumps(json_members(message), ensure_ascii=False).encode()


def json_members(message: Message) -> dict[str, Any]:
    """The members of `as_json`."""
    members: dict[str, Any] = {
        "tst": _now("%Y-%m-%dT%H:%M:%S%z"),
        "topic": message.topic.decode(),
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        members["mid"] = message.packet_id
    if message.dup:
        members["dup"] = 1
    properties = _json_properties(message)
    if properties:
        members["properties"] = properties
    try:
        members["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        members["payload_base64"] = base64.b64encode(message.payload).decode()
    return members


def _json_properties(message: Message) -> dict[str, Any]:
    properties = properties_of(message)
    found: dict[str, Any] = {}
    for name, value in (
        ("payload-format-indicator", properties.payload_format),
        ("message-expiry-interval", None if message.expiry_s < 0 else message.expiry_s),
        ("content-type", properties.content_type),
        ("response-topic", properties.response_topic),
        ("correlation-data", None if properties.correlation_data is None else properties.correlation_data.hex()),
        ("subscription-identifier", properties.subscription_identifiers or None),
    ):
        if value is not None:
            found[name] = value.decode() if isinstance(value, bytes) else value
    if properties.user_properties:
        found["user-properties"] = [{key.decode(): value.decode()} for key, value in properties.user_properties]
    return found


def formatted(form: str) -> Printer:
    """A printer for `-F`; ValueError for a letter that does not exist."""
    pieces = re.findall(r"%@.|%.|\\.|%|[^%\\]+|\\", form, re.DOTALL)
    writers: list[Callable[[Message], bytes]] = []
    for piece in pieces:
        if piece.startswith("%@"):
            writers.append(_moment("%" + piece[2]))
        elif piece.startswith("%"):
            letter = piece[1:]
            if letter not in _LETTERS:
                raise ValueError(
                    f"{piece} is no format: there are {' '.join('%' + each for each in _LETTERS)} and %@ with a letter of date(1)"
                )
            writers.append(_LETTERS[letter])
        else:
            writers.append(_text(_ESCAPES.get(piece, piece)))
    return lambda message: b"".join(write(message) for write in writers)


def _text(text: str) -> Callable[[Message], bytes]:
    data = text.encode(errors="surrogateescape")
    return lambda message: data


def _moment(directive: str) -> Callable[[Message], bytes]:
    return lambda message: _now(directive).encode()


def _now(form: str) -> str:
    return time.strftime(form)


def _of(name: str) -> Callable[[Message], bytes]:
    def write(message: Message) -> bytes:
        value = getattr(properties_of(message), name)
        return value if isinstance(value, bytes) else b"" if value is None else str(value).encode()

    return write


_LETTERS: dict[str, Callable[[Message], bytes]] = {
    "%": lambda message: b"%",
    "A": lambda message: str(message.topic_alias or "").encode(),
    "C": _of("content_type"),
    "D": _of("correlation_data"),
    "d": lambda message: b"%d" % message.dup,
    "E": lambda message: b"" if message.expiry_s < 0 else b"%d" % message.expiry_s,
    "F": _of("payload_format"),
    "I": lambda message: _now("%Y-%m-%dT%H:%M:%S%z").encode(),
    "j": as_json,
    "J": lambda message: json.dumps(json_members(message), ensure_ascii=False, indent=2).encode(),
    "l": lambda message: b"%d" % len(message.payload),
    "m": lambda message: b"%d" % message.packet_id,
    "P": lambda message: b" ".join(key + b":" + value for key, value in properties_of(message).user_properties),
    "p": plain,
    "q": lambda message: b"%d" % message.qos,
    "R": _of("response_topic"),
    "r": lambda message: b"%d" % message.retain,
    "S": lambda message: b" ".join(b"%d" % each for each in properties_of(message).subscription_identifiers),
    "t": lambda message: message.topic,
    "U": lambda message: f"{time.time():.9f}".encode(),
    "x": lambda message: message.payload.hex().encode(),
    "X": lambda message: message.payload.hex().upper().encode(),
}
