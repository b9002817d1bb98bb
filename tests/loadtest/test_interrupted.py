"""A run that is stopped from outside, or loses a worker: it cleans up, says what it has, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from loadtest import Plan
from loadtest.conductor import Conductor
from loadtest.summary import lines


def stopped(words: list[str], after: float, number: int) -> tuple[int, str]:
    """Exit status and output of a run whose whole process group gets the signal."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    time.sleep(after)
    os.killpg(process.pid, number)
    try:
        out, _ = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out


FAN_IN = ["--publishers", "3", "--subscribers", "1", "--qos", "1", "--rate", "200"]


def test_sigterm_to_the_whole_group(mosquitto: str) -> None:
    code, out = stopped(["fan-in", mosquitto, *FAN_IN, "--duration", "10s", "--warmup", "0s"], 2.0, signal.SIGTERM)
    assert code == 130, out
    assert "lost 0" in out
    assert "Traceback" not in out
    assert "✗" not in out


def test_a_worker_that_dies_ends_the_run_at_once(mosquitto: str) -> None:
    killed: list[float] = []

    def watch(conductor: Conductor) -> None:
        if conductor.phase == "measure" and not killed:
            killed.append(time.monotonic())
            conductor.processes[0].kill()

    report = Conductor(Plan(scenario="fan-in", url=mosquitto, publishers=3, qos=1, rate=200.0, duration=20.0, workers=2), watch).run()
    assert time.monotonic() - killed[0] < 10
    assert report.exit == 1
    assert "a worker process died" in report.problems
    report.data["harness"].update(rss_mb=None, cpu_pct=None)
    assert "harness — % CPU, — MB" in "\n".join(lines(report))


def test_ctrl_c_in_the_warm_up(mosquitto: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    words = ["publish", mosquitto, "--publishers", "2", "--qos", "0", "--rate", "50", "--duration", "10s", "--warmup", "20s"]
    code, out = stopped([*words, "--json", str(path)], 2.0, signal.SIGINT)
    assert code == 130, out
    assert "(measured —)" in out
    data = json.loads(path.read_text())
    assert data["exit"] == 130
    assert data["duration_s"] is data["sent_per_s"] is None
    assert data["sent"] > 0
