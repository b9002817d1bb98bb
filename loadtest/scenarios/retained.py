"""retained: messages are retained on many topics, then subscribers come and get them all."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import publishing, subscribing

HELP = "retain a message on each of --topics topics, then subscribers come and get them all"
DEFAULTS = {"publishers": 10, "subscribers": 1, "topics": 1000, "qos": 1}


def groups(plan: Plan) -> list[Group]:
    publishers = plan.publishers or 1
    each = max(1, (plan.topics or 1000) // publishers)
    publish = publishing(plan, "load/{run}/{publisher}/{n}", retain=True, count=each)
    publish.topic = publish.topic.replace("{random}", "{n}")
    late = subscribing(plan, "/".join("+" if "{" in level and "{run}" not in level else level for level in publish.topic.split("/")))
    return [
        Group(name="s", clients=plan.subscribers or 0, subscribe=late, late=True),
        Group(name="p", clients=publishers, publish=publish, persistent=bool(plan.persistent)),
    ]
