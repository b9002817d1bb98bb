"""fan-in: many publishers, few subscribers; every subscriber gets everything through one wildcard filter."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import any_of, publishing, random_level, subscribing

HELP = "many to few through a wildcard: every subscriber gets everything"
DEFAULTS = {"publishers": 50, "subscribers": 1}


def groups(plan: Plan) -> list[Group]:
    publish = publishing(plan, f"load/{{run}}/{random_level(plan)}{{publisher}}/data")
    persistent = bool(plan.persistent)
    return [
        Group(name="s", clients=plan.subscribers or 0, subscribe=subscribing(plan, any_of(publish.topic)), persistent=persistent),
        Group(name="p", clients=plan.publishers or 0, publish=publish, persistent=persistent),
    ]
