"""Every setting of the broker: one table that drives TOML file, environment, options, `lmq config` and the documents.

A field of `Settings` or of `Limits` is a setting; its metadata names unit, range and meaning. Values are read by
`settings_sources` from defaults < TOML file < environment `LMQ_…` < options. A wrong value raises SettingsError with one
line that names the setting and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from mqtt_proxy.net.listen_url import ListenerOptions, ListenError, parse_listen_url
from mqtt_proxy.policy.limits import Limits

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class SettingsError(Exception):
    """A setting is unknown, out of range, or contradicts another; the text is one line that says what is allowed."""


def setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    live: bool = False,
) -> Any:
    """A field with its meaning. `live` settings are applied again on SIGHUP; the others need a restart."""
    metadata = {"help": help, "unit": unit, "low": low, "high": high, "choices": choices, "live": live}
    if isinstance(default, MappingProxyType):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """What the broker is told, complete and checked: making one with a wrong value raises SettingsError."""

    # Where clients come in
    listen: tuple[str, ...] = setting(
        ("mqtt://127.0.0.1:1883",),
        "Where to listen, any number: mqtt://, mqtts://, ws://, wss:// HOST:PORT or unix:///PATH, with options as ?name=value",
    )
    tls_cert: str = setting("", "PEM file with the certificate chain for mqtts:// and wss:// listeners that name none", live=True)
    tls_key: str = setting("", "PEM file with the private key for those listeners", live=True)
    tls_ca: str = setting("", "PEM file with the authorities that sign client certificates; with it a client has to show one", live=True)

    # The store
    data: str = setting("./data", "Folder of the log and its indexes; made when it isn't there")
    flush: str = setting("sync", "sync: on the disk before any acknowledgement; async: every flush_interval_ms", choices=("sync", "async"))
    flush_interval_ms: int = setting(100, "Longest time between syncs under flush = async", unit="ms", low=1, high=60_000)
    segment_bytes: int = setting(256 * MIB, "Size of one file of the log", unit="bytes", low=MIB, high=2 * GIB)
    retention_hours: float = setting(
        168.0, "Messages older than this go, by whole files; 0 keeps them for ever", unit="hours", low=0, high=876_000, live=True
    )
    retention_bytes: int = setting(
        0, "The log is kept below this size, by whole files; 0 is off", unit="bytes", low=0, high=1 << 60, live=True
    )
    min_free_bytes: int = setting(
        128 * MIB,
        "Publishes are refused while less than this is free on the disk; taken again at 1.25 times it",
        unit="bytes",
        low=0,
        high=1 << 50,
    )
    cache_bytes: int = setting(64 * MIB, "Memory for recent messages that readers share", unit="bytes", low=MIB, high=1 << 40)
    queue_grace_s: int = setting(60, "A light queue that nobody holds any more is deleted after this time", unit="s", low=0, high=86_400)
    offset_commit_ms: int = setting(
        1_000, "How far the saved positions of QoS 0 and 1 subscribers may trail", unit="ms", low=10, high=1_000
    )
    repoll_ms: int = setting(
        1_000,
        "How often queues are looked at without a hint, where the store doesn't hand over what it stored (the embedded one does)",
        unit="ms",
        low=100,
        high=60_000,
    )
    max_deliveries: int = setting(
        16,
        "A message of a shared subscription that was delivered so often without an answer goes to the dead-letter queue",
        unit="deliveries",
        low=1,
        high=1_000,
    )
    parent_topics_max: int = setting(
        256, "First topic levels that get a parent topic of their own; later ones share one", unit="topics", low=1, high=65_535
    )
    partitions: int = setting(8, "Partitions of each new parent topic", unit="partitions", low=1, high=256)
    repair: bool = setting(False, "Open a log that is corrupt in the middle: keep all that is readable, list what is not")

    # Who may do what
    users: str = setting("", "File of users and password hashes (lmq passwd; mosquitto's files too)", live=True)
    acl: str = setting("", "File of rights, in mosquitto's syntax", live=True)
    allow_anonymous: bool = setting(
        False, "Take clients without a user name, also where users are set, and on addresses that others can reach", live=True
    )
    amqtt_plugins: dict[str, dict[str, Any]] = setting(  # noqa: RUF009 - a factory inside
        MappingProxyType({}), "amqtt's authentication and topic plugins: dotted class name → its options (JSON where it is no TOML file)"
    )

    # Protocol
    session_events: bool = setting(False, "Log connects, disconnects, takeovers and expiries as messages under $events/client/")
    will_grace_s: int = setting(
        30, "After a restart, wills wait at least this long for their clients to come back", unit="s", low=0, high=86_400
    )
    qos0_backlog: int = setting(10_000, "A subscriber further behind than this skips QoS 0 messages", unit="messages", low=1, high=1 << 32)
    server_reference: str = setting(
        "", "Where MQTT 5 clients are sent when the server stops (reason 0x9C), for example host:port", live=True
    )
    response_information: str = setting("", "Base of response topics, told to MQTT 5 clients that ask; %c is the client id", live=True)
    sys_interval_s: int = setting(10, "Time between updates of $SYS; 0 turns it off", unit="s", low=0, high=3_600, live=True)
    metrics_listen: str = setting("", "Where to serve /metrics (Prometheus), /healthz and /readyz: HOST:PORT, or a port of 127.0.0.1")

    # Running
    event_loop: str = setting("uvloop", "uvloop, or Python's own asyncio", choices=("uvloop", "asyncio"))
    log_level: str = setting("info", "What goes to stderr", choices=("debug", "info", "warning", "error"), live=True)
    log_format: str = setting("text", "One line of text, or one JSON object, for each event", choices=("text", "json"))
    stop_timeout_s: float = setting(4.0, "On SIGTERM, the time to say good-bye and sync", unit="s", low=0.1, high=60)

    limits: Limits = field(default_factory=Limits)
    """All limits; their names are settings of their own."""

    arguments: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The options that these settings were read with, so that SIGHUP can read again."""

    def __post_init__(self) -> None:
        listen: Any = self.listen  # from Python, a single text and a list are as good as a tuple
        object.__setattr__(self, "listen", (listen,) if isinstance(listen, str) else tuple(listen))
        for name in ("data", "users", "acl", "tls_cert", "tls_key", "tls_ca"):
            object.__setattr__(self, name, str(getattr(self, name) or ""))
        check(self)

    @property
    def authenticates(self) -> bool:
        """True when clients have to prove who they are."""
        return bool(self.users or self.amqtt_plugins)

    @property
    def takes_anonymous(self) -> bool:
        """True when a client without a user name comes in: asked for, or because nothing else is set (loopback only)."""
        return self.allow_anonymous or not self.authenticates

    @property
    def listeners(self) -> list[ListenerOptions]:
        """What each listen URL asks for; TLS ones that name no certificate get `tls_cert`, `tls_key` and `tls_ca`."""
        return [_listener(self, url) for url in self.listen]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of `metrics_listen`: `127.0.0.1:9464`, `[::1]:9464`, `:9464` or `9464` (loopback); None where it is off."""
        text = self.metrics_listen
        if not text:
            return None
        host, _, port = text.rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() else -1
        if not 0 <= number <= 65_535:
            raise SettingsError(f"metrics_listen = {text!r} is not allowed: HOST:PORT, or a port of 127.0.0.1")
        return host.strip("[]") or "127.0.0.1", number

    def items(self) -> Iterator[tuple[Item, Any]]:
        """Each setting with its value, limits included, in the table's order."""
        for item in ITEMS.values():
            yield item, getattr(self.limits if item.is_limit else self, item.name)


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the table of settings."""

    name: str
    kind: str
    default: Any
    help: str
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    live: bool
    off: bool
    is_limit: bool

    @property
    def option(self) -> str:
        """For example `--flush-interval-ms`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """For example `LMQ_FLUSH_INTERVAL_MS`."""
        return "LMQ_" + self.name.upper()

    @property
    def allowed(self) -> str:
        """What a value may be, as people read it."""
        if self.choices:
            return " or ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{_number(self.low)} to {_number(self.high)}" + (", 0 is off" if self.off else "")
        return {"bool": "true or false", "tuple": "a list of texts", "dict": "a table", "str": "a text"}.get(self.kind, "a number")


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _item(entry: Field[Any], is_limit: bool) -> Item:
    kind = re.split(r"[\[ |]", str(entry.type))[0]
    default = entry.default if entry.default is not MISSING else entry.default_factory() if entry.default_factory is not MISSING else None
    meta = entry.metadata
    return Item(
        entry.name, kind, default, meta.get("help") or meta["about"], meta["unit"], meta["low"], meta["high"],
        tuple(meta.get("choices", ())), bool(meta.get("live", is_limit)), bool(meta.get("off")), is_limit,
    )  # fmt: skip


