"""`lmq load compare A.json B.json…`: figures side by side, ratios to the first, spread; exit 1 on a regression."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from loadtest.units import UsageError

FIGURES = (
    ("sent_per_s", True), ("acked_per_s", True), ("delivered_per_s", True), ("processed_per_s", True), ("drain_per_s", True),
    ("connects_per_s", True), ("e2e.p50", False), ("e2e.p99", False), ("e2e.p999", False), ("ack.p50", False), ("ack.p99", False),
    ("server.cpu_us_per_message", False), ("server.rss_mb", False), ("server.rss_per_connection", False),
    ("lost", False), ("duplicate", False),
)  # fmt: skip
"""Name, and whether more is better."""
COUNTED = ("lost", "duplicate")
"""They hold whoever was the limit."""


def figure(data: dict[str, Any], name: str) -> float | None:
    found: Any = data
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return float(found) if isinstance(found, (int, float)) else None


def reports_in(path: str) -> list[dict[str, Any]]:
    """One report, or those of `--runs N`. Raises UsageError."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise UsageError(f"{path}: {getattr(failure, 'strerror', None) or 'not JSON'}") from None
    reports = data if isinstance(data, list) else [data]
    if not reports or not all(isinstance(one, dict) and "schema_version" in one for one in reports):
        raise UsageError(f"{path}: not a report of lmq load")
    return reports


def median_and_spread(reports: list[dict[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Median, and (highest - lowest) / median where there are several runs."""
    values = [value for one in reports if (value := figure(one, name)) is not None]
    if not values:
        return None, None
    middle = statistics.median(values)
    return middle, (max(values) - min(values)) / middle if len(values) > 1 and middle else None


def percentage(text: str) -> float:
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise UsageError(f"--max-regression {text!r}: write it like 5%")
    return value


def main(arguments: list[str]) -> int:
    """Exit 0, or 1 where a figure is worse than the first file's by more than --max-regression."""
    paths: list[str] = []
    limit: float | None = None
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--max-regression" and rest:
            limit = percentage(rest.pop(0))
        elif word.startswith("--max-regression="):
            limit = percentage(word.partition("=")[2])
        elif word.startswith("-"):
            raise UsageError(f"compare: unknown option {word}")
        else:
            paths.append(word)
    if len(paths) < 2:
        raise UsageError("compare takes two reports or more: lmq load compare A.json B.json")
    sets = [reports_in(path) for path in paths]
    lines, worse = table(paths, sets, limit)
    print("\n".join(lines))
    for line in worse:
        print(f"✗ {line}")
    return 1 if worse else 0


def table(names: list[str], sets: list[list[dict[str, Any]]], limit: float | None) -> tuple[list[str], list[str]]:
    """The table's lines, and what is worse than the limit allows."""
    labels = [Path(name).stem[:18] for name in names]
    lines = [f"{'':<26}" + "".join(f"{label:>20}" + ("" if place == 0 else f"{'ratio':>8}") for place, label in enumerate(labels))]
    worse = []
    bound = [any(one.get("harness", {}).get("saturated") for one in reports) for reports in sets]
    for name, more_is_better in FIGURES:
        found = [median_and_spread(reports, name) for reports in sets]
        if all(value is None for value, _ in found):
            continue
        base = found[0][0]
        row = f"{name:<26}"
        for place, (value, spread) in enumerate(found):
            is_rate = name.endswith("_per_s")
            limited = name not in COUNTED and (bound[place] or bound[0])
            row += f"{_shown(value, spread, bound[place] and is_rate):>20}"
            if place == 0:
                continue
            ratio = value / base if value is not None and base else None
            usable = ratio is not None and not limited
            row += f"{f'{ratio:.2f}×' if usable else '—':>8}"
            change = _worse_by(value, base, more_is_better)
            if limit is not None and change > limit and not limited:
                worse.append(f"{names[place]}: {name} is worse by {change:.1%} ({base:,.1f} → {value:,.1f})")
        lines.append(row.rstrip())
    if any(bound):
        named = ", ".join(label for label, one in zip(labels, bound, strict=True) if one)
        lines.append(f"the harness was the limit (≥) in: {named}; no ratio is formed of such figures, latencies and usage included")
    return lines, worse


def _shown(value: float | None, spread: float | None, bound: bool) -> str:
    if value is None:
        return "—"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")
    return ("≥ " if bound else "") + text + (f" ±{spread / 2:.0%}" if spread is not None else "")


def _worse_by(value: float | None, base: float | None, more_is_better: bool) -> float:
    """How much worse, as a share; 0 where it is not."""
    if value is None or base is None:
        return 0.0
    if base == 0:
        return float("inf") if value > 0 and not more_is_better else 0.0
    return (base - value) / base if more_is_better else (value - base) / base
