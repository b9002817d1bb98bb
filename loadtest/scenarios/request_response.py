"""request-response: each requester publishes requests, a responder answers each; latency is the round trip."""

from __future__ import annotations

from loadtest.layout import Group
from loadtest.plan import Plan
from loadtest.scenarios.parts import publishing, subscribing

HELP = "requesters publish, responders answer (MQTT 5: response topic and correlation data); latency is the round trip"
DEFAULTS = {"publishers": 50, "subscribers": 1, "credit": 200}


def groups(plan: Plan) -> list[Group]:
    responders = plan.subscribers or 1
    requesters = plan.publishers or 0
    persistent = bool(plan.persistent)
    made = [
        Group(name="r", clients=responders, subscribe=subscribing(plan, "load/{run}/ask/{i}/+"), responder=True, persistent=persistent),
    ]
    publish = publishing(plan, f"load/{{run}}/ask/{{responder:{responders}}}/{{publisher}}", request=plan.mqtt == "5")
    answers = subscribing(plan, "load/{run}/answer/{i}")
    answers.spans = [(0, requesters, True)]
    made.append(Group(name="p", clients=requesters, publish=publish, subscribe=answers, persistent=persistent))
    return made
