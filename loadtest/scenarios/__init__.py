"""The scenarios by name: each turns a plan into groups of clients.

A scenario is a module with `HELP` (one line), `DEFAULTS` (what the plan leaves open) and `groups(plan)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from loadtest.layout import Group, Layout
from loadtest.plan import Plan
from loadtest.units import UsageError

NAMES = {
    "publish": "publish", "fan-in": "fan_in", "fan-out": "fan_out", "pairs": "pairs", "shared": "shared", "connect": "connect",
    "offline": "offline", "filters": "filters", "retained": "retained", "request-response": "request_response", "churn": "churn",
    "fleet": "fleet",
}  # fmt: skip


def module_of(name: str) -> Any:
    if name.startswith("file:"):
        return import_module("loadtest.scenarios.fleet")
    if name not in NAMES:
        raise UsageError(f"unknown scenario {name!r}: one of {', '.join(NAMES)} or file:PLAN.toml")
    return import_module(f"loadtest.scenarios.{NAMES[name]}")


def layout_of(plan: Plan, run: str) -> Layout:
    """The groups of a resolved plan; `run` is the run's id in hexadecimal."""
    groups: list[Group] = module_of(plan.scenario).groups(plan)
    return Layout(groups, run)
