"""`lmq load versus PEER… --scenario S [options]`: ours and peers in turn, same machine, fresh data, medians over --runs."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from loadtest.compare import table
from loadtest.options import numbers, read_arguments
from loadtest.peers import Peer, peer_of
from loadtest.plan import Plan
from loadtest.report import Report
from loadtest.units import UsageError


def free_port() -> int:
    """A port that is free, with its three neighbours (RabbitMQ takes four); below those that the system gives to clients, of
    which a load leaves thousands in TIME_WAIT."""
    for _ in range(100):
        port = random.randrange(12_000, 32_000)
        try:
            for one in range(port, port + 4):
                socket.create_server(("127.0.0.1", one)).close()
        except OSError:
            continue
        return port
    raise UsageError("versus: no free port")


def run_peer(peer: Peer, plan: Plan) -> Report:
    """One run on a fresh server of this peer."""
    from loadtest.conductor import Conductor

    folder = Path(tempfile.mkdtemp(prefix=f"lmq-versus-{peer.name}-"))
    try:
        (folder / "data").mkdir()
        port = free_port()
        command = peer.prepare(folder, port)
        one = dataclasses.replace(plan, url=f"mqtt://127.0.0.1:{port}", server_cmd=command)
        return Conductor(one).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def split(arguments: list[str]) -> tuple[list[str], str, dict[str, Any], list[str]]:
    """Peers, scenario, our own options, and the options of the plan."""
    names: list[str] = []
    rest = list(arguments)
    while rest and not rest[0].startswith("--"):
        names.append(rest.pop(0))
    own: dict[str, Any] = {"json": None, "server_cpus": (), "runs": 1}
    scenario = ""
    plan: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--scenario" and rest:
            scenario = rest.pop(0)
        elif word == "--json" and rest:
            own["json"] = rest.pop(0)
        elif word == "--runs" and rest:
            own["runs"] = int(rest.pop(0)) if rest[0].isdigit() else 0
        elif word == "--server-cpus" and rest:
            own["server_cpus"] = numbers(rest.pop(0))
        else:
            plan.append(word)
    if not scenario:
        raise UsageError("versus needs --scenario S")
    if own["runs"] < 1:
        raise UsageError("--runs is a whole number from 1")
    return names, scenario, own, plan


def main(arguments: list[str]) -> int:
    """Ours first, then the peers named; exit 1 when a run could not be carried out or a requirement did not hold for ours."""
    names, scenario, own, words = split(arguments)
    peers = [peer_of(name) for name in (names if "ours" in names else ["ours", *names])]
    plan, output = read_arguments([scenario, "mqtt://127.0.0.1:1", *words])
    plan = dataclasses.replace(plan, server_cpus=own["server_cpus"])
    results: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    code = 0
    for turn in range(own["runs"]):
        for peer in peers:
            report = run_peer(peer, plan)
            results[peer.name].append(report.data)
            for problem in report.problems:
                print(f"✗ {peer.name}, run {turn + 1}: {problem}", file=sys.stderr)
            if peer.name == "ours" and report.exit:
                code = 1
            if not output.quiet:
                print(f"run {turn + 1} of {own['runs']}: {peer.name} done", file=sys.stderr)
    used = [peer.name for peer in peers if results[peer.name]]
    lines, _ = table(used, [results[name] for name in used], None)
    print(f"lmq load versus {' '.join(arguments)}")
    print("\n".join(lines))
    print("; ".join(f"{peer.name}: {peer.version()}" for peer in peers))
    if own["json"]:
        Path(own["json"]).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return code
