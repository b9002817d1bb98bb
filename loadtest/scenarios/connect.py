"""connect: connections ramp up and are held; bytes per connection; with a kill, the storm after the restart."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan

HELP = "ramp up connections, hold them (--hold), count bytes per connection; with a fault: the reconnect storm"
DEFAULTS = {"publishers": 1000, "subscribers": 0}


def groups(plan: Plan) -> list[Group]:
    return [Group(name="c", clients=plan.publishers or 0, persistent=bool(plan.persistent))]
