"""Wrong use of any kind is one clear line and exit 2, before any load starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.cli import main
from loadtest.requirements import parse
from loadtest.units import UsageError, duration, size_range
from tests.loadtest.conftest import free_port

CASES = [
    (["nonsense"], "unknown scenario"),
    (["publish", "--qos", "3"], "--qos"),
    (["publish", "--duration", "10"], "500ms"),
    (["publish", "--count", "5", "--duration", "1s"], "contradict"),
    (["publish", "--clean", "--persistent"], "contradict"),
    (["offline", "--clean"], "offline"),
    (["publish", "--size", "10"], "24 bytes"),
    (["publish", "--size", "40", "--payload", "json"], "61 bytes"),
    (["publish", "--size", "9-5"], "smaller"),
    (["publish", "--payload", "/nowhere.jsonl"], "No such file"),
    (["publish", "--fault", "kill@1s"], "--server-cmd"),
    (["publish", "--fault", "explode@1s"], "KIND"),
    (["publish", "--fault", "cut@1s,restart=1s"], "does not belong"),
    (["publish", "--require", "nothing==0"], "no figure"),
    (["publish", "--require", "e2e.p99<5kg"], "unit"),
    (["publish", "--require", "lost=0"], "write NAME"),
    (["publish", "--rate", "-1"], "--rate"),
    (["publish", "--rate", "100", "--credit", "5"], "closed loop"),
    (["publish", "--receive-max", "5"], "MQTT 5"),
    (["publish", "--user-property", "a=b"], "MQTT 5"),
    (["publish", "--subscribers", "2"], "no subscribers"),
    (["pairs", "--publishers", "3", "--subscribers", "4"], "same number"),
    (["pairs", "--topic", "one/topic"], "{i}"),
    (["publish", "--topic", "x/#"], "wildcards"),
    (["fan-in", "--topic", "x/+/{publisher}"], "wildcards"),
    (["publish", "--topic", "x/{foo}"], "unknown placeholder {foo}"),
    (["filters", "--topics", "10M"], "each topic needs one"),
    (["publish", "--ca", "/nowhere.pem"], "mqtts"),
    (["publish", "--workers", "0"], "--workers"),
    (["publish", "--wibble", "1"], "--wibble"),
    (["publish", "--json", "/nowhere/at/all.json"], "No such file"),
    (["publish", "--html", "/proc/x.html"], "--html"),
    (["publish", "--prometheus", "nowhere"], "HOST:PORT"),
    (["publish", "--server-pid", "99999999"], "no such process"),
    (["publish", "--server-cmd", "/no/such/broker {port}"], "no program"),
    (["publish", "--cpus", "900"], "900"),
    (["publish", "--bind", "203.0.113.9"], "--bind"),
    (["connect", "--publishers", "2000000", "--workers", "1"], "raise it"),
    (["publish", "--password", "secret"], "user name"),
    (["publish", "--client", "paho", "--publishers", "3000"], "thread"),
    (["fleet", "--client", "paho"], "paho"),
    (["file:/nowhere.toml"], "No such file"),
]


@pytest.mark.parametrize(("words", "says"), CASES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_one_line_and_exit_2(words: list[str], says: str, sink: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([words[0], sink, *words[1:]])
    captured = capsys.readouterr()
    assert code == 2
    assert says in captured.err
    assert captured.err.count("\n") == 1, captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("url", "says"),
    [("http://x:1", "mqtt|mqtts"), ("mqtt://", "mqtt|mqtts"), ("mqtt://h:x", "port"), ("mqtt://nowhere.invalid:1883", "not known"),
     ("mqtt://127.0.0.1:1/path", "path")],
)  # fmt: skip
def test_wrong_urls(url: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", url]) == 2
    assert says in capsys.readouterr().err


def test_an_absent_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", f"mqtt://127.0.0.1:{free_port()}"]) == 2
    assert "connection refused" in capsys.readouterr().err


def test_wrong_use_leaves_no_files(sink: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, report, before = tmp_path / "r.html", tmp_path / "r.json", tmp_path / "before.json"
    before.write_text("[]")
    outputs = ["--json", str(report), "--html", str(page)]
    assert main(["publish", sink, "--topic", "x/#", *outputs]) == 2
    assert main(["publish", f"mqtt://127.0.0.1:{free_port()}", *outputs]) == 2
    assert main(["publish", sink, "--json", str(report), "--html", "/nowhere/r.html"]) == 2
    assert main(["publish", sink, *outputs, "--prometheus", "nowhere"]) == 2
    assert main(["publish", f"mqtt://127.0.0.1:{free_port()}", "--json", str(before)]) == 2
    assert capsys.readouterr().err.count("\n") == 5
    assert main(["publish", f"mqtt://127.0.0.1:{free_port()}", *outputs, "--server-cmd", "sh -c 'exit 3'"]) == 2
    assert [path for path in tmp_path.iterdir() if not path.is_dir()] == [before]
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) <= 1  # of the server that did not start: kept, to be looked at
    assert before.read_text() == "[]"


def test_a_server_that_does_not_start_shows_its_last_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", f"mqtt://127.0.0.1:{free_port()}", "--server-cmd", "sh -c 'echo the reason; exit 3'"]) == 2
    error = capsys.readouterr().err
    assert "status 3" in error
    assert "the reason" in error


def test_a_taken_port_with_server_cmd(sink: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", sink, "--server-cmd", "sleep 5"]) == 2
    assert "is taken" in capsys.readouterr().err


def test_wrong_plans(tmp_path: Path, sink: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    for text, says in (
        ("nonsense", "plan"),
        ("a = 1", "[[group]]"),
        ("[[group]]\nclients = 2", "name"),
        ('[[group]]\nname = "x"\nclients = 0', "clients"),
        ('[[group]]\nname = "x"\nwheels = 4', "wheels"),
        ('[[group]]\nname = "x"\npublish = { qos = 1 }', "topic"),
        ('[[group]]\nname = "x"\npublish = { topic = "x/#" }', "wildcards"),
        ('[[group]]\nname = "x"\n[[group]]\nname = "x"', "same name"),
        (
            '[[group]]\nname = "p"\nclients = 3\npublish = { topic = "t/{i}" }\n[[group]]\nname = "s"\nsubscribe = { filter = "t/1" }',
            "two groups",
        ),
    ):
        plan.write_text(text)
        assert main([f"file:{plan}", sink, "--duration", "100ms"]) == 2, text
        assert says in capsys.readouterr().err


def test_units() -> None:
    assert duration("1m30s") == 90
    assert duration("500ms") == 0.5
    assert size_range("100-200") == (100, 200)
    assert parse("e2e.p99<5ms").limit == 5000
    assert parse("acked_per_s>=100k").limit == 100_000
    assert parse("ack.p50 <= 80").limit == 80
    with pytest.raises(UsageError):
        duration("fast")


def test_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "request-response" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert main([]) == 2
    capsys.readouterr()
    for words in (["compare", "x.json"], ["compare", "a", "b"], ["sink"], ["versus", "nobody", "--scenario", "publish"], ["versus", "ours"],
                  ["bench", "--rows", "none"]):  # fmt: skip
        assert main(words) == 2, words
        assert capsys.readouterr().err.count("\n") == 1
