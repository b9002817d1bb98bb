"""Where the broker is: mqtt|mqtts|ws|wss://[user[:password]@]host[:port][/path]."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from loadtest.units import UsageError

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address; `str()` of it shows no password."""

    scheme: str
    host: str
    port: int
    path: str = ""
    username: str | None = None
    password: str | None = None

    @property
    def tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    __repr__ = __str__

    def resolve(self) -> tuple[int, Any]:
        """Socket family and address. Raises UsageError where the name is unknown."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as failure:
            raise UsageError(f"host {self.host!r} is not known: {failure.strerror or failure}") from None
        family, _, _, _, address = found[0]
        return int(family), address


def parse(text: str) -> Address:
    """Raises UsageError with what is wrong; never repeats the password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError("the broker's URL has no valid port: write it like mqtt://127.0.0.1:1883") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError("the broker's URL is mqtt|mqtts|ws|wss://[user[:password]@]host:port")
    if port == 0:
        raise UsageError("port 0 is no broker's port")
    if parts.query or parts.fragment or (parts.path not in ("", "/") and not parts.scheme.startswith("ws")):
        raise UsageError("a broker's URL has no path, query or fragment (a path only with ws and wss)")
    path = parts.path if parts.scheme.startswith("ws") else ""
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or PORTS[parts.scheme],
        path=path or ("/mqtt" if parts.scheme.startswith("ws") else ""),
        username=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password) if parts.password is not None else None,
    )
