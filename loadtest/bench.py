"""`lmq load bench`: the table of docs/benchmarks.md; every row is one `versus` whose command stands above it.

The servers run on core 0 and the harness on core 1, each run on fresh data. A figure of a run whose harness was the limit is
shown as `≥ N` and enters no ratio.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.compare import figure, median_and_spread
from loadtest.options import read_arguments
from loadtest.peers import Peer, peer_of
from loadtest.report import Report
from loadtest.summary import micro
from loadtest.units import UsageError
from loadtest.versus import free_port

TIMED = "--duration 4s --drain 5s"
BEGIN, END = "<!-- lmq load bench -->", "<!-- end of lmq load bench -->"
"""What `--out` writes in a document stands between these."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what, the plan's words, the figure that counts, and whether more is better."""

    name: str
    title: str
    words: str
    figure: str
    more: bool = True
    scheme: str = "mqtt"


ROWS = (
    Row("publish-q0", "QoS 0 in, 50 publishers", f"publish --qos 0 {TIMED}", "processed_per_s"),
    Row("publish-q1", "QoS 1 in, 50 publishers, window 20", f"publish --qos 1 {TIMED}", "acked_per_s"),
    Row("publish-q2", "QoS 2 in, 50 publishers, window 20", f"publish --qos 2 {TIMED}", "acked_per_s"),
    Row(
        "publish-v5", "MQTT 5 with user properties, QoS 1 in, 100 B",
        f"publish --qos 1 --mqtt 5 --size 100 --user-property device=sensor-1 --user-property site=north {TIMED}", "acked_per_s",
    ),
    Row(
        "publish-fleet", "QoS 1 in, 2,000 publishers, one in flight each", f"publish --qos 1 --publishers 2000 --window 1 {TIMED}",
        "acked_per_s",
    ),
    Row("publish-retained", "QoS 1 in, every message retained", f"publish --qos 1 --retain {TIMED}", "acked_per_s"),
    Row("fan-in-q1", "fan-in 50 to 1 through a wildcard, QoS 1", f"fan-in --qos 1 {TIMED}", "delivered_per_s"),
    Row("fan-in-q2", "fan-in 50 to 1 through a wildcard, QoS 2", f"fan-in --qos 2 {TIMED}", "delivered_per_s"),
    Row("fan-out-q0", "fan-out 1 to 1,000, QoS 0", f"fan-out --qos 0 {TIMED}", "delivered_per_s"),
    Row("fan-out-q1", "fan-out 1 to 1,000, QoS 1", f"fan-out --qos 1 {TIMED}", "delivered_per_s"),
    Row("shared", "shared subscription, 10 workers, QoS 1", f"shared --qos 1 {TIMED}", "delivered_per_s"),
    Row("pairs", "200 pairs at 5,000/s, QoS 1: latency", f"pairs --publishers 200 --qos 1 --rate 5000 {TIMED}", "e2e.p99", more=False),
    Row("connect", "10,000 idle connections: bytes each", "connect --publishers 10000 --hold 2s", "server.rss_per_connection", more=False),
    Row(
        "keepalive", "10,000 connections, keep alive 3 s: CPU in %", "connect --publishers 10000 --keepalive 3 --hold 5s",
        "server.cpu_pct", more=False,
    ),
    Row(
        "storm", "5,000 clients back after a SIGKILL: seconds",
        "connect --publishers 5000 --hold 2s --fault kill@200ms,restart=100ms", "faults.recovered_s", more=False,
    ),
    Row("offline", "100 persistent pairs, 1,000 messages each: drain", "offline --publishers 100 --count 1000 --drain 5s", "drain_per_s"),
    Row("filters", "100,000 filters, QoS 1", f"filters --qos 1 {TIMED}", "delivered_per_s"),
    Row("retained", "10,000 retained messages to one new subscriber", "retained --topics 10000", "drain_per_s"),
    Row("tls", "QoS 1 in over TLS, 50 publishers", f"publish --qos 1 --insecure {TIMED}", "acked_per_s", scheme="mqtts"),
    Row("websocket", "QoS 1 in over WebSocket, 50 publishers", f"publish --qos 1 {TIMED}", "acked_per_s", scheme="ws"),
)  # fmt: skip


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1. Raises UsageError without openssl."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2",
               "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise UsageError("bench: the TLS row needs openssl") from None
    key.chmod(0o644)
    folder.chmod(0o755)
    return cert, key


