"""filters: many distinct filters; every message is for exactly one of them."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import publishing, subscribing
from loadtest.units import UsageError

HELP = "many distinct filters (--subscribers x --filters), messages to topics drawn from all of them"
DEFAULTS = {"publishers": 50, "subscribers": 100, "filters": 1000}


def groups(plan: Plan) -> list[Group]:
    held = (plan.subscribers or 0) * (plan.filters or 1)
    topics = plan.topics or held
    if topics > held:
        raise UsageError(f"--topics {topics}: the subscribers hold {held} filters, and each topic needs one")
    publish = publishing(plan, "load/{run}/{random}/t", topics=topics)
    if "{random}" not in publish.topic:
        raise UsageError("filters: --topic needs {random}")
    own = publish.topic.replace("{random}", "{filter}")
    own = own.rsplit("/", 1)[0] + "/+" if own.endswith("/t") else own
    own = "/".join("+" if "{publisher}" in level or "{i}" in level else level for level in own.split("/"))
    subscribe = subscribing(plan, own, filters=plan.filters or 1, one_owner=True)
    subscribe.spans = [(0, plan.publishers or 0, False)]
    persistent = bool(plan.persistent)
    return [
        Group(name="s", clients=plan.subscribers or 0, subscribe=subscribe, persistent=persistent),
        Group(name="p", clients=plan.publishers or 0, publish=publish, persistent=persistent),
    ]
