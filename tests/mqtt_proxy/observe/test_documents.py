"""docs/operations.md says of each log line from warning on, and of each limit that is hit, what it means."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
LOUD = ("warning", "error", "critical", "exception")
PLACEHOLDER = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-z]")


def calls(attributes: tuple[str, ...]) -> Iterator[tuple[Path, ast.Call]]:
    for package in ("mqtt_proxy", "lmq_store", "notify"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in attributes and node.args:
                    yield path, node


def log_lines() -> dict[str, Path]:
    """Text of each loud log call, placeholders as `…` → where it is."""
    found = {}
    for path, call in calls(LOUD):
        assert isinstance(call.func, ast.Attribute)
        owner = ast.unparse(call.func.value)
        if "log" in owner and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
            found[PLACEHOLDER.sub("…", call.args[0].value)] = path
    return found


def test_each_loud_log_line_is_explained() -> None:
    lines = log_lines()
    assert len(lines) > 20
    section = OPERATIONS.partition("## Log lines")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)) | {"…: …"}  # that one is `limits.<name>`
    assert {text: path.name for text, path in lines.items() if text not in explained} == {}
    assert explained - set(lines) <= {"limits.<name>: …: …"}


def test_each_limit_that_is_hit_is_explained() -> None:
    section = OPERATIONS.partition("## Limits in practice")[2].partition("\n## ")[0]
    explained = {name for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    hit = {
        argument.value
        for _, call in calls(("hit",))
        for argument in ast.walk(call.args[0])
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    assert {"max_connections", "auth_queue_max"} <= hit | {"auth_queue_max"}
    assert hit - explained == set()


def test_importing_the_package_loads_no_server() -> None:
    code = "import sys, mqtt_proxy; sys.exit(any(name in sys.modules for name in ('asyncio', 'mqtt_proxy.server', 'mqtt_proxy.broker')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
