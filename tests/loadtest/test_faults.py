"""Things break while it runs: the report says what was lost, when the broker was back, and the verdict follows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loadtest import Plan, run
from loadtest.faults import Fault, occurrences, parse
from tests.loadtest.conftest import MOSQUITTO, free_port, mosquitto_conf

needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
LMQ = Path(sys.executable).with_name("lmq")
OURS = f"{LMQ} serve --listen mqtt://127.0.0.1:{{port}} --data {{data}}"


def mosquitto_command(folder: Path, extra: str = "") -> tuple[str, str]:
    port = free_port()
    return f"mqtt://127.0.0.1:{port}", f"{MOSQUITTO} -c {mosquitto_conf(folder, port, extra)}"


def test_specifications() -> None:
    assert parse("kill@5s,restart=2s") == Fault("kill", 5.0, restart=2.0)
    assert parse("cut@1s,share=30%,every=2s") == Fault("cut", 1.0, share=0.3, every=2.0)
    rows = occurrences([parse("cut@1s,every=2s"), parse("stop@4s,for=100ms")], 6.0, 1)
    assert [(row.fault.kind, row.at) for row in rows] == [("cut", 1.0), ("cut", 3.0), ("stop", 4.0), ("cut", 5.0)]
    assert rows == occurrences([parse("cut@1s,every=2s"), parse("stop@4s,for=100ms")], 6.0, 1)


@needs_mosquitto
def test_offline_on_a_broker_that_forgets_reports_every_message_as_lost(tmp_path: Path) -> None:
    url, command = mosquitto_command(tmp_path)
    report = run(
        Plan(scenario="offline", url=url, publishers=5, count=40, server_cmd=command, fault=("kill@300ms,restart=200ms",), drain=0.7,
             require=("lost==0",))
    )  # fmt: skip
    assert report["lost"] == report["expected"] == report["acked"] == 200
    assert report["delivered"] == 0
    assert report.exit == 1
    assert report["sessions_lost"] >= 5
    assert report["faults"][0]["down_s"] >= 0.2
    assert report["faults"][0]["recovered_s"] >= report["faults"][0]["down_s"]


@needs_mosquitto
def test_cut_stop_and_half_open_lose_nothing_with_persistent_sessions(tmp_path: Path) -> None:
    url, command = mosquitto_command(tmp_path)
    faults = (
        "cut@300ms,share=40%", "stop@700ms,for=300ms", "half-open@1200ms,share=30%,for=300ms", "slow-reader@1600ms,share=100%,for=300ms",
    )  # fmt: skip
    report = run(
        Plan(scenario="pairs", url=url, publishers=10, qos=1, rate=500.0, duration=2.5, server_cmd=command, fault=faults, workers=2,
             drain=2.0, require=("lost==0", "duplicate==0"))
    )  # fmt: skip
    assert report.exit == 0, (report.problems, report["requirements"])
    assert [row["kind"] for row in report["faults"]] == ["cut", "stop", "half-open", "slow-reader"]
    assert all(row["recovered_s"] is not None for row in report["faults"])
    assert report["disconnects"] == 14
    assert report["e2e.max"] > 200_000


@needs_mosquitto
def test_delay_and_throttle_go_through_a_relay(tmp_path: Path) -> None:
    url, command = mosquitto_command(tmp_path)
    report = run(
        Plan(scenario="pairs", url=url, publishers=4, qos=1, rate=200.0, duration=3.5, server_cmd=command,
             fault=("delay@500ms,for=500ms,by=50ms", "throttle@1200ms,for=300ms,rate=20k"), drain=3.0)
    )  # fmt: skip
    assert report.exit == 0, report.problems
    assert report["lost"] == 0
    assert report["e2e.p99"] > 90_000
    assert report["e2e.p50"] < 60_000


def test_a_broker_that_does_not_come_back_is_exit_1(tmp_path: Path) -> None:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    port = free_port()
    once = tmp_path / "once.sh"
    conf = mosquitto_conf(tmp_path, port)
    once.write_text(f"#!/bin/sh\n[ -e {tmp_path}/started ] && exit 1\ntouch {tmp_path}/started\nexec {MOSQUITTO} -c {conf}\n")
    once.chmod(0o755)
    report = run(
        Plan(scenario="fan-in", url=f"mqtt://127.0.0.1:{port}", publishers=3, qos=1, rate=100.0, duration=1.0, server_cmd=str(once),
             fault=("kill@300ms,restart=100ms",), recovery_timeout=1.0, drain=0.5)
    )  # fmt: skip
    assert report.exit == 1
    assert any("did not answer within" in problem for problem in report.problems)
    assert report["faults"][0]["down_s"] is None
    assert report["unsent"] + report["unacked"] > 0


@needs_mosquitto
def test_nothing_outlives_the_harness_even_when_it_is_killed(tmp_path: Path) -> None:
    url, command = mosquitto_command(tmp_path)
    words = ["pairs", url, "--publishers", "2", "--duration", "30s", "--server-cmd", command, "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "loadtest.cli", *words])
    time.sleep(1.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    assert subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True).stdout == b""


@needs_mosquitto
def test_ctrl_c_still_prints_the_summary(tmp_path: Path) -> None:
    url, command = mosquitto_command(tmp_path)
    words = [sys.executable, "-m", "loadtest.cli", "pairs", url, "--publishers", "2", "--qos", "1", "--duration", "30s"]
    process = subprocess.Popen([*words, "--server-cmd", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "delivered" in out
    assert "lost 0" in out


@pytest.mark.skipif(not LMQ.exists(), reason="lmq is not installed")
@pytest.mark.parametrize("scenario", ["fan-in", "offline"])
def test_our_broker_keeps_what_it_acknowledged_over_a_kill(scenario: str) -> None:
    fields = {"rate": 1000.0, "duration": 2.0} if scenario == "fan-in" else {"count": 100}
    report = run(
        Plan(scenario=scenario, url=f"mqtt://127.0.0.1:{free_port()}", publishers=10, qos=1, server_cmd=OURS,
             fault=("kill@700ms,restart=200ms",), require=("lost==0", "duplicate==0"), **fields)  # type: ignore[arg-type]
    )  # fmt: skip
    assert report["lost"] == 0
    assert report.exit == 0, (report.problems, report["requirements"])
    assert report["faults"][0]["recovered_s"] > 0.2
