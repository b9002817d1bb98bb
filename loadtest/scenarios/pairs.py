"""pairs: publisher i to subscriber i, each pair with a topic of its own."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import publishing, random_level, subscribing
from loadtest.units import UsageError

HELP = "one to one: publisher i to subscriber i"
DEFAULTS = {"publishers": 100}


def groups(plan: Plan) -> list[Group]:
    pairs = plan.publishers or 0
    publish = publishing(plan, f"load/{{run}}/pair/{random_level(plan)}{{i}}")
    if pairs > 1 and "{i}" not in publish.topic and "{publisher}" not in publish.topic:
        raise UsageError("pairs: --topic needs {i}, so that each pair has a topic of its own")
    own = publish.topic.replace("{publisher}", "{i}")
    own = "/".join("+" if "{random}" in level else level for level in own.split("/"))
    persistent = bool(plan.persistent)
    return [
        Group(name="s", clients=pairs, subscribe=subscribing(plan, own), persistent=persistent),
        Group(name="p", clients=pairs, publish=publish, persistent=persistent),
    ]
