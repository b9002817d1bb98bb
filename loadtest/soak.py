"""`make soak`: a mixed load for hours at half of the measured capacity, and what must hold at its end.

Held: nothing lost; after 10 minutes (a sixth of the run, if that is shorter) the fitted slope of resident memory at most 2 % of
its level per hour, server and harness; the median of the per-minute p99 of the last quarter at most 1.5 times the first; the
server's data bounded by retention.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from loadtest.conductor import Conductor
from loadtest.live_view import view_for
from loadtest.options import read_arguments
from loadtest.peers import peer_of
from loadtest.units import UsageError, number
from loadtest.versus import free_port

PLAN = """
[[group]]
name = "reader"
clients = 2
persistent = true
subscribe = {{ filter = "load/{{run}}/sensor/+", qos = 1 }}
[[group]]
name = "worker"
clients = 4
subscribe = {{ filter = "load/{{run}}/job/+", qos = 1, groups = 1 }}
[[group]]
name = "exact"
clients = 1
persistent = true
subscribe = {{ filter = "load/{{run}}/exact/+", qos = 2 }}
[[group]]
name = "sensor"
clients = 50
publish = {{ topic = "load/{{run}}/sensor/{{i}}", qos = 1, rate = {sensors:.1f}, size = "100-300" }}
[[group]]
name = "job"
clients = 10
publish = {{ topic = "load/{{run}}/job/{{i}}", qos = 1, rate = {jobs:.1f} }}
[[group]]
name = "once"
clients = 5
publish = {{ topic = "load/{{run}}/exact/{{i}}", qos = 2, rate = {once:.1f} }}
[[group]]
name = "state"
clients = 20
publish = {{ topic = "load/{{run}}/state/{{i}}", qos = 1, retain = true, rate = {state:.1f} }}
[[group]]
name = "visitor"
clients = 20
churn = 10
publish = {{ topic = "load/{{run}}/visitor/{{i}}", qos = 1, rate = {visits:.1f} }}
subscribe = {{ filter = "load/{{run}}/visitor/{{i}}", qos = 1 }}
"""
RETENTION = 512 << 20
SEGMENT = 64 << 20
DISK_MAX = 2 * RETENTION
"""The log, the segment being written, its index and the tables."""
CAPACITY_P99_US = 50_000
SHARES = {"sensors": 0.6, "jobs": 0.15, "once": 0.1, "state": 0.1, "visits": 0.05}


def plan_text(rate: float) -> str:
    """The mix at so many messages a second in all."""
    return PLAN.format(**{name: rate * share for name, share in SHARES.items()})


def slope_per_hour(points: list[tuple[float, float]]) -> float | None:
    """Fitted slope over the mean level, per hour."""
    if len(points) < 3:
        return None
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope * 3600 / statistics.fmean(value for _, value in points)


def judged(data: dict[str, Any], seconds: float) -> list[tuple[str, bool, str]]:
    """(what, held, figure) for each condition."""
    settled = min(600.0, seconds / 6)
    rows = [("nothing lost", data["lost"] == 0, f"{data['lost']} of {data['expected']:,}")]
    for who in ("server", "harness"):
        points = [(row["t_s"], row[f"{who}_mb"]) for row in data["resident"] if row["t_s"] >= settled and row[f"{who}_mb"] is not None]
        slope = slope_per_hour(points)
        shown = "—" if slope is None else f"{slope:+.2%} per hour"
        rows.append((f"resident memory of the {who}", slope is not None and slope <= 0.02, shown))
    disk = max((row["disk_mb"] or 0.0 for row in data["resident"]), default=0.0)
    rows.append(("disk bounded by retention", disk * 1e6 <= DISK_MAX, f"{disk:,.0f} MB at most, retention {RETENTION / 1e6:,.0f} MB"))
    minutes = [value for value in data["minutes_e2e_p99"] if value is not None]
    quarter = max(1, len(minutes) // 4)
    if len(minutes) >= 4:
        first, last = statistics.median(minutes[:quarter]), statistics.median(minutes[-quarter:])
        rows.append(("p99 of the last quarter", last <= 1.5 * first, f"{first:,.0f} µs → {last:,.0f} µs"))
    return rows


def capacity(command: str, path: Path) -> float:
    """The most messages a second of the mix, in steps of a quarter, that come through with a p99 below CAPACITY_P99_US."""
    rate = held = 4000.0
    while True:
        path.write_text(plan_text(rate))
        plan, _ = read_arguments([f"file:{path}", f"mqtt://127.0.0.1:{free_port()}", "--duration", "4s"])
        report = Conductor(dataclasses.replace(plan, server_cmd=command)).run()
        p99 = report["e2e.p99"]
        if p99 is None:
            raise UsageError("soak: the server delivered nothing: " + "; ".join(report.problems))
        if p99 > CAPACITY_P99_US:
            return held
        held, rate = rate, rate * 1.25


def main(arguments: list[str]) -> int:
    """--hours H [--rate N] [--server-cmd CMD] [--json FILE]; exit 0 when all held."""
    values: dict[str, str] = {"--hours": "1", "--rate": "", "--server-cmd": "", "--json": ""}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word not in values or not rest:
            raise UsageError(f"soak: {word} is none of {', '.join(values)} (each with a value)")
        values[word] = rest.pop(0)
    seconds = number(values["--hours"]) * 3600
    with tempfile.TemporaryDirectory(prefix="lmq-soak-") as name:
        folder = Path(name)
        ours = peer_of("ours").prepare(folder, 65000).replace(":65000", ":{port}").replace(str(folder / "data"), "{data}")
        command = values["--server-cmd"] or f"{ours} --retention-bytes {RETENTION} --segment-bytes {SEGMENT}"
        path = folder / "soak.toml"
        rate = number(values["--rate"]) if values["--rate"] else capacity(command, path) / 2
        print(f"soak: {rate:,.0f} messages a second for {seconds:,.0f} s", flush=True)
        path.write_text(plan_text(rate))
        words = [f"file:{path}", f"mqtt://127.0.0.1:{free_port()}", "--duration", f"{seconds:.0f}s", "--drain", "20s"]
        plan, _ = read_arguments(words)
        conductor = Conductor(dataclasses.replace(plan, server_cmd=command))
        view = view_for(conductor, False)
        conductor.watch = lambda _run: view.show()
        report = conductor.run()
        view.end()
    if values["--json"]:
        Path(values["--json"]).write_text(json.dumps(report.data), encoding="utf-8")
    rows = judged(report.data, seconds)
    for problem in report.problems:
        print(f"✗ {problem}")
    for what, held, figure in rows:
        print(f"{'✓' if held else '✗'} {what}: {figure}")
    return 0 if all(held for _, held, _ in rows) and not report.exit else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as wrong:
        print(wrong, file=sys.stderr)
        sys.exit(2)
