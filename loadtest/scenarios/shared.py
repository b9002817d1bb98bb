"""shared: groups of workers share the messages ($share); each group gets every message once."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import any_of, publishing, random_level, subscribing

HELP = "groups of workers on shared subscriptions: each group gets every message once"
DEFAULTS = {"publishers": 50, "subscribers": 10, "groups": 1}


def groups(plan: Plan) -> list[Group]:
    publish = publishing(plan, f"load/{{run}}/{random_level(plan)}{{publisher}}/work")
    shares = plan.groups or 1
    share = subscribing(plan, "$share/g{group}/" + any_of(publish.topic), share_groups=shares)
    persistent = bool(plan.persistent)
    return [
        Group(name="s", clients=plan.subscribers or 0, subscribe=share, persistent=persistent),
        Group(name="p", clients=plan.publishers or 0, publish=publish, persistent=persistent),
    ]
