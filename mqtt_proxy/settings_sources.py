"""Reads settings: defaults < TOML file < environment `LMQ_…` < options."""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from mqtt_proxy.policy.limits import Limits
from mqtt_proxy.settings import ITEMS, Item, Settings, SettingsError, check_value, parse

_UNIT_ENDINGS = ("_s", "_ms")
_OTHER_VARIABLES = {"CONFIG", "PASSWORD", "PURE", "BUILD", "ONLY"}
"""LMQ_CONFIG and so on: read by the option `--config`, the clients, the import of compiled modules and their build."""
_SERVICE_LINK = re.compile(r"(\A|_)SERVICE_(HOST|PORT)(_\w+)?\Z|(\A|_)PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?\Z")
"""Variables such as LMQ_SERVICE_HOST and LMQ_PORT_1883_TCP_ADDR."""


class HelpAsked(Exception):
    """`--help` was among the options; the text is the help."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and where each value that is no default came from (`file`, `environment` or `option`)."""

    settings: Settings
    origins: dict[str, str]
    rest: tuple[str, ...]


def from_arguments(argv: Sequence[str], prog: str = "lmq serve", environ: Mapping[str, str] | None = None) -> Settings:
    """Settings for the options of `lmq serve`. Raises SettingsError, or HelpAsked."""
    loaded = load(argv, prog, environ)
    if loaded.rest:
        raise SettingsError(f"{loaded.rest[0]!r} is no option: {prog} takes options only")
    return loaded.settings


