"""The command `lmq`: finds its commands, says what is wrong in one line, and is quick."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from mqtt_proxy import cli


def lmq(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mqtt_proxy", *argv], capture_output=True, text=True, timeout=30, env={**os.environ, **environ}
    )


def test_help_lists_every_command_with_a_line_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in ("serve", "config", "pub", "sub", "passwd", "store", "load"):
        line = next(line for line in text.splitlines() if line.strip().startswith(name + " "))
        assert len(line.split()) > 2, line
        assert "not installed" not in line


def test_no_command_or_an_unknown_one_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    capsys.readouterr()
    assert cli.main(["sreve"]) == 2
    error = capsys.readouterr().err
    assert "'sreve'" in error
    assert "serve" in error
    assert error.count("\n") == 1


def test_version_says_how_it_runs() -> None:
    assert "uncompiled" in lmq("--version", LMQ_PURE="1").stdout


def test_pure_takes_the_source_of_every_hot_module() -> None:
    code = (
        "import sys, lmq_store.api.model, mqtt_proxy.packets.decoder\n"
        "print([m.__file__ for n, m in sys.modules.items() if n.startswith(('lmq_store', 'mqtt_proxy'))"
        " and not m.__file__.endswith('.py')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "LMQ_PURE": "1"}, timeout=30)
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize("argv", [["serve", "--nonsense"], ["serve", "--flush", "x"], ["serve", "--listen", "mqtt://0.0.0.0:1883"]])
def test_wrong_use_of_serve_is_exit_2_and_one_line(argv: list[str]) -> None:
    run = lmq(*argv)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1


def test_finding_a_command_is_quick() -> None:
    """The best of three whole processes: interpreter, entry points, settings."""
    best = 9.0
    for _ in range(3):
        start = time.perf_counter()
        assert lmq("config", "check").returncode == 0
        best = min(best, time.perf_counter() - start)
    assert best < 0.5
