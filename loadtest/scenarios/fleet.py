"""fleet: a mixed day of devices from a TOML file; and file:PLAN.toml, the same format for a user's own plan.

    [[group]]
    name = "sensor"
    clients = 200
    persistent = true
    publish = { topic = "load/{run}/sensor/{i}/telemetry", qos = 1, rate = 400, size = "80-200", payload = "json" }
    subscribe = { filter = "load/{run}/sensor/{i}/command", qos = 1 }
    flap = { every = "2s", share = 0.1 }
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from loadtest.layout import Group, Publishing, Subscribing
from loadtest.plan import Plan
from loadtest.units import UsageError, duration, share, size_range

HELP = "a mixed day of devices: telemetry, commands, firmware pushes, flapping links (groups from a TOML file)"
DEFAULTS: dict[str, object] = {"rate": 1000.0, "persistent": True}
OWN_PLAN = Path(__file__).with_name("fleet.toml")
GROUP_KEYS = {"name", "clients", "persistent", "publish", "subscribe", "flap", "churn", "offline"}
PUBLISH_KEYS = {"topic", "topics", "qos", "retain", "rate", "count", "window", "size", "payload"}
SUBSCRIBE_KEYS = {"filter", "filters", "qos", "groups"}


def groups(plan: Plan) -> list[Group]:
    """Raises UsageError with the file, the group and what is wrong."""
    path = Path(plan.scenario[5:]) if plan.scenario.startswith("file:") else OWN_PLAN
    if plan.plan_file:
        path = Path(plan.plan_file)
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as failure:
        raise UsageError(f"plan {path}: {getattr(failure, 'strerror', None) or failure}") from None
    unknown = set(text) - {"group"}
    if unknown or not isinstance(text.get("group"), list) or not text["group"]:
        raise UsageError(f"plan {path}: it consists of [[group]] tables" + (f", not {', '.join(sorted(unknown))}" if unknown else ""))
    made = [_group(entry, plan, path) for entry in text["group"]]
    if len({group.name for group in made}) != len(made):
        raise UsageError(f"plan {path}: two groups have the same name")
    _scale(made, plan)
    return made


def _scale(made: list[Group], plan: Plan) -> None:
    """`--rate` is the rate of the whole plan: the groups keep their shares of it."""
    if plan.scenario.startswith("file:") or plan.rate is None:
        return
    total = sum(group.publish.rate or 0.0 for group in made if group.publish)
    for group in made:
        if group.publish and group.publish.rate and total:
            group.publish.rate *= plan.rate / total


def _checked(entry: dict[str, Any], known: set[str], where: str) -> dict[str, Any]:
    unknown = set(entry) - known
    if unknown:
        raise UsageError(f"{where}: unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return entry


def _group(entry: Any, plan: Plan, path: Path) -> Group:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise UsageError(f"plan {path}: every group needs a name")
    where = f"plan {path}, group {entry['name']!r}"
    _checked(entry, GROUP_KEYS, where)
    if not isinstance(entry.get("clients", 1), int) or entry.get("clients", 1) < 1:
        raise UsageError(f"{where}: clients is a whole number from 1")
    made = Group(name=entry["name"], clients=entry.get("clients", 1), persistent=bool(entry.get("persistent", plan.persistent)))
    made.offline = bool(entry.get("offline", False))
    made.churn = int(entry.get("churn", 0))
    try:
        if "publish" in entry:
            made.publish = _publishing(_checked(entry["publish"], PUBLISH_KEYS, where), plan)
        if "subscribe" in entry:
            made.subscribe = _subscribing(_checked(entry["subscribe"], SUBSCRIBE_KEYS, where), plan)
        if "flap" in entry:
            flap = _checked(entry["flap"], {"every", "share"}, where)
            made.flap = (duration(str(flap.get("every", "2s"))), share(str(flap.get("share", 0.1))))
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise UsageError(f"{where}: {failure} is missing or not of the right kind") from None
    return made


def _publishing(entry: dict[str, Any], plan: Plan) -> Publishing:
    qos = int(entry.get("qos", plan.qos or 0))
    rate = entry.get("rate")
    if qos not in (0, 1, 2) or (rate is not None and float(rate) <= 0):
        raise ValueError("qos or rate")
    return Publishing(
        topic=entry["topic"], topics=int(entry.get("topics", 0)), qos=qos, retain=bool(entry.get("retain", False)),
        rate=float(rate) if rate is not None else None, count=entry.get("count", plan.count),
        window=int(entry.get("window", 1000 if rate else 20)),
        size=size_range(str(entry.get("size", 256))), payload=str(entry.get("payload", plan.payload)),
    )  # fmt: skip


def _subscribing(entry: dict[str, Any], plan: Plan) -> Subscribing:
    groups_wanted = int(entry.get("groups", 0))
    topic_filter = entry["filter"]
    if groups_wanted:
        topic_filter = "$share/g{group}/" + topic_filter
    return Subscribing(
        filter=topic_filter, filters=int(entry.get("filters", 1)), qos=int(entry.get("qos", plan.sub_qos or 0)), share_groups=groups_wanted
    )
