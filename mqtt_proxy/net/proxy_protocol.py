"""The PROXY protocol, versions 1 and 2: a balancer's header that names the real peer. Pure parser, and its layer.

Source: https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt. Only for listeners that say so: whoever can connect
to one can claim any address.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from mqtt_proxy.net.layers import LayerEnded

if TYPE_CHECKING:
    from mqtt_proxy.net.link import Link

V1_PREFIX = b"PROXY "
V1_MOST_BYTES = 107
V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V2_HEADER_BYTES = 16
V2_MOST_BYTES = 4_096
"""Addresses and additions (TLVs) of a version 2 header; senders stay below 1 kB."""


class ProxyHeaderError(ValueError):
    """The connection doesn't begin with a PROXY header."""


def parse_proxy_header(data: bytes) -> tuple[int, str] | None:
    """(bytes of the header, `host:port` it names or "" to keep the connection's own); None while it is incomplete."""
    if data[:12] == V2_SIGNATURE[: len(data)]:
        return _parse_v2(data)
    if data[:6] == V1_PREFIX[: len(data)]:
        return _parse_v1(data)
    raise ProxyHeaderError("no PROXY header")


def _parse_v1(data: bytes) -> tuple[int, str] | None:
    end = data.find(b"\r\n", 0, V1_MOST_BYTES)
    if end < 0:
        if len(data) >= V1_MOST_BYTES:
            raise ProxyHeaderError("PROXY line too long")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return end + 2, ""
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProxyHeaderError("malformed PROXY line")
    try:
        addresses = [ipaddress.ip_address(word) for word in words[2:4]]
    except ValueError:
        raise ProxyHeaderError("malformed address in PROXY line") from None
    version = 4 if words[1] == "TCP4" else 6
    ports = [int(word) if word.isascii() and word.isdigit() and len(word) <= 5 else 65_536 for word in words[4:6]]
    if any(address.version != version for address in addresses) or max(ports) > 65_535:
        raise ProxyHeaderError("malformed PROXY line")
    return end + 2, _text(addresses[0], ports[0])


def _parse_v2(data: bytes) -> tuple[int, str] | None:
    if len(data) < V2_HEADER_BYTES:
        return None
    version, command, family = data[12] >> 4, data[12] & 0x0F, data[13]
    length = int.from_bytes(data[14:16], "big")
    if version != 2 or command > 1:
        raise ProxyHeaderError("unknown version or command in PROXY header")
    if length > V2_MOST_BYTES:
        raise ProxyHeaderError("PROXY header too long")
    size = V2_HEADER_BYTES + length
    if len(data) < size:
        return None
    if command == 0:  # LOCAL: the balancer itself, such as a health check
        return size, ""
    block = data[V2_HEADER_BYTES:size]
    if family == 0x11:  # TCP over IPv4
        if length < 12:
            raise ProxyHeaderError("PROXY header too short for its addresses")
        return size, _text(ipaddress.IPv4Address(block[:4]), int.from_bytes(block[8:10], "big"))
    if family == 0x21:  # TCP over IPv6
        if length < 36:
            raise ProxyHeaderError("PROXY header too short for its addresses")
        return size, _text(ipaddress.IPv6Address(block[:16]), int.from_bytes(block[32:34], "big"))
    return size, "unix" if family == 0x31 else ""


def _text(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


class ProxyLayer:
    """Takes the header off, tells the link its real peer, and is gone."""

    __slots__ = ("answers", "finished", "head")

    def __init__(self) -> None:
        self.answers = bytearray()
        self.finished = False
        self.head = b""

    def receive(self, link: Link, data: bytes) -> bytes:
        self.head += data
        try:
            parsed = parse_proxy_header(self.head)
        except ProxyHeaderError as error:
            raise LayerEnded(str(error)) from None
        if parsed is None:
            return b""
        size, peer = parsed
        if peer and not link.takes_peer(peer):
            raise LayerEnded("a limit of its address was reached")
        self.finished = True
        return self.head[size:]

    def send(self, data: bytes) -> bytes:
        return data

    def goodbye(self) -> bytes:
        return b""
