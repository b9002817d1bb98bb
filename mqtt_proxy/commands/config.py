"""`lmq config show|check|markdown`: what the broker would run with, and from where each value comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqtt_proxy.settings import ITEMS, Item, SettingsError
from mqtt_proxy.settings_files import check_files
from mqtt_proxy.settings_sources import HelpAsked, Loaded, load, show

USAGE = """usage: lmq config show [--json] [options of lmq serve]     each setting, its value, and where it comes from
       lmq config check [options of lmq serve]             exit 0 and one line when `lmq serve` would take them, else exit 2
       lmq config markdown [FILE]                          the tables of docs/operations.md (written into FILE, between its markers)
"""


def main(argv: list[str]) -> int:
    """Show or check the settings that `lmq serve` would run with."""
    action, arguments = (argv[0] if argv else ""), argv[1:]
    if action in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if action not in ("show", "check", "markdown"):
        print(f"lmq config: say show, check or markdown{f', not {action!r}' if action else ''}", file=sys.stderr)
        return 2
    if action == "markdown":
        if arguments:
            _rewrite(Path(arguments[0]))
        else:
            print("\n".join(markdown()))
        return 0
    as_json = "--json" in arguments
    try:
        loaded = load([word for word in arguments if word != "--json"], f"lmq config {action}")
        if loaded.rest:
            raise SettingsError(f"{loaded.rest[0]!r} is no option")
        if action == "check":
            check_files(loaded.settings)
    except SettingsError as error:
        print(f"lmq config: {error}", file=sys.stderr)
        return 2
    except HelpAsked:
        print(USAGE, end="")
        return 0
    if action == "check":
        print(f"ok: {len(loaded.origins)} set, {len(ITEMS) - len(loaded.origins)} by default")
    elif as_json:
        print(json.dumps({item.name: value for item, value in loaded.settings.items()}, indent=2))
    else:
        print("\n".join(toml(loaded)))
    return 0


def toml(loaded: Loaded) -> Iterator[str]:
    """The settings as a TOML file that `--config` takes; a comment says where a value comes from, and its unit."""
    tables = []
    for item, value in loaded.settings.items():
        if item.kind == "dict":
            tables.append((item, value))
            continue
        comment = " · ".join(part for part in (show_if_long(item, value), loaded.origins.get(item.name, "")) if part)
        line = f"{item.name} = {_toml_value(value)}"
        yield f"{line:<44} # {comment}" if comment else line
    for item, value in tables:
        for name, options in value.items():
            yield f'\n[{item.name}."{name}"]'
            yield from (f"{key} = {_toml_value(option)}" for key, option in options.items())


def show_if_long(item: Item, value: Any) -> str:
    """The value with its unit, where the bare number says less."""
    return show(item, value) if item.unit else ""


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    return json.dumps(value, ensure_ascii=False)


MARKERS = ("<!-- lmq config markdown -->\n", "<!-- end -->\n")


def _rewrite(document: Path) -> None:
    before, start, rest = document.read_text().partition(MARKERS[0])
    _, end, after = rest.partition(MARKERS[1])
    document.write_text(f"{before}{start}{chr(10).join(markdown())}\n{end}{after}")


def markdown() -> Iterator[str]:
    """Two tables, settings and limits, with name, default, range and meaning. A test compares docs/operations.md with them."""
    for title, limits in (("Settings", False), ("Limits", True)):
        yield f"### {title}\n"
        yield "| name | default | allowed | meaning |"
        yield "|---|---|---|---|"
        for item in ITEMS.values():
            if item.is_limit is limits:
                default = ", ".join(item.default) if item.kind == "tuple" else show(item, item.default)
                reload = "" if item.live else " *Needs a restart.*"
                allowed = item.allowed + (f" {item.unit}" if item.unit and item.kind in ("int", "float") else "")
                yield f"| `{item.name}` | {default or '–'} | {allowed} | {item.help.replace('|', chr(92) + '|').rstrip('.')}.{reload} |"
        yield ""
