"""A run's result on one screen, and the lines of `--explain`."""

from __future__ import annotations

from typing import Any

from loadtest.plan import Plan
from loadtest.report import Report


def count(value: Any) -> str:
    return "—" if value is None else f"{value:,.0f}"


def micro(value: float | None) -> str:
    """µs in the unit that reads best."""
    if value is None:
        return "—"
    if value < 1000:
        return f"{value:.0f} µs"
    if value < 1_000_000:
        return f"{value / 1000:.2f} ms"
    return f"{value / 1_000_000:.2f} s"


def megabytes(value: float | None) -> str:
    return "—" if value is None else f"{value:g}"


def bounded(report: Report, value: float | None) -> str:
    """A rate; where the harness itself was the limit it says so."""
    if value is None:
        return "—"
    if report.data["harness"]["saturated"]:
        return f"≥ {value:,.0f} (harness-bound)"
    return f"{value:,.0f}"


def lines(report: Report, color: bool = False) -> list[str]:
    """The summary: what was asked, rates, latencies, the ledger, faults, verdict."""
    data = report.data
    options = data["options"]
    bold, red, green, plain = ("\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m") if color else ("", "", "", "")
    what = f"MQTT {data['mqtt']} QoS {options['qos']}/{options['sub_qos']}  {_shape(options)}"
    out = [f"{bold}{data['scenario']}{plain} {data['url']}  {what}"]
    rates = [
        (label, data[name])
        for label, name in (("sent", "sent_per_s"), ("acknowledged", "acked_per_s"), ("delivered", "delivered_per_s"),
                            ("processed", "processed_per_s"), ("drained", "drain_per_s"), ("connected", "connects_per_s"))
        if data[name] is not None
    ]  # fmt: skip
    seconds = f"{data['duration_s']:g} s" if data["duration_s"] is not None else "—"
    out.append(f"  per second   {'   '.join(f'{label} {bounded(report, value)}' for label, value in rates) or '—'}   (measured {seconds})")
    for label, name in (("end to end", "e2e"), ("ack", "ack"), ("sent late", "send_late"), ("connect", "connect")):
        if data[name]:
            shown = "   ".join(f"{part} {micro(data[name][part])}" for part in ("p50", "p90", "p99", "p999", "max"))
            out.append(f"  {label:<12} {shown}")
    out.append(
        f"  messages     sent {count(data['sent'])}  acked {count(data['acked'])}  rejected {count(data['rejected'])}  "
        f"expected {count(data['expected'])}  delivered {count(data['delivered'])}"
    )
    out.append("  account      " + _account(data, red, plain))
    out.append("  processes    " + _processes(data))
    for row in data["faults"]:
        down = f"no answer for {row['down_s']:.2f} s" if row["down_s"] is not None else "not answered"
        back = f"all back after {row['recovered_s']:.2f} s" if row["recovered_s"] is not None else "not all back"
        fired = f"{row['at_s']:.2f} s" if row["at_s"] is not None else "never"
        out.append(f"  fault        {row['kind']} at {fired}: {row['detail']}; {down}, {back}")
    if data["reasons"]:
        out.append("  reasons      " + "; ".join(f"{name} ×{times}" for name, times in list(data["reasons"].items())[:6]))
    out += [f"  {red}lost{plain}         {line}" for line in report.losses[:4]]
    return out + verdict(report, red, green, plain)


def _shape(options: dict[str, Any]) -> str:
    parts = [f"{options[name]} {name}" for name in ("publishers", "subscribers") if options[name]]
    low, high = options["size"] or (256, 256)
    parts.append(f"{low if low == high else f'{low}-{high}'} B")
    parts.append(f"{options['rate']:g}/s" if options["rate"] else f"window {options['window']}")
    return ", ".join(parts)


def _account(data: dict[str, Any], red: str, plain: str) -> str:
    bad = ("lost", "duplicate", "reordered", "corrupt", "phantom", "foreign", "misrouted")
    parts = [f"{red}{name} {count(data[name])}{plain}" if data[name] else f"{name} {count(data[name])}" for name in bad[:3]]
    parts.append(f"redelivered {count(data['redelivered'])}")
    optional = ("lost_qos0", *bad[3:], "unsent", "unacked", "delivered_unacked", "sessions_lost", "disconnects", "protocol_errors")
    parts += [f"{name} {count(data[name])}" for name in optional if data[name]]
    return "  ".join(parts)


def _processes(data: dict[str, Any]) -> str:
    server, harness = data["server"], data["harness"]
    parts = []
    if server["rss_mb"] is not None:
        parts.append(f"server {count(server['cpu_pct'])} % CPU, {megabytes(server['rss_mb'])} MB")
        if server["messages_per_cpu_s"]:
            parts.append(f"{count(server['messages_per_cpu_s'])} messages per CPU-second")
        if server["rss_per_connection"] is not None:
            parts.append(f"{count(server['rss_per_connection'])} B per connection")
    own = f"harness {count(harness['cpu_pct'])} % CPU, {megabytes(harness['rss_mb'])} MB in {harness['workers']} worker(s)"
    if harness["rss_per_connection"] is not None:
        own += f", {count(harness['rss_per_connection'])} B per connection"
    return "; ".join([*parts, own + (" — saturated" if harness["saturated"] else "")])


def verdict(report: Report, red: str = "", green: str = "", plain: str = "") -> list[str]:
    """What did not hold, each with its figure; these lines come under `--quiet` too."""
    out = [f"  {red}✗{plain} {problem}" for problem in report.problems]
    for row in report.data.get("requirements", []):
        mark = f"{green}✓{plain}" if row["held"] else f"{red}✗{plain}"
        value = "not measured" if row["value"] is None else f"{row['value']:,}" if isinstance(row["value"], (int, float)) else row["value"]
        out.append(f"  {mark} {row['expr']}   ({value})")
    return out


def failures(report: Report) -> list[str]:
    return [f"✗ {problem}" for problem in report.problems] + [
        f"✗ {row['expr']}: {'not measured' if row['value'] is None else row['value']}"
        for row in report.data.get("requirements", []) if not row["held"]
    ]  # fmt: skip


def explained(plan: Plan, groups: list[Any]) -> list[str]:
    """Every option with its value, and who will connect."""
    out = [f"{plan.scenario} with"]
    for name, value in plan.options().items():
        shown = "none" if value is None or value == [] else " ".join(map(str, value)) if isinstance(value, list) else value
        out.append(f"  --{name.replace('_', '-'):<18} {shown}")
    for group in groups:
        out.append(f"group {group.name}: {group.clients} clients, {'persistent' if group.persistent else 'clean'} sessions")
        if group.publish:
            out.append(f"  publish   {group.publish.topic}  QoS {group.publish.qos}")
        if group.subscribe:
            out.append(f"  subscribe {group.subscribe.filter}  QoS {group.subscribe.qos}")
    return out
