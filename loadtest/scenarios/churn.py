"""churn: clients connect, subscribe, publish, leave, and come again, all the time."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import publishing, subscribing

HELP = "clients connect, subscribe, publish 10 messages to themselves and leave, all the time"
DEFAULTS = {"publishers": 50, "qos": 1}
LIFE = 10
"""Messages per life."""


def groups(plan: Plan) -> list[Group]:
    publish = publishing(plan, "load/{run}/churn/{i}")
    own = publish.topic.replace("{publisher}", "{i}")
    return [
        Group(name="c", clients=plan.publishers or 0, publish=publish, subscribe=subscribing(plan, own), churn=LIFE,
              persistent=bool(plan.persistent))
    ]  # fmt: skip
