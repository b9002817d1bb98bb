"""offline: persistent subscribers subscribe and leave, messages come, the subscribers return and drain."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios import fan_in, pairs

HELP = "subscribers are gone while messages come, then return and drain"
DEFAULTS = {"publishers": 100, "count": 1000, "qos": 1, "persistent": True}


def groups(plan: Plan) -> list[Group]:
    """Pairs; with --subscribers given: every subscriber gets everything."""
    made = pairs.groups(plan) if plan.subscribers is None or plan.subscribers == plan.publishers else fan_in.groups(plan)
    for group in made:
        group.offline = group.subscribe is not None
    return made