def command_for(peer: Peer, scheme: str, folder: Path, port: int) -> str | None:
    """The peer's command for this kind of listener; None where we know none."""
    if scheme == "mqtt":
        return peer.prepare(folder, port)
    if peer.name == "ours":
        options = ""
        if scheme == "mqtts":
            cert, key = certificate(folder)
            options = f"?cert={cert}&key={key}"
        return peer.prepare(folder, port).replace(f"mqtt://127.0.0.1:{port}", f"{scheme}://127.0.0.1:{port}{options}")
    if peer.name.startswith("mosquitto"):
        command = peer.prepare(folder, port)
        conf = folder / "mosquitto.conf"
        if scheme == "ws":
            extra = "protocol websockets\n"
        else:
            cert, key = certificate(folder)
            extra = f"certfile {cert}\nkeyfile {key}\n"
        first, rest = conf.read_text().split("\n", 1)
        # Where all its listeners are WebSocket, mosquitto 2.0.11 says that it has none: give it another.
        spare = f"listener {port + 1} 127.0.0.1\n" if scheme == "ws" else ""
        conf.write_text(f"{first.replace(' 127.0.0.1', '') if spare else first}\n{extra}{rest}{spare}")
        return command
    return None


def run_row(row: Row, peer: Peer, cores: bool) -> Report | None:
    """One run of one row; None where the peer cannot do it."""
    from loadtest.conductor import Conductor

    with tempfile.TemporaryDirectory(prefix="lmq-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "data").mkdir()
        port = free_port()
        command = command_for(peer, row.scheme, folder, port)
        if command is None:
            return None
        words = shlex.split(row.words)
        plan, _ = read_arguments([words[0], f"{row.scheme}://127.0.0.1:{port}", *words[1:]])
        plan = dataclasses.replace(plan, server_cmd=command)
        if cores:
            plan = dataclasses.replace(plan, server_cpus=(0,), cpus=(1,))
        return Conductor(plan).run()


def value_of(reports: list[dict[str, Any]], row: Row) -> tuple[float | None, float | None]:
    if row.figure == "faults.recovered_s":
        values = [one["faults"][0]["recovered_s"] for one in reports if one["faults"] and one["faults"][0]["recovered_s"] is not None]
        return (statistics.median(values), None) if values else (None, None)
    return median_and_spread(reports, row.figure)


def shown(value: float | None, row: Row) -> str:
    if value is None:
        return "—"
    if row.figure.endswith(("p50", "p99")):
        return micro(value)
    if row.figure.endswith("_s") and not row.figure.endswith("per_s"):
        return f"{value:.2f} s"
    return f"{value:,.0f}"


def section(row: Row, peers: list[Peer], results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A row in Markdown: its title, its command, and a line per peer."""
    names = " ".join(peer.name for peer in peers)
    how = f"lmq load versus {names} --scenario {row.words}"
    if row.scheme != "mqtt":
        how = f"lmq load bench --rows {row.name} --peers {names.replace(' ', ',')}"
    out = [f"### {row.title}", "", f"    {how}", ""]
    out.append(f"| | {row.figure} | spread | ours / it | messages per server CPU-second | ack p50 / p99 | e2e p50 / p99 | lost |")
    out.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    bound = {peer.name: any(one["harness"]["saturated"] for one in results[peer.name]) for peer in peers}
    base, _ = value_of(results[peers[0].name], row) if results[peers[0].name] else (None, None)
    for peer in peers:
        reports = results[peer.name]
        if not reports:
            out.append(f"| {peer.name} | — | | | | | | |")
            continue
        value, spread = value_of(reports, row)
        rate = row.figure.endswith("per_s")
        free = not (bound[peer.name] or bound[peers[0].name])
        ratio = f"{base / value:.2f}×" if base and value and free and peer is not peers[0] else ""
        mark = "≥ " if rate and bound[peer.name] else ""
        text = f"| {peer.name} | {mark}{shown(value, row)} | {f'±{spread / 2:.0%}' if spread is not None else ''} | {ratio} "
        text += f"| {_plain(reports, 'server.messages_per_cpu_s')} | {_pair(reports, 'ack')} | {_pair(reports, 'e2e')} "
        out.append(text + f"| {_plain(reports, 'lost')} |")
    return [*out, ""]


def _plain(reports: list[dict[str, Any]], name: str) -> str:
    value, _ = median_and_spread(reports, name)
    return "" if value is None else f"{value:,.0f}"


def _pair(reports: list[dict[str, Any]], name: str) -> str:
    low, high = (median_and_spread(reports, f"{name}.{part}")[0] for part in ("p50", "p99"))
    return "" if low is None else f"{micro(low)} / {micro(high)}"


def machine() -> str:
    """Where the figures are from, in a line."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}, Python {platform.python_version()}, {today}"


def parse(arguments: list[str]) -> tuple[int, list[Peer], list[Row], str | None]:
    values = {"--runs": "1", "--peers": "ours,mosquitto", "--rows": ",".join(row.name for row in ROWS), "--out": ""}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word not in values or not rest:
            raise UsageError(f"bench: {word} is none of {', '.join(values)} (each with a value)")
        values[word] = rest.pop(0)
    known = {row.name: row for row in ROWS}
    wanted = [name for name in values["--rows"].split(",") if name]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"bench: no row {unknown[0]!r}; there are {', '.join(known)}")
    if not values["--runs"].isdigit() or values["--runs"] == "0":
        raise UsageError("bench: --runs is a whole number from 1")
    peers = [peer_of(name) for name in values["--peers"].replace("+", ",").split(",") if name]
    return int(values["--runs"]), peers, [known[name] for name in wanted], values["--out"] or None


def main(arguments: list[str] | None = None) -> int:
    """Print the table as it grows; exit 1 when a run of ours lost something or could not be carried out."""
    runs, peers, rows, out = parse(list(sys.argv[1:] if arguments is None else arguments))
    cores = {0, 1} <= os.sched_getaffinity(0)
    lines = [f"{machine()}; medians of {runs}; " + ", ".join(peer.version() for peer in peers), ""]
    print(lines[0] + "\n", flush=True)
    code = 0
    for row in rows:
        results: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
        for _ in range(runs):
            for peer in peers:
                report = _guarded(lambda peer=peer, row=row: run_row(row, peer, cores), peer, row)  # type: ignore[misc]
                if report is None:
                    continue
                results[peer.name].append(report.data)
                if report.problems:
                    print(f"✗ {peer.name}: {'; '.join(report.problems)}", file=sys.stderr)
                if peer.name == "ours" and (report.exit or figure(report.data, "lost")):
                    code = 1
        made = section(row, peers, results)
        print("\n".join(made), flush=True)
        lines += made
    if out:
        write_between_marks(Path(out), "\n".join(lines))
    return code


def write_between_marks(path: Path, table: str) -> None:
    """Put the table into the document, between its marks; a document without them is made anew."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        before, after = "# Benchmarks\n\n", "\n"
    path.write_text(f"{before}{BEGIN}\n\n{table.strip()}\n\n{END}{after}", encoding="utf-8")


def _guarded(run: Callable[[], Report | None], peer: Peer, row: Row) -> Report | None:
    try:
        return run()
    except UsageError as failure:
        print(f"✗ {peer.name}, {row.name}: {failure}", file=sys.stderr)
        if peer.name in ("ours", "mosquitto"):
            raise
        return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as wrong:
        print(f"bench: {wrong}", file=sys.stderr)
        sys.exit(2)
