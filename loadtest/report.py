"""What a run found: the JSON report, its figures from the workers' parts, and the verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from loadtest.histogram import Histogram, merged

SATURATED_CPU = 0.90
LATE_MARGIN_US = 1000.0
FEW = 100
"""Connections below which bytes per connection say nothing."""


@dataclass(slots=True)
class Report:
    """The report of one run; `data` is what `--json` writes (docs/load.schema.json)."""

    data: dict[str, Any]
    problems: list[str] = field(default_factory=list)
    """Why the run was not carried out as planned, for people."""
    losses: list[str] = field(default_factory=list)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    @property
    def exit(self) -> int:
        return int(self.data["exit"])

    def __getitem__(self, name: str) -> Any:
        """A figure by its JSON name, `e2e.p99` included."""
        found: Any = self.data
        for part in name.split("."):
            found = found[part] if found is not None else None
        return found

    def as_json(self) -> str:
        return json.dumps(self.data, indent=1, ensure_ascii=False)


@dataclass(slots=True)
class Measured:
    """What the conductor noted beside the ledgers; instants in ns, usage in seconds and bytes."""

    t0: int = 0
    measured_from: int = 0
    measured_until: int = 0
    returned_at: int = 0
    began: int = 0
    server_cpu: tuple[float, float] | None = None
    server_rss_before: int | None = None
    server_rss_connected: int | None = None
    server_rss_peak: int | None = None
    harness_cpu: float = 0.0
    harness_rss: int = 0
    harness_rss_before: int = 0
    harness_rss_connected: int = 0
    connected: int = 0
    ramped: int = 0
    ramp_s: float = 0.0
    timeline: list[dict[str, Any]] = field(default_factory=list)


def histograms_of(ledgers: list[dict[str, Any]]) -> dict[str, Histogram]:
    names = {"e2e": "end_to_end", "ack": "ack", "send_to_ack": "send_to_ack", "send_late": "send_late", "connect": "connect",
             "subscribe": "subscribe"}  # fmt: skip
    made = {name: merged(ledger["histograms"][inner] for ledger in ledgers) for name, inner in names.items()}
    made["bare_late"] = merged(ledger["pacing"] for ledger in ledgers if ledger["pacing"])
    return made


def rate(number: float, seconds: float) -> float | None:
    return round(number / seconds, 1) if seconds > 0 else None


def rates_of(counts: dict[str, int], noted: Measured, qos: int | None, fenced: bool, drains: bool, by_count: bool,
             delivered: int) -> dict[str, float | None]:  # fmt: skip
    """Rates of the measured time; with --count over the time to the last such event."""
    window = (noted.measured_until - noted.measured_from) / 1e9 if noted.t0 else 0.0
    spans = {"sent": window, "acked": window, "delivered": window}
    if by_count and window > 0:
        for name in spans:
            spans[name] = max(0.001, (counts[f"last_{name}"] - noted.measured_from) / 1e9) if counts[f"last_{name}"] else 0.0
    rates: dict[str, float | None] = {
        "sent_per_s": rate(counts["measured_sent"], spans["sent"]),
        "acked_per_s": rate(counts["measured_acked"], spans["acked"]) if qos else None,
        "delivered_per_s": rate(counts["measured_delivered"], spans["delivered"]) if delivered and not drains else None,
        "processed_per_s": None,
        "drain_per_s": None,
    }
    if fenced and counts["last_pong"] > noted.t0:
        rates["processed_per_s"] = rate(counts["sent"], (counts["last_pong"] - noted.t0) / 1e9)
    if drains and noted.returned_at and counts["last_delivered"] > noted.returned_at:
        rates["drain_per_s"] = rate(delivered, (counts["last_delivered"] - noted.returned_at) / 1e9)
    return rates


def server_figures(noted: Measured, messages: int) -> dict[str, Any]:
    window = (noted.measured_until - noted.measured_from) / 1e9
    figures: dict[str, Any] = dict.fromkeys(("cpu_pct", "cpu_us_per_message", "messages_per_cpu_s", "rss_mb", "rss_per_connection"))
    if noted.server_cpu is not None and window > 0:
        spent = noted.server_cpu[1] - noted.server_cpu[0]
        figures["cpu_pct"] = round(100 * spent / window, 1)
        if messages and spent > 0:
            figures["cpu_us_per_message"] = round(1e6 * spent / messages, 3)
            figures["messages_per_cpu_s"] = round(messages / spent, 1)
    if noted.server_rss_peak is not None:
        figures["rss_mb"] = round(noted.server_rss_peak / 1e6, 1)
        if noted.connected >= FEW and noted.server_rss_before is not None and noted.server_rss_connected is not None:
            figures["rss_per_connection"] = round((noted.server_rss_connected - noted.server_rss_before) / noted.connected)
    return figures


def harness_figures(noted: Measured, ledgers: list[dict[str, Any]], found: dict[str, Histogram], workers: int) -> dict[str, Any]:
    window = (noted.measured_until - noted.measured_from) / 1e9
    busiest = max((ledger["cpu_measured"] for ledger in ledgers), default=0.0)
    late, bare = found["send_late"], found["bare_late"]
    # Also what an outage or a window holds back is late; only the loop's own lateness is the harness's.
    own = merged(ledger["loop_late"] for ledger in ledgers)
    behind = bool(late.number) and (min(own.percentile(99), late.percentile(99)) - bare.percentile(99)) / 1e3 > LATE_MARGIN_US
    per_connection = None
    if noted.connected >= FEW and noted.harness_rss_before:
        per_connection = round((noted.harness_rss_connected - noted.harness_rss_before) / noted.connected)
    return {
        "cpu_pct": round(100 * sum(ledger["cpu_measured"] for ledger in ledgers) / window, 1) if window > 0 else None,
        "rss_mb": round(noted.harness_rss / 1e6, 1),
        "rss_per_connection": per_connection,
        "workers": workers,
        "saturated": bool(window > 0 and (busiest / window > SATURATED_CPU or behind)),
        "late_share": round(late.share_above(1_000_000), 6) if late.number else None,
        "bare_late_share": round(bare.share_above(1_000_000), 6) if bare.number else None,
    }
