"""The harness catches liars: every count in the report is what the lying broker's books say."""

from __future__ import annotations

import time

import pytest

from loadtest import Plan, run
from loadtest.cli import main
from tests.loadtest.lying_broker import Lies, LyingBroker

COUNTS = ("lost", "lost_qos0", "delivered", "duplicate", "redelivered", "reordered", "corrupt", "foreign", "phantom", "rejected")
ALL = Lies(drop=0.05, repeat=0.05, repeat_dup=0.05, swap=0.05, corrupt=0.05, invent=0.03, alien=0.02, ack_only=0.03)


def check(lies: Lies, qos: int, workers: int, **fields: object) -> None:
    with LyingBroker(lies) as broker:
        options: dict[str, object] = {"scenario": "fan-in", "publishers": 6, "subscribers": 4, "count": 120}
        options |= {"size": (64, 300), "payload": "random"}
        options.update(fields)
        plan = Plan(url=broker.url, qos=qos, workers=workers, drain=0.5, **options)  # type: ignore[arg-type]
        report = run(plan)
    books = broker.books
    found = {name: report[name] for name in COUNTS}
    assert found == {name: books[name] for name in COUNTS}
    assert report["sent"] == 6 * 120
    if qos:
        assert report["acked"] == books["acked"]
        assert report["expected"] == books["acked"] * (4 if plan.scenario == "fan-in" else 1)
        assert report["unacked"] == 0


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_count_is_exact(qos: int, workers: int) -> None:
    check(ALL, qos, workers)


@pytest.mark.parametrize("lie", ["drop", "repeat", "repeat_dup", "swap", "corrupt", "invent", "alien", "ack_only"])
def test_each_lie_alone(lie: str) -> None:
    check(Lies(**{lie: 0.2}), 1, 1, scenario="pairs", subscribers=None)


def test_refused_messages_are_neither_acknowledged_nor_owed() -> None:
    check(Lies(refuse=0.2, drop=0.1), 1, 1, mqtt="5")
    check(Lies(refuse=0.2, drop=0.1), 2, 3, mqtt="5")


@pytest.mark.parametrize("payload", ["zero", "json"])
def test_other_payloads(payload: str) -> None:
    check(Lies(drop=0.1, corrupt=0.2, repeat=0.1), 1, 1, payload=payload, size=(80, 80))


def test_delay_shows_in_the_latency() -> None:
    with LyingBroker(Lies(delay=0.1)) as broker:
        report = run(Plan(scenario="pairs", url=broker.url, publishers=3, qos=1, rate=200.0, duration=1.0, warmup=0.0, drain=1.0))
    assert report["lost"] == 0
    assert report["e2e.p50"] >= 100_000
    assert report["ack.p50"] < 60_000


@pytest.mark.parametrize(("lie", "name"), [("drop", "lost"), ("repeat", "duplicate"), ("swap", "reordered"), ("corrupt", "corrupt")])
def test_a_requirement_fails_with_exit_1(lie: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with LyingBroker(Lies(**{lie: 0.2})) as broker:
        code = main(["pairs", broker.url, "--publishers", "4", "--qos", "1", "--count", "50", "--drain", "500ms", "--quiet",
                     "--require", f"{name}==0"])  # fmt: skip
    assert code == 1
    assert f"{name}==0" in capsys.readouterr().err


@pytest.mark.parametrize("behaviour", ["mute", "closing", "garbage"])
def test_a_broken_broker_ends_in_a_clear_report(behaviour: str) -> None:
    with LyingBroker(Lies(behaviour=behaviour)) as broker:
        report = run(Plan(scenario="pairs", url=broker.url, publishers=5, qos=1, count=60, drain=0.7, connect_timeout=2.0))
    assert report["sent"] <= 300
    assert report["acked"] > 0
    if behaviour == "mute":
        assert report["unacked"] > 0
        assert report.exit == 1
    if behaviour == "garbage":
        assert report["protocol_errors"] > 0
    if behaviour == "closing":
        assert report["disconnects"] > 0


@pytest.mark.parametrize("behaviour", ["closing-always", "closing-early"])
@pytest.mark.parametrize("rate", [None, 100.0])
def test_a_broker_that_closes_every_connection_does_not_keep_a_run_alive(behaviour: str, rate: float | None) -> None:
    began = time.monotonic()
    with LyingBroker(Lies(behaviour=behaviour)) as broker:
        report = run(Plan(scenario="pairs", url=broker.url, publishers=5, qos=1, rate=rate, duration=1.0, warmup=0.0, drain=0.7,
                          connect_timeout=1.0))  # fmt: skip
    assert time.monotonic() - began < 15
    assert report.exit == 1
    assert report["disconnects"] > 5
    assert any("connected" in problem for problem in report.problems), report.problems


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [("silent", "does not answer"), ("refuse", "closes the connection"), ("garbage-connack", "not MQTT"), ("unwelcome", "not authorized")],
)
def test_a_broker_that_lets_nobody_in_is_exit_2(behaviour: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with LyingBroker(Lies(behaviour=behaviour)) as broker:
        code = main(["publish", broker.url, "--connect-timeout", "500ms", "--quiet"])
    error = capsys.readouterr().err
    assert code == 2
    assert says in error or "reset" in error
    assert error.count("\n") == 1
