"""From the workers' parts to the report and its exit status."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

from loadtest import requirements
from loadtest.accounting import Account, account
from loadtest.report import Report, harness_figures, histograms_of, rate, rates_of, server_figures
from loadtest.report_keys import FIGURES, GROUPS, RATES, SCHEMA_VERSION

if TYPE_CHECKING:
    from loadtest.conductor import Conductor

LEDGER_COUNTS = (
    "lost", "lost_qos0", "duplicate", "redelivered", "reordered", "corrupt", "foreign", "phantom", "misrouted", "expected",
    "delivered_unacked",
)  # fmt: skip


def tool_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lmq-proxy")
    except PackageNotFoundError:
        return "0"


def report_of(run: Conductor, ledgers: list[dict[str, Any]]) -> Report:
    """The report; its exit status is decided here and nowhere else."""
    plan, noted, layout = run.plan, run.noted, run.layout
    qos_of = {
        publisher: group.publish.qos
        for group in layout.groups
        if group.publish
        for publisher in range(group.publish.first, group.publish.first + group.clients)
    }
    late = {number for number, group in enumerate(layout.groups) if group.late}
    complete = len(ledgers) == plan.workers
    found = account(ledgers, qos_of, late) if complete else Account()
    counts = {name: sum(ledger["counts"][name] for ledger in ledgers) for name in ledgers[0]["counts"]} if ledgers else {}
    for name in counts:
        if name.startswith("last_"):
            counts[name] = max(ledger["counts"][name] for ledger in ledgers)
    life = {name: sum(ledger["life"][name] for ledger in ledgers) for name in ledgers[0]["life"]} if ledgers else {}
    histograms = histograms_of(ledgers)
    if plan.count is not None and counts and noted.t0:
        last = max(counts["last_sent"], counts["last_acked"], 0 if noted.returned_at else counts["last_delivered"])
        noted.measured_until = min(noted.measured_until, max(last, noted.t0 + 1_000_000))
    noted.measured_until = max(noted.measured_until, noted.measured_from)  # interrupted in the warm-up: nothing was measured
    measured = noted.measured_until - noted.measured_from if noted.t0 else 0
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version(),
        "scenario": plan.scenario,
        "url": str(run.address),
        "mqtt": plan.mqtt,
        "options": plan.options(),
        "started_at": datetime.datetime.fromtimestamp(run.started_at, datetime.UTC).isoformat(timespec="milliseconds"),
        "duration_s": round(measured / 1e9, 3) if measured else None,
        "run_s": round((time.monotonic_ns() - noted.began) / 1e9, 3),
        "run": f"{run.run_id:08x}",
        "exit": 0,
    }
    data.update(_counts(plan.ledger, counts, life, found, layout.subscribers))
    data["reasons"] = _reasons(ledgers)
    data.update(dict.fromkeys((*RATES, *FIGURES)))
    for name, keys in GROUPS.items():
        data[name] = dict.fromkeys(keys)
    data["harness"].update(workers=plan.workers, saturated=False)
    if counts:
        data.update(_rates(run, counts, found, ledgers))
        for name in ("e2e", "ack", "send_to_ack", "send_late", "bare_late", "connect", "subscribe"):
            data[name] = histograms[name].in_microseconds()
        messages = max(counts["measured_sent"], counts["measured_delivered"])
        if run.server.pid is not None:
            data["server"] = server_figures(noted, messages)
        data["harness"] = harness_figures(noted, ledgers, histograms, plan.workers)
    data["timeline"] = run.timeline.rows
    data["minutes_e2e_p99"] = run.timeline.minutes
    data["resident"] = run.timeline.memory
    data["faults"] = [row.row() for row in run.faults.rows]
    data["histograms"] = {name: histograms[name].encoded() for name in histograms if histograms[name].number}
    report = Report(data, list(run.problems), histograms=histograms)
    report.losses = [
        f"{layout.groups[key[0]].name}{key[1] if key[1] >= 0 else ''} lost {number} of publisher {publisher}: {', '.join(map(str, first))}"
        + (" …" if number > len(first) else "")
        for key, publisher, number, first in found.losses
    ]
    _judge(run, report, complete)
    return report


def _counts(ledger: bool, counts: dict[str, int], life: dict[str, int], found: Account, subscribers: int) -> dict[str, Any]:
    data: dict[str, Any] = {name: counts.get(name) for name in ("sent", "acked", "rejected", "reordered", "corrupt", "foreign", "phantom")}
    data["delivered"] = found.delivered if ledger else counts.get("delivered")
    for name in ("expected", "lost", "lost_qos0", "duplicate", "redelivered", "delivered_unacked", "unacked", "unsent"):
        data[name] = getattr(found, name)
    data["misrouted"] = found.misrouted + counts.get("misrouted", 0)
    data["protocol_errors"] = counts.get("protocol_errors")
    for name in ("sessions_lost", "connect_failed", "subscribe_refused", "disconnects"):
        data[name] = life.get(name)
    if not ledger or not counts:
        data.update(dict.fromkeys(LEDGER_COUNTS))
    return data


def _reasons(ledgers: list[dict[str, Any]]) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for ledger in ledgers:
        for reason, times in ledger["reasons"].items():
            reasons[reason] = reasons.get(reason, 0) + times
    return dict(sorted(reasons.items()))


def _rates(run: Conductor, counts: dict[str, int], found: Account, ledgers: list[dict[str, Any]]) -> dict[str, Any]:
    layout, noted = run.layout, run.noted
    publishing = [group.publish for group in layout.groups if group.publish]
    drains = any(group.offline or group.late for group in layout.groups)
    fenced = bool(publishing) and all(publish.qos == 0 for publish in publishing) and not run.interrupted
    qos = max((publish.qos for publish in publishing), default=0)
    delivered = counts["delivered"] if layout.subscribers else 0
    data: dict[str, Any] = dict(rates_of(counts, noted, qos, fenced, drains, run.plan.count is not None, delivered))
    data["connects_per_s"] = None
    if noted.ramped and run.plan.scenario != "churn":
        data["connects_per_s"] = rate(noted.ramped, noted.ramp_s)
    elif run.plan.scenario == "churn" and noted.t0:
        data["connects_per_s"] = rate(sum(ledger["life"]["connects"] for ledger in ledgers), (time.monotonic_ns() - noted.t0) / 1e9)
    return data


def _taken(run: Conductor, data: dict[str, Any]) -> bool:
    """QoS 0 without subscribers: only the answer to a PINGREQ says that anything arrived (paho keeps that to itself)."""
    return bool(data.get("sent")) and (bool(data.get("processed_per_s")) or (run.plan.client == "paho" and not run.plan.qos))


def _judge(run: Conductor, report: Report, complete: bool) -> None:
    """Exit 0 all held; 1 something did not, or the run was not carried out as planned, or nothing came through; 130."""
    data, plan = report.data, run.plan
    for row in run.faults.rows:
        if row.state != "over" and not run.interrupted:
            if row.fired is None:
                report.problems.append(f"fault {row.fault.kind} at {row.at:g} s did not fire")
            elif not any(problem.startswith(row.fault.kind) for problem in report.problems):
                report.problems.append(f"fault {row.fault.kind} at {row.at:g} s did not end")
    if not complete:
        report.problems.append("the ledger of a worker is missing")
    if data.get("subscribe_refused"):
        report.problems.append(f"{data['subscribe_refused']} filters were refused")
    if data.get("unsent") and not report.problems:
        report.problems.append(f"{data['unsent']} messages that were due could not be sent")
    if plan.scenario == "connect":
        if not run.noted.connected and not run.signalled:
            report.problems.append("nothing connected")
    elif not data.get("acked") and not data.get("delivered") and not run.signalled and not _taken(run, data):
        report.problems.append("nothing was acknowledged or delivered")
    wanted = [requirements.parse(text) for text in plan.require]
    data["requirements"] = requirements.judge(wanted, data)
    held = all(row["held"] for row in data["requirements"])
    data["exit"] = 130 if run.signalled else 1 if report.problems or not held else 0
    if any("exit" in row["expr"] for row in data["requirements"]):
        data["requirements"] = requirements.judge(wanted, data)
    run.failed = data["exit"] != 0
