"""fan-out: one publisher (or a few), many subscribers of the same topics."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import any_of, publishing, random_level, subscribing

HELP = "one to many: every subscriber gets every message"
DEFAULTS = {"publishers": 1, "subscribers": 1000, "credit": 20}


def groups(plan: Plan) -> list[Group]:
    publish = publishing(plan, f"load/{{run}}/{random_level(plan)}all")
    persistent = bool(plan.persistent)
    return [
        Group(name="s", clients=plan.subscribers or 0, subscribe=subscribing(plan, any_of(publish.topic)), persistent=persistent),
        Group(name="p", clients=plan.publishers or 0, publish=publish, persistent=persistent),
    ]
