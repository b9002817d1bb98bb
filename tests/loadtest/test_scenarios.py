"""Every scenario on a real broker: counts that must come out, and what is left behind: nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest import Plan, frames, run
from loadtest.cli import main

TWO = (("a", "b"), ("a", "c"))
SMALL = [
    ("publish", {"publishers": 5, "count": 50}, 0),
    ("fan-in", {"publishers": 5, "subscribers": 2, "count": 50}, 500),
    ("fan-out", {"publishers": 1, "subscribers": 20, "count": 30}, 600),
    ("pairs", {"publishers": 6, "count": 40}, 240),
    ("shared", {"publishers": 5, "subscribers": 6, "groups": 2, "count": 40}, 400),
    ("offline", {"publishers": 5, "count": 40}, 200),
    ("filters", {"publishers": 5, "subscribers": 4, "filters": 120, "count": 40}, 200),
    ("retained", {"publishers": 4, "subscribers": 2, "topics": 40}, 80),
    ("request-response", {"publishers": 5, "count": 40}, 200),
]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("scenario", "fields", "delivered"), SMALL, ids=[row[0] for row in SMALL])
def test_nothing_is_lost_on_an_honest_broker(
    scenario: str, fields: dict[str, int], delivered: int, qos: int, workers: int, mosquitto: str
) -> None:
    version = "5" if qos == 2 else "3.1.1"
    options: dict[str, object] = {"workers": workers, "drain": 3.0, "require": ("lost==0",), **fields}
    report = run(Plan(scenario=scenario, url=mosquitto, qos=qos, mqtt=version, **options))  # type: ignore[arg-type]
    assert report.exit == 0, report.problems
    assert report["delivered"] == report["expected"] == delivered
    assert report["sent"] == report["acked"] > 0
    for name in ("lost", "duplicate", "redelivered", "reordered", "corrupt", "foreign", "phantom", "misrouted", "unacked", "unsent",
                 "protocol_errors", "connect_failed", "delivered_unacked"):  # fmt: skip
        assert report[name] == 0, name


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
def test_qos_0_and_every_version(version: str, mosquitto: str) -> None:
    report = run(Plan(scenario="fan-in", url=mosquitto, publishers=4, count=50, mqtt=version, credit=50))
    assert report.exit == 0
    assert report["delivered"] == report["expected"] == 200
    assert report["acked_per_s"] is None
    assert report["ack"] is None
    assert report["processed_per_s"] > 0


def test_open_loop_keeps_the_rate(mosquitto: str) -> None:
    report = run(Plan(scenario="pairs", url=mosquitto, publishers=10, qos=1, rate=500.0, duration=2.0, warmup=0.5))
    assert report.exit == 0
    assert report["sent"] == 1250
    assert report["sent_per_s"] == pytest.approx(500, rel=0.03)
    assert report["e2e.n"] == report["ack.n"] == report["send_late.n"] == 1000
    assert report["unsent"] == 0
    assert sum(row["sent"] for row in report["timeline"]) <= 1250
    assert report["timeline"][0]["sent"] == pytest.approx(500, rel=0.1)


def test_mqtt_5_with_properties_and_a_small_receive_maximum(mosquitto: str) -> None:
    report = run(
        Plan(scenario="pairs", url=mosquitto, publishers=5, qos=2, mqtt="5", count=100, receive_max=3, user_property=TWO)
    )
    assert report.exit == 0
    assert report["delivered"] == 500


def test_churn_and_fleet(mosquitto: str) -> None:
    report = run(Plan(scenario="churn", url=mosquitto, publishers=10, duration=1.0, warmup=0.0))
    assert report.exit == 0, report.problems
    assert report["lost"] == 0
    assert report["connects_per_s"] > 20
    assert report["disconnects"] == 0
    report = run(Plan(scenario="fleet", url=mosquitto, rate=400.0, duration=3.0, warmup=0.0))
    assert report.exit == 0, report.problems
    assert report["lost"] == report["duplicate"] == 0
    assert report["disconnects"] >= 20


def test_a_plan_of_ones_own(tmp_path: Path, mosquitto: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        '[[group]]\nname = "s"\nclients = 2\nsubscribe = { filter = "x/{run}/+/up", qos = 1 }\n'
        '[[group]]\nname = "p"\nclients = 3\npublish = { topic = "x/{run}/{i}/up", qos = 1, count = 20, payload = "json" }\n'
    )
    report = run(Plan(scenario=f"file:{path}", url=mosquitto, count=20))
    assert report.exit == 0
    assert report["delivered"] == 120


def test_lines_of_a_file_stay_json(tmp_path: Path, mosquitto: str) -> None:
    path = tmp_path / "readings.jsonl"
    path.write_text('{"t": 1.5}\n{"device": "ä", "list": [1, 2]}\n')
    report = run(Plan(scenario="fan-in", url=mosquitto, publishers=3, qos=1, count=30, payload=str(path)))
    assert report.exit == 0
    assert report["delivered"] == 90


def test_no_ledger_measures_rates_only(mosquitto: str) -> None:
    report = run(Plan(scenario="fan-in", url=mosquitto, publishers=3, qos=1, count=30, size=(4, 4), ledger=False))
    assert report["lost"] is None
    assert report["delivered"] == 90
    assert report["e2e"] is None


def test_connect_counts_bytes_per_connection(sink: str) -> None:
    report = run(Plan(scenario="connect", url=sink, publishers=2000, hold=0.3, workers=2))
    assert report.exit == 0
    assert report["connect.n"] == 2000
    assert 0 < report["harness.rss_per_connection"] <= 6000
    assert report["connects_per_s"] > 100


def retained_left(url: str) -> list[str]:
    port = url.rpartition(":")[2]
    words = ["mosquitto_sub", "-p", port, "-t", "load/#", "-W", "1", "-F", "%t", "--retained-only"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.split()


def test_it_cleans_up_after_itself(mosquitto: str) -> None:
    plan = Plan(scenario="retained", url=mosquitto, publishers=2, topics=20)
    run(plan)
    assert retained_left(mosquitto) == []
    run(dataclasses.replace(plan, keep=True))
    assert len(retained_left(mosquitto)) == 20


BOOKS = ("sent", "acked", "expected", "delivered", "lost", "duplicate", "reordered", "unacked")
RUN_APART = """
import json, sys
from loadtest import Plan, frames, run
if __name__ == "__main__":
    report = run(Plan(**json.loads(sys.argv[1])))
    print(json.dumps({"exit": report.exit} | {name: report[name] for name in sys.argv[2:]}))
