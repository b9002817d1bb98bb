"""`--require`: expressions over the report that a build can act on, such as `lost==0` or `e2e.p99<5ms`."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Any

from loadtest.report_keys import COUNTS, FIGURES, GROUPS, RATES
from loadtest.units import UsageError

OPERATORS = {"==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_TIMES = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6, "m": 6e7}
_COUNTS = {"k": 1e3, "M": 1e6}
_EXPRESSION = re.compile(r"\s*([a-z0-9_.]+)\s*(==|!=|<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)\s*([a-zA-Zµ%]*)\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition; `limit` in the unit of the figure."""

    text: str
    name: str
    comparison: str
    limit: float

    def value(self, report: dict[str, Any]) -> Any:
        found: Any = report
        for part in self.name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def held(self, report: dict[str, Any]) -> bool:
        """False where the figure was not measured."""
        value = self.value(report)
        return value is not None and bool(OPERATORS[self.comparison](value, self.limit))


def is_time(name: str) -> bool:
    """True for figures in microseconds."""
    group, _, figure = name.partition(".")
    return group in FIGURES and figure not in ("", "n")


def known_names() -> set[str]:
    names = set(COUNTS) | set(RATES) | {"duration_s", "exit"}
    names |= {f"{group}.{figure}" for group in FIGURES for figure in FIGURES[group]}
    return names | {f"{group}.{figure}" for group in GROUPS for figure in GROUPS[group]}


def parse(text: str) -> Requirement:
    """Raises UsageError on a name, comparison or unit that does not exist."""
    match = _EXPRESSION.fullmatch(text)
    if not match:
        raise UsageError(f"--require {text!r}: write NAME, one of == != < <= > >=, and a number, like 'e2e.p99<5ms'")
    name, comparison, number, unit = match.groups()
    if name not in known_names():
        near = [known for known in sorted(known_names()) if name.split(".")[0] in known][:4]
        raise UsageError(f"--require {text!r}: no figure is called {name!r}" + (f"; perhaps {', '.join(near)}" if near else ""))
    scale = 1.0
    if unit and is_time(name):
        if unit not in _TIMES:
            raise UsageError(f"--require {text!r}: {unit!r} is no unit of time (us, ms, s)")
        scale = _TIMES[unit]
    elif unit and name == "duration_s":
        if unit not in _TIMES:
            raise UsageError(f"--require {text!r}: {unit!r} is no unit of time (us, ms, s)")
        scale = _TIMES[unit] / 1e6
    elif unit and unit in _COUNTS:
        scale = _COUNTS[unit]
    elif unit and not ((unit == "%" and name.endswith("cpu_pct")) or (unit == "MB" and name.endswith("rss_mb"))):
        raise UsageError(f"--require {text!r}: {name} has no unit {unit!r}")
    return Requirement(text, name, comparison, float(number) * scale)


def judge(requirements: list[Requirement], report: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the report: expression, figure, and whether it held."""
    return [{"expr": one.text, "value": one.value(report), "held": one.held(report)} for one in requirements]
