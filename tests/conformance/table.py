"""The table of docs/conformance.md: reads it, holds it against the tests, and writes its column of tests anew.

    python -m tests.conformance.table          says what differs
    python -m tests.conformance.table --write  puts it right

A row is `| number | meaning | tests or "client only: why" |`. Numbers and meanings are kept by hand, the tests follow from `@covers`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
TABLE = DOCS / "conformance.md"
VERSIONS = {"3.1.1": "v3", "5.0": "v5"}
CLIENT_ONLY = "client only: "

_ROW = re.compile(r"^\| (MQTT-[\d.]+-\d+) \| (.*?) \| (.*) \|$")
_HEADING = re.compile(r"^## MQTT (3\.1\.1|5\.0)\b")


def statements(version: str) -> list[str]:
    """The numbers of all normative statements of a version, in their order."""
    return (DOCS / "spec" / f"statements-{version}.txt").read_text().split()


def cited() -> dict[str, dict[str, list[str]]]:
    """Version -> number -> the tests that cite it, as `file::function`, in the order of the files."""
    found: dict[str, dict[str, list[str]]] = {version: defaultdict(list) for version in VERSIONS}
    for path in sorted(HERE.glob("test_*.py")):
        for test, version, number in _citations(path):
            if test not in found[version][number]:
                found[version][number].append(test)
    return found


def _citations(path: Path) -> Iterator[tuple[str, str, str]]:
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "covers":
                given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
                for version, argument in VERSIONS.items():
                    for number in given.get(argument, "").split():
                        yield f"{path.name}::{node.name}", version, f"MQTT-{number}"


def rows() -> dict[str, dict[str, tuple[str, str]]]:
    """Version -> number -> (meaning, tests or why none), as the document has them."""
    found: dict[str, dict[str, tuple[str, str]]] = {version: {} for version in VERSIONS}
    version = ""
    for line in TABLE.read_text().splitlines():
        if heading := _HEADING.match(line):
            version = heading[1]
        elif row := _ROW.match(line):
            assert row[1] not in found[version], f"{version} {row[1]} stands twice"
            found[version][row[1]] = row[2], row[3]
    return found


def cell(tests: list[str]) -> str:
    """The tests of one statement, each file named once."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        file, _, function = test.partition("::")
        files[file].append(f"`{function}`")
    return "; ".join(f"{file}: {', '.join(functions)}" for file, functions in files.items())


def tests_in(text: str) -> list[str]:
    """The reverse of `cell`."""
    return [f"{file}::{name}" for file, names in re.findall(r"(test_\w+\.py): ([^;]*)", text) for name in re.findall(r"`(\w+)`", names)]


def written() -> str:
    """The document with its column of tests as the tests say."""
    tests = cited()
    version, lines = "", []
    for line in TABLE.read_text().splitlines():
        if heading := _HEADING.match(line):
            version = heading[1]
        row = _ROW.match(line)
        if row and tests[version].get(row[1]):
            line = f"| {row[1]} | {row[2]} | {cell(tests[version][row[1]])} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    new = written()
    if "--write" in sys.argv:
        TABLE.write_text(new)
    for version in VERSIONS:
        known, tests = rows()[version], cited()[version]
        shown = [n for n in statements(version) if tests.get(n)]
        alone = [n for n in statements(version) if known.get(n, ("", ""))[1].startswith(CLIENT_ONLY)]
        print(f"MQTT {version}: {len(statements(version))} statements, {len(shown)} shown by tests, {len(alone)} client only")
        for number in statements(version):
            if number not in shown and number not in alone:
                print(f"  {number} has neither")
    return 0 if new == TABLE.read_text() else 1


if __name__ == "__main__":
    raise SystemExit(main())