def reread(settings: Settings, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings as a start with the same options would read them now (SIGHUP). Raises SettingsError."""
    return from_arguments(settings.arguments, environ=environ)


def load(argv: Sequence[str], prog: str, environ: Mapping[str, str] | None = None) -> Loaded:
    """Settings with the origin of each value; words that are no options are left in `rest`."""
    environ = os.environ if environ is None else environ
    options = vars(_parser(prog).parse_args(_known(argv, prog)))
    path = options.pop("config", None) or environ.get("LMQ_CONFIG")
    rest = tuple(options.pop("rest", ()))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, source in (("file", _file(path) if path else {}), ("environment", _environment(environ)), ("option", options)):
        values.update(source)
        origins.update(dict.fromkeys(source, origin))
    limits = Limits(**{name: value for name, value in values.items() if ITEMS[name].is_limit})
    own = {name: value for name, value in values.items() if not ITEMS[name].is_limit}
    settings = Settings(**own, limits=limits, arguments=tuple(argv))
    return Loaded(settings, origins, rest)


def _file(path: str) -> dict[str, Any]:
    """The values of a TOML file: names at the top, or within tables that only group them ([limits], [store], …)."""
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"config = {path!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config = {path!r} is no TOML: {error}") from None
    values: dict[str, Any] = {}
    for name, value in document.items():
        group = value if isinstance(value, dict) and name not in ITEMS else {name: value}
        for inner, inner_value in group.items():
            item = ITEMS.get(inner)
            if item is None:
                raise SettingsError(f"{path}: there is no setting {inner!r}{_meant(inner, ITEMS)}")
            values[inner] = _from_toml(item, inner_value, path)
    return values


def _from_toml(item: Item, value: Any, path: str) -> Any:
    if item.kind == "tuple" and isinstance(value, str):
        value = (value,)
    if item.kind == "tuple" and isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = tuple(value)
    try:
        if isinstance(value, str) and item.kind in ("int", "float"):
            value = parse(item, value)  # "64MiB"
        check_value(item, value)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    return value


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Variables `LMQ_NAME`. Raises SettingsError for one that nobody here reads."""
    known = {item.variable.removeprefix("LMQ_") for item in ITEMS.values()} | _OTHER_VARIABLES
    for name, value in environ.items():
        own = name.removeprefix("LMQ_")
        if own != name and own not in known and not _set_by_others(own, value):
            raise SettingsError(f"environment: there is no setting {name}{_meant(own, known, 'LMQ_')}")
    values = {}
    for item in ITEMS.values():
        text = environ.get(item.variable)
        if text is not None:
            values[item.name] = parse(item, text)
            check_value(item, values[item.name])
    return values


def _set_by_others(own: str, text: str) -> bool:
    """Test runs have variables of their own; Kubernetes and Docker tell containers of a service `lmq` or `lmq-…` by themselves."""
    return own.startswith("TEST_") or bool(_SERVICE_LINK.search(own)) or (own.endswith("PORT") and "://" in text)


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Argparse knows of one fault that is still possible here: an option without its value."""
        name = message.removeprefix("argument ").partition(":")[0].partition("/")[0]
        item = ITEMS.get(name.lstrip("-").replace("-", "_"))
        raise SettingsError(f"{name} needs a value: {item.allowed}" if item else message)

    def print_help(self, file: Any = None) -> None:
        raise HelpAsked(self.format_help())


def _parser(prog: str) -> _OneLineParser:
    parser = _OneLineParser(
        prog=prog, usage=f"{prog} [options]", allow_abbrev=False, argument_default=argparse.SUPPRESS, formatter_class=_Formatter,
        description="Settings: defaults < TOML file (--config) < environment (LMQ_NAME) < these options.",
    )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings (LMQ_CONFIG)")
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    for item in ITEMS.values():
        names = [item.option, *_short_option(item)]
        text = item.help.replace("%", "%%") + _default_text(item).replace("%", "%%")
        if item.kind == "bool":
            parser.add_argument(*names, dest=item.name, action="store_true", help=text)
            parser.add_argument("--no" + item.option[1:], dest=item.name, action="store_false", help=argparse.SUPPRESS)
        elif item.kind == "tuple":
            parser.add_argument(*names, dest=item.name, action="append", metavar="URL" if item.name == "listen" else "TEXT", help=text)
        else:
            parser.add_argument(*names, dest=item.name, type=_reader(item), metavar="|".join(item.choices) or _metavar(item), help=text)
    return parser


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=120)


def _reader(item: Item) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = parse(item, text)
        check_value(item, value)
        return value

    return read


def _short_option(item: Item) -> list[str]:
    """`--max-keepalive` for `max_keepalive_s`: the unit may be left off where no other setting has that name."""
    for ending in _UNIT_ENDINGS:
        short = item.name.removesuffix(ending)
        if short != item.name and not any(other.startswith(short) and other != item.name for other in ITEMS):
            return ["--" + short.replace("_", "-")]
    return []


def _metavar(item: Item) -> str:
    if item.name in ("users", "acl", "tls_cert", "tls_key", "tls_ca"):
        return "FILE"
    if item.kind in ("int", "float"):
        return {"bytes": "SIZE", "s": "SECONDS", "ms": "MS"}.get(item.unit, "N")
    return {"data": "DIR", "amqtt_plugins": "JSON"}.get(item.name, "TEXT")


def _default_text(item: Item) -> str:
    default = ", ".join(item.default) if item.kind == "tuple" else show(item, item.default)
    off = "; 0 is off" if item.off else ""
    return f" ({default}{off})" if default not in ("", "false", "{}") else ""


def show(item: Item, value: Any) -> str:
    """A value as people write it: 256 MiB, 1,000 ms, true."""
    if item.kind == "bool":
        return "true" if value else "false"
    if item.unit == "bytes" and isinstance(value, int) and value >= 1024:
        for size, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value % size == 0:
                return f"{value // size} {name}"
    if item.kind in ("int", "float"):
        return f"{value:,} {item.unit}".strip()
    return str(value)


def _known(argv: Sequence[str], prog: str) -> list[str]:
    """The same words; raises SettingsError for an option that does not exist, with the one that was probably meant."""
    options = {"--config", "--help", "-h"}
    for item in ITEMS.values():
        options.update((item.option, *_short_option(item)))
        if item.kind == "bool":
            options.add("--no" + item.option[1:])
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("-") and len(name) > 1 and not name[1:2].isdigit() and name not in options:
            raise SettingsError(f"there is no option {name}{_meant(name, options)}; {prog} --help lists them")
    return list(argv)


def _meant(name: str, known: Any, prefix: str = "") -> str:
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
