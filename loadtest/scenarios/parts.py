"""What most scenarios are made of: publishers and subscribers as the plan's options say."""

from __future__ import annotations

import re
from typing import Any

from loadtest.layout import Publishing, Subscribing
from loadtest.plan import Plan
from loadtest.units import UsageError


def publishing(plan: Plan, topic: str, **fields: Any) -> Publishing:
    """What `--topic`, `--qos`, `--size` … say, over the scenario's own topic."""
    assert plan.qos is not None
    assert plan.window is not None
    values: dict[str, Any] = {
        "topic": plan.topic or topic,
        "topics": plan.topics or 0,
        "qos": plan.qos,
        "retain": plan.retain,
        "rate": plan.rate,
        "count": plan.count,
        "window": plan.window,
        "size": plan.size or (256, 256),
        "payload": plan.payload,
    }
    values.update(fields)
    if (plan.topics or 0) > 1 and "{random}" not in values["topic"] and "{n}" not in values["topic"]:
        raise UsageError("--topics draws from several topics: put {random} into --topic")
    return Publishing(**values)


def any_of(topic: str) -> str:
    """The filter that takes all topics of a pattern: every level with a placeholder becomes `+`."""
    return "/".join("+" if re.search(r"\{(i|publisher|random|n|responder)\}", level) else level for level in topic.split("/"))


def subscribing(plan: Plan, topic_filter: str, **fields: Any) -> Subscribing:
    assert plan.sub_qos is not None
    return Subscribing(filter=topic_filter, qos=plan.sub_qos, **fields)


def random_level(plan: Plan) -> str:
    return "{random}/" if (plan.topics or 0) > 1 else ""
