"""The HTTP request that opens a WebSocket, and its answer. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqtt_proxy.net.listen_url import ListenerOptions

REQUEST_BYTES = 8 * 1024
"""Longest request head taken; browsers send cookies along."""
ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SUBPROTOCOLS = ("mqtt", "mqttv3.1")


class HttpError(Exception):
    """The request opens no WebSocket; `response` says so to whoever sent it, in words."""

    def __init__(self, status: str, why: str, *headers: str) -> None:
        super().__init__(why)
        body = f"{why}\n".encode()
        lines = [
            f"HTTP/1.1 {status}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *headers,
        ]
        self.response = "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answer_upgrade(data: bytes, options: ListenerOptions, answers: bytearray) -> bytes | None:
    """Answer a complete request head with 101 and return what follows it; None while it is incomplete. Raises HttpError."""
    end = data.find(b"\r\n\r\n", 0, REQUEST_BYTES)
    if end < 0:
        if len(data) >= REQUEST_BYTES:
            raise HttpError("431 Request Header Fields Too Large", f"request head of more than {REQUEST_BYTES} bytes")
        if data and not b"A" <= data[:1] <= b"Z":
            raise HttpError("400 Bad Request", "this port speaks MQTT over WebSocket, which begins with an HTTP request")
        return None
    method, target, headers = _parse(data[:end])
    _check_request(method, target, headers, options)
    key = _key(headers)
    subprotocol = _subprotocol(headers)
    accept = base64.b64encode(hashlib.sha1(key + ACCEPT_GUID, usedforsecurity=False).digest())
    answers += b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    answers += accept + b"\r\nSec-WebSocket-Protocol: " + subprotocol.encode() + b"\r\n\r\n"
    return data[end + 4 :]


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise HttpError("400 Bad Request", "this port speaks MQTT over WebSocket, which begins with an HTTP request")
    if words[2] != "HTTP/1.1":
        raise HttpError("505 HTTP Version Not Supported", "WebSocket begins with an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError("400 Bad Request", "malformed header line")
        name = name.lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return words[0], words[1], headers


def _check_request(method: str, target: str, headers: dict[str, str], options: ListenerOptions) -> None:
    if method != "GET":
        raise HttpError("405 Method Not Allowed", "a WebSocket is opened by GET", "Allow: GET")
    path = target.partition("?")[0]
    if path not in ("/", options.path):
        raise HttpError("404 Not Found", f"MQTT over WebSocket is at {options.path}")
    if "websocket" not in _words(headers.get("upgrade", "")) or "upgrade" not in _words(headers.get("connection", "")):
        raise HttpError("426 Upgrade Required", "this is MQTT over WebSocket: connect with an MQTT client", "Upgrade: websocket")
    if headers.get("sec-websocket-version") != "13":
        raise HttpError("426 Upgrade Required", "WebSocket version 13 is spoken here", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    origin = headers.get("origin", "").lower()
    if options.ws_origins and origin and origin not in _words(options.ws_origins):
        raise HttpError("403 Forbidden", "pages of this origin may not connect")


def _key(headers: dict[str, str]) -> bytes:
    key = headers.get("sec-websocket-key", "").encode("latin-1")
    try:
        if len(base64.b64decode(key, validate=True)) == 16:
            return key
    except binascii.Error:
        pass
    raise HttpError("400 Bad Request", "Sec-WebSocket-Key is not 16 bytes in base64")


def _subprotocol(headers: dict[str, str]) -> str:
    """The client has to offer `mqtt` [MQTT-6.0.0-3], and is told that it was chosen [MQTT-6.0.0-4]."""
    offered = _words(headers.get("sec-websocket-protocol", ""))
    for name in SUBPROTOCOLS:
        if name in offered:
            return name
    raise HttpError("400 Bad Request", "the WebSocket subprotocol has to be mqtt")


def _words(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]
