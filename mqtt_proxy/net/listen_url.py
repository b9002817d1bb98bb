"""What a listener is told: a URL such as `mqtts://[::]:8883?cert=server.pem&key=server.key`, or the same as a table.

mqtt://127.0.0.1:1883      TCP; port 0 takes a free one; an empty host listens on all addresses, IPv4 and IPv6
mqtts://…?cert=&key=&ca=&require=true&subject_as_user=true      TLS; `ca` and `require`: mutual TLS
ws://:8080/mqtt, wss://…   WebSocket, on `path` (/mqtt) and /
unix:///run/lmq.sock?mode=660      Unix socket
…&proxy_protocol=true      each connection begins with a PROXY v1 or v2 header, which names the real peer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 8080, "wss": 8443, "unix": 0}
TRUE_WORDS = {"true", "yes", "on", "1", ""}
FALSE_WORDS = {"false", "no", "off", "0"}


class ListenError(ValueError):
    """A listener can't be had as asked; the text is one line that says what and why."""


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """One listener. `host` empty means all addresses; `port` 0 takes a free one."""

    scheme: str = "mqtt"
    host: str = "127.0.0.1"
    port: int = 1883
    path: str = ""
    """File of a Unix socket; of a WebSocket, the path that is served besides `/`."""
    mode: int = 0o660
    """Rights of a Unix socket's file."""
    proxy_protocol: bool = False
    cert: str = ""
    key: str = ""
    """Empty: the key is in the certificate's file."""
    ca: str = ""
    """Certificates that client certificates are checked against."""
    require: bool = False
    """A client certificate is required (mutual TLS)."""
    subject_as_user: bool = False
    """The client certificate's common name is the user name."""
    backlog: int = 4096
    max_connections: int = 0
    """0: no limit but the server's own."""
    ws_frame_bytes: int = 2 * 1024 * 1024
    """Longest WebSocket frame taken."""
    ws_origins: str = ""
    """Origins (`https://example.org`, by commas) whose pages may connect by WebSocket; empty: all."""

    @property
    def tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def loopback(self) -> bool:
        """Only this machine can connect."""
        return self.scheme == "unix" or self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")

    def url(self, port: int | None = None) -> str:
        """The address as a client would write it, with the real port where one is given."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host or "0.0.0.0"
        path = self.path if self.websocket else ""
        return f"{self.scheme}://{host}:{self.port if port is None else port}{path}"


NUMBER_RANGES = {
    "port": (0, 65_535),
    "mode": (0, 0o777),
    "backlog": (1, 65_535),
    "max_connections": (0, 10_000_000),
    "ws_frame_bytes": (1_024, 256 * 1024 * 1024),
}
KINDS = {field.name: str(field.type) for field in fields(ListenerOptions)}
BY_QUERY = sorted(set(KINDS) - {"scheme", "host", "port", "path"})


def parse_listen_url(url: str, more: Mapping[str, Any] | None = None) -> ListenerOptions:
    """The options that a listen URL asks for, with those of `more` (a table of the settings file) over them.

    Raises ListenError that names the URL and what is allowed.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ListenError(f"listen {url!r}: {error}") from None
    scheme = parts.scheme
    if scheme not in DEFAULT_PORTS:
        raise ListenError(f"listen {url!r}: begin with one of {', '.join(f'{name}://' for name in DEFAULT_PORTS)}")
    if parts.username is not None or parts.fragment:
        raise ListenError(f"listen {url!r}: a user name, password or # has no place in a listen URL")
    given: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    given.update(more or {})
    host = parts.hostname or ""
    if scheme == "unix":
        path = unquote(parts.netloc + parts.path)
        if not path:
            raise ListenError(f"listen {url!r}: name the socket's file, as in unix:///run/lmq.sock")
        host, port = "", 0
    else:
        path = unquote(parts.path) if parts.path not in ("", "/") else ""
        if scheme in ("ws", "wss"):
            path = path or "/mqtt"
        elif path:
            raise ListenError(f"listen {url!r}: {scheme}:// has no path")
    options = ListenerOptions(scheme, "" if host == "*" else host, DEFAULT_PORTS[scheme] if port is None else port, path)
    return _checked(url, replace(options, **{name: _value(url, name, value) for name, value in given.items()}))


def _value(url: str, name: str, value: Any) -> Any:
    if name not in BY_QUERY:
        raise ListenError(f"listen {url!r}: no option {name!r}; there are {', '.join(BY_QUERY)}")
    kind = KINDS[name]
    if kind == "str":
        return str(value)
    if kind == "bool":
        word = str(value).lower()
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise ListenError(f"listen {url!r}: {name} is true or false, not {value!r}")
        return word in TRUE_WORDS
    low, high = NUMBER_RANGES[name]
    try:
        number = int(value, 8) if name == "mode" and isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        number = -1
    if not low <= number <= high:
        raise ListenError(f"listen {url!r}: {name} is a number from {low} to {high}, not {value!r}")
    return number


def _checked(url: str, options: ListenerOptions) -> ListenerOptions:
    if options.tls and not options.cert:
        raise ListenError(f"listen {url!r}: {options.scheme}:// needs a certificate: ?cert=FILE&key=FILE")
    if not options.tls and (options.cert or options.key or options.ca or options.require or options.subject_as_user):
        raise ListenError(f"listen {url!r}: cert, key, ca, require and subject_as_user go with mqtts:// or wss://")
    if options.require and not options.ca:
        raise ListenError(f"listen {url!r}: require=true needs ca=FILE to check client certificates against")
    if options.subject_as_user and not options.require:
        raise ListenError(f"listen {url!r}: subject_as_user=true needs require=true")
    return options