"""


def run_with_paho(directory: Path, fields: dict[str, object]) -> dict[str, int]:
    """In a process of its own: paho waits with select(), which knows no descriptor above 1,023, and a long test run has those."""
    script = directory / "run_apart.py"
    script.write_text(RUN_APART)
    words = [sys.executable, str(script), json.dumps({**fields, "client": "paho"}), *BOOKS]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    books: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return books


def test_paho_keeps_the_same_books(mosquitto: str, tmp_path: Path) -> None:
    for scenario, more in (("fan-in", {"publishers": 4, "count": 40}), ("offline", {"publishers": 3, "count": 20})):
        fields: dict[str, object] = {"scenario": scenario, "url": mosquitto, "qos": 1, **more}
        fast = run(Plan(**fields))  # type: ignore[arg-type]
        paho = run_with_paho(tmp_path, fields)
        for name in BOOKS:
            assert fast[name] == paho[name], name
        assert paho["exit"] == 0


def test_repeated_runs_and_json_on_stdout(mosquitto: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", mosquitto, "--publishers", "2", "--qos", "1", "--count", "10", "--runs", "2", "--json", "-", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["delivered"] for one in found] == [20, 20]


def session_is_there(url: str, client_id: str) -> bool:
    host, _, port = url.removeprefix("mqtt://").rpartition(":")
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(frames.connect(frames.ConnectOptions(version=4, clean=False), client_id.encode(), False))
        answer = sock.recv(4)
        sock.sendall(frames.DISCONNECT)
    assert answer[:2] == b"\x20\x02"
    return answer[2] == 1


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("client", ["fast", "paho"])
def test_no_session_of_a_run_stays(version: str, client: str, mosquitto: str) -> None:
    plan = Plan(scenario="pairs", url=mosquitto, publishers=4, qos=1, count=20, persistent=True, mqtt=version, client=client)
    run_id = run(plan)["run"]
    names = ["probe", *(f"{group}-{place}" for group in (0, 1) for place in range(4))]
    assert not any(session_is_there(mosquitto, f"l{run_id}-{name}") for name in names)
    run_id = run(dataclasses.replace(plan, keep=True))["run"]
    assert session_is_there(mosquitto, f"l{run_id}-0-0")


@pytest.mark.parametrize("workers", [1, 2])
def test_no_session_of_flapping_devices_stays(workers: int, mosquitto: str) -> None:
    report = run(Plan(scenario="fleet", url=mosquitto, rate=300.0, duration=2.5, warmup=0.0, workers=workers))
    kept = [
        f"{group}-{place}" for group, clients in ((0, 1), (2, 200), (3, 50), (4, 200)) for place in range(clients)
        if session_is_there(mosquitto, f"l{report['run']}-{group}-{place}")
    ]  # fmt: skip
    assert kept == []


def test_no_session_of_a_plan_of_ones_own_stays(tmp_path: Path, mosquitto: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        '[[group]]\nname = "s"\nclients = 3\npersistent = true\nsubscribe = { filter = "x/{run}/+/up", qos = 1 }\n'
        'flap = { every = "200ms", share = 0.5 }\n'
        '[[group]]\nname = "p"\nclients = 3\npersistent = true\npublish = { topic = "x/{run}/{i}/up", qos = 1, rate = 100 }\n'
        'flap = { every = "100ms", share = 1 }\n'
        '[[group]]\nname = "away"\nclients = 3\npersistent = true\noffline = true\nsubscribe = { filter = "x/{run}/+/up", qos = 1 }\n'
    )
    report = run(Plan(scenario=f"file:{path}", url=mosquitto, duration=1.0, warmup=0.0, mqtt="5"))
    names = [f"{group}-{place}" for group in range(3) for place in range(3)]
    assert [name for name in names if session_is_there(mosquitto, f"l{report['run']}-{name}")] == []