ITEMS: dict[str, Item] = {
    **{entry.name: _item(entry, False) for entry in fields(Settings) if entry.name not in ("limits", "arguments")},
    **{entry.name: _item(entry, True) for entry in fields(Limits)},
}
"""The table, by name."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b?|b)?", re.IGNORECASE)
_SCALE = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1 << 40}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def parse(item: Item, text: str) -> Any:
    """A value from the environment or an option. Sizes may be written 64MiB; lists are separated by commas."""
    if item.kind == "bool":
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
    elif item.kind == "tuple":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    elif item.kind == "dict":
        import json

        try:
            return json.loads(text)
        except ValueError:
            pass
    elif item.kind in ("int", "float"):
        try:
            number = float(text) if item.kind == "float" else int(text.replace("_", ""))
        except ValueError:
            size = _SIZE.fullmatch(text.strip())
            if size is not None and item.unit == "bytes":
                return int(float(size[1]) * _SCALE[(size[2] or "")[:1].lower()])
        else:
            return number
    else:
        return text
    raise wrong(item, text)


_TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str, "tuple": (tuple, list), "dict": dict}


def wrong(item: Item, value: object) -> SettingsError:
    """The one line for a value that is not allowed."""
    unit = f" {item.unit}" if item.unit and not item.choices else ""
    return SettingsError(f"{item.name} = {value!r} is not allowed: {item.allowed}{unit} ({item.option}, {item.variable})")


def check_value(item: Item, value: Any) -> None:
    """Raises SettingsError when a value has the wrong type or lies outside its range."""
    if not isinstance(value, _TYPES[item.kind]) or (item.kind in ("int", "float") and isinstance(value, bool)):
        raise wrong(item, value)
    if item.kind == "tuple" and not all(isinstance(part, str) for part in value):
        raise wrong(item, value)
    if item.choices and value not in item.choices:
        raise wrong(item, value)
    if item.kind in ("int", "float"):
        below, above = item.low is not None and value < item.low, item.high is not None and value > item.high
        if (below or above) and not (item.off and value == 0):
            raise wrong(item, value)


def check(settings: Settings) -> None:
    """Each value within its range, and no two that contradict each other."""
    for item, value in settings.items():
        check_value(item, value)
    if not settings.listen:
        raise SettingsError("listen is empty: name at least one address, for example --listen mqtt://127.0.0.1:1883")
    _ = settings.metrics_address
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError("tls_cert and tls_key belong together: set both or neither")
    for listener in settings.listeners:
        proven = settings.authenticates or listener.subject_as_user
        if not (listener.loopback or proven or settings.allow_anonymous):
            raise SettingsError(
                f"listen = {listener.url()}: others could reach this address and no authentication is set: "
                "set users (--users FILE, made by `lmq passwd`), or say --allow-anonymous if everybody may come in"
            )


def _listener(settings: Settings, url: str) -> ListenerOptions:
    more: dict[str, str | bool] = {}
    if url.startswith(("mqtts:", "wss:")) and "cert=" not in url and settings.tls_cert:
        more = {"cert": settings.tls_cert, "key": settings.tls_key}
        if settings.tls_ca:
            more.update(ca=settings.tls_ca, require=True)
    try:
        return parse_listen_url(url, more)
    except ListenError as error:
        raise SettingsError(str(error)) from None
