"""The picture in docs/architecture.md is what the import graph shows: no arrow more, none less, and none upwards."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("mqtt_proxy", "lmq_store", "notify", "loadtest", "spark_telemetry")
LEFT_OUT = {"lmq_store", "lmq_store.source_first", "mqtt_proxy"}
"""The import hook for LMQ_PURE, which every package with compiled modules pulls in, and the lazy names of `import mqtt_proxy`."""
ROOMS = {
    "mqtt_proxy.__main__": "mqtt_proxy.commands",
    "mqtt_proxy.cli": "mqtt_proxy.commands",
    "mqtt_proxy.passwd_cli": "mqtt_proxy.commands",
    "mqtt_proxy.wiring": "mqtt_proxy.server",
    "mqtt_proxy.reload": "mqtt_proxy.server",
    "mqtt_proxy.log_lines": "mqtt_proxy.server",
    "mqtt_proxy.settings_files": "mqtt_proxy.settings",
    "mqtt_proxy.settings_sources": "mqtt_proxy.settings",
}
"""Single modules that share a room with another."""


def room(module: str) -> str:
    """A module's place in the picture: its sub-package or, where it lies at the top of mqtt_proxy, itself or what ROOMS says."""
    parts = module.split(".")
    if parts[0] not in ("mqtt_proxy", "lmq_store"):
        return parts[0]
    place = ".".join(parts[:2])
    return ROOMS.get(place, place)


@cache
def imported() -> dict[str, set[str]]:
    """Room → the rooms that its modules import when they run."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    arrows: dict[str, set[str]] = {}
    for module in graph.modules - LEFT_OUT:
        for target in graph.find_modules_directly_imported_by(module) - LEFT_OUT:
            if room(module) != room(target):
                arrows.setdefault(room(module), set()).add(room(target))
    return arrows


def block(kind: str) -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    return text.partition(f"```{kind}\n")[2].partition("```")[0].splitlines()


def drawn() -> dict[str, set[str]]:
    """The arrows of the list below the picture."""
    lines = [re.fullmatch(r"([\w.]+) +→ +(.+)", line) for line in block("imports")]
    return {line[1]: set(line[2].split(", ")) for line in lines if line is not None}


def test_the_list_is_the_import_graph() -> None:
    assert drawn() == imported()


def test_in_the_picture_all_imports_point_down() -> None:
    rows = {name: row for row, line in enumerate(block("picture")) for name in re.findall(r"\[([\w.]+)\]", line)}
    places = {name: rows[name.removeprefix("mqtt_proxy.")] for name in {*imported(), *set().union(*imported().values())}}
    upwards = [f"{name} → {target}" for name, targets in imported().items() for target in targets if places[name] >= places[target]]
    assert not upwards
    assert len(rows) == len(places), "a room in the picture that is no package, or two of one name"


def test_every_file_named_in_the_document_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:mqtt_proxy|lmq_store|notify|loadtest|tests|docs)/[\w/.]+)`", text))
    assert len(named) > 40
    assert not [path for path in sorted(named) if not (ROOT / path).exists()]


def test_every_module_of_the_broker_and_the_store_has_its_place_in_the_tour() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    tour = text.partition("## A tour of the files")[2]
    missing = [
        str(path.relative_to(ROOT))
        for package in ("mqtt_proxy", "lmq_store", "notify")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py") and f"`{path.name}`" not in tour and str(path.relative_to(ROOT)) not in tour
    ]
    assert not missing
