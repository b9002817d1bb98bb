"""What a run leaves for people and programs: the JSON and its schema, the page, the metrics, the documents; and no password."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from loadtest import Plan, run
from loadtest.cli import main
from loadtest.compare import table
from loadtest.conductor import Conductor
from loadtest.html_report import page
from loadtest.live_view import _Figures
from loadtest.options import OPTIONS
from loadtest.report_keys import COUNTS, FIGURES, GROUPS, RATES
from loadtest.requirements import known_names
from loadtest.scenarios import NAMES, module_of
from tests.loadtest.conftest import free_port

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/load.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def check(value: Any, schema: dict[str, Any], where: str = "report") -> None:
    """The part of JSON Schema that ours uses."""
    if "oneOf" in schema:
        fits = []
        for option in schema["oneOf"]:
            try:
                check(value, option, where)
                fits.append(option)
            except AssertionError:
                continue
        assert len(fits) == 1, where
        return
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(value, TYPES[name]) for name in names), (where, value)
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), (where, set(schema["required"]) - set(value))
        known = schema.get("properties", {})
        for name, inner in value.items():
            if name in known:
                check(inner, known[name], f"{where}.{name}")
            else:
                assert schema.get("additionalProperties", True) is not False, f"{where}.{name}"
    if isinstance(value, list):
        for place, inner in enumerate(value):
            check(inner, schema.get("items", {}), f"{where}[{place}]")


def test_reports_follow_the_schema(mosquitto: str, sink: str) -> None:
    for plan in (
        Plan(scenario="pairs", url=mosquitto, publishers=3, qos=1, rate=200.0, duration=1.2, warmup=0.0, require=("lost==0", "ack.n>1")),
        Plan(scenario="publish", url=sink, publishers=3, count=10),
        Plan(scenario="connect", url=sink, publishers=5, hold=0.1),
        Plan(scenario="offline", url=mosquitto, publishers=2, count=5),
    ):
        check(json.loads(run(plan).as_json()), SCHEMA)


def test_every_key_and_option_is_documented() -> None:
    text = (ROOT / "docs/load.md").read_text()
    for option in OPTIONS:
        assert f"`--{option.name}" in text, option.name
    for name in (*COUNTS, *RATES, *FIGURES):
        assert f"`{name}`" in text, name
        assert name in SCHEMA["properties"], name
    for group, keys in GROUPS.items():
        assert set(keys) <= set(SCHEMA["properties"][group]["properties"])
    for name in NAMES:
        assert f"| `{name}` | {module_of(name).HELP} |" in text, name
    assert "e2e.p99" in known_names()


@pytest.fixture(scope="module")
def data(mosquitto: str) -> dict[str, Any]:
    cut = ("cut@500ms",)
    return run(Plan(scenario="fan-in", url=mosquitto, publishers=3, qos=1, rate=300.0, duration=2.2, warmup=0.0, fault=cut)).data


def test_the_page_shows_its_charts_in_a_browser(data: dict[str, Any], tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    path = tmp_path / "report.html"
    measure = (
        "<script>addEventListener('load',()=>{document.title=JSON.stringify([...document.querySelectorAll('svg.chart')].map(s=>"
        "[s.id,Math.round(s.getBoundingClientRect().height),s.querySelectorAll('polyline').length,"
        "Math.min(...[...s.querySelectorAll('polyline')].map(p=>Math.round(p.getBBox().width)))]))})</script>"
    )
    path.write_text(page(data).replace("</html>", measure + "</html>"), encoding="utf-8")
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{path}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert found, done.stderr[-500:]
    charts = json.loads(found[1])
    assert [chart[0] for chart in charts] == ["rates", "latency", "percentiles"]
    for _, height, lines, width in charts:
        assert height > 100
        assert lines >= 2
        assert width > 100


def test_the_page_works_offline_and_is_one_file(data: dict[str, Any]) -> None:
    text = page(data)
    assert "<script" not in text
    assert not re.search(r"(src|href)=", text)
    assert "class=fault" in text
    assert page({**data, "url": "mqtt://<b>:1"}).count("<b>:1") == 0


def test_metrics_while_it_runs(mosquitto: str) -> None:
    port = free_port()
    words = ["pairs", mosquitto, "--publishers", "2", "--qos", "1", "--rate", "100", "--duration", "2s", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "loadtest.cli", *words, "--prometheus", f"127.0.0.1:{port}"])
    text = ""
    deadline = time.monotonic() + 10
    while "lmq_load_acked_total" not in text or float(re.findall(r"^lmq_load_acked_total (\S+)", text, re.MULTILINE)[0]) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1).read().decode()
        except OSError:
            continue
    assert 'lmq_load_phase{phase="' in text
    assert process.wait(20) == 0


def test_no_password_anywhere(mosquitto: str, tmp_path: Path) -> None:
    url = mosquitto.replace("mqtt://", "mqtt://someone:hunter2@")
    report = tmp_path / "r.json"
    words = ["pairs", url, "--publishers", "2", "--qos", "1", "--duration", "1500ms", "--html", str(tmp_path / "r.html")]
    words += ["--json", str(report)]
    process = subprocess.Popen([sys.executable, "-m", "loadtest.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(1.2)
    titles = ""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (entry == str(process.pid) or f"PPid:\t{process.pid}\n" in status_of(entry)):
            titles += Path(f"/proc/{entry}/cmdline").read_text()
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "someone" in titles
    for text in (titles, out, report.read_text(), (tmp_path / "r.html").read_text()):
        assert "hunter2" not in text


def status_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def test_compare(tmp_path: Path, sink: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(Plan(scenario="publish", url=sink, publishers=2, qos=1, count=100)).data
    first["harness"]["saturated"] = False  # of such figures no ratio would be formed
    worse = json.loads(json.dumps(first))
    worse["acked_per_s"] = first["acked_per_s"] * 0.8
    for name, content in (("a", first), ("b", worse), ("runs", [first, worse])):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(["compare", *paths]) == 0
    assert "0.80×" in capsys.readouterr().out
    assert main(["compare", *paths, "--max-regression", "5%"]) == 1
    assert "acked_per_s is worse by 20.0%" in capsys.readouterr().out
    assert main(["compare", *paths, "--max-regression", "25%"]) == 0
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "runs.json")]) == 0
    assert "±" in capsys.readouterr().out


def test_no_ratio_of_a_harness_bound_run() -> None:
    def report(acked: float, p50: float, saturated: bool) -> dict[str, Any]:
        return {"acked_per_s": acked, "ack": {"p50": p50}, "server": {"cpu_us_per_message": p50}, "lost": int(acked),
                "harness": {"saturated": saturated}}  # fmt: skip

    for first, second in ((False, True), (True, False), (True, True)):
        shown, worse = table(["a", "b"], [[report(1000, 5, first)], [report(500, 50, second)]], 0.1)
        text = "\n".join(shown)
        assert "×" not in text.replace("0.50×", "", 1), text  # that of the lost messages
        assert text.count("≥ ") == first + second
        assert worse == []
    assert table(["a", "b"], [[report(100, 5, True)], [report(500, 5, True)]], 0.1)[1] == ["b: lost is worse by 400.0% (100.0 → 500.0)"]
    assert len(table(["a", "b"], [[report(1000, 5, False)], [report(500, 50, False)]], 0.1)[1]) == 3


def test_rates_of_the_view_are_never_negative(sink: str) -> None:
    conductor = Conductor(Plan(scenario="publish", url=sink, publishers=1))
    figures = _Figures(conductor)
    conductor.status = [{"sent": 500, "acked": 400, "delivered": 0}]
    figures.look()
    assert figures.last is not None
    figures.last = (figures.last[0] - 2.0, *figures.last[1:])
    conductor.status = [{}]
    figures.look()
    assert figures.rates == (0.0, 0.0, 0.0)


def test_explain_connects_to_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fan-in", "mqtt://192.0.2.1:1", "--explain", "--qos", "1"]) == 0
    out = capsys.readouterr().out
    for option in OPTIONS:
        if option.name not in ("clean", "password", "password-file", "no-ledger", "json", "html", "prometheus", "runs", "quiet", "no-color",
                               "explain", "require"):  # fmt: skip
            assert f"--{option.name}" in out, option.name
    assert "load/<run>/+/data" in out


def test_the_terminal_view_draws_and_gives_way_to_the_summary(mosquitto: str, tmp_path: Path) -> None:
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed")
    name = f"lmq{os.getpid()}"
    command = f"{sys.executable} -m loadtest.cli pairs {mosquitto} --publishers 4 --qos 1 --rate 300 --duration 6s --warmup 0s; sleep 30"
    subprocess.run([tmux, "-L", name, "new-session", "-d", "-x", "110", "-y", "30", "-c", str(ROOT), command], check=True)
    try:
        screen = ""
        deadline = time.monotonic() + 15
        while "connected 8" not in screen or not re.search(r"per second  sent +[1-9]", screen) or "█" not in screen:
            assert time.monotonic() < deadline, screen
            time.sleep(0.2)
            screen = subprocess.run([tmux, "-L", name, "capture-pane", "-p"], capture_output=True, text=True).stdout
        assert screen.count("per second") == 1
        assert "harness" in screen
        while "account" not in screen:
            assert time.monotonic() < deadline + 10, screen
            time.sleep(0.3)
            screen = subprocess.run([tmux, "-L", name, "capture-pane", "-p"], capture_output=True, text=True).stdout
        assert "lost 0" in screen
        assert "in flight" not in screen
    finally:
        subprocess.run([tmux, "-L", name, "kill-server"])
