"""publish: messages go in and nobody subscribes."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import publishing, random_level

HELP = "in only: publishers and no subscriber"
DEFAULTS = {"publishers": 50, "subscribers": 0}


def groups(plan: Plan) -> list[Group]:
    topic = f"load/{{run}}/{random_level(plan)}{{publisher}}/data"
    return [Group(name="p", clients=plan.publishers or 0, publish=publishing(plan, topic), persistent=bool(plan.persistent))]
