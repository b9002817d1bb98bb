"""For all tests: says how the hot modules run, refuses stale ones, and under CI=true takes no skip for an answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from lmq_store.source_first import compiled

ROOT = Path(__file__).parents[1]


def stale_modules() -> list[str]:
    """Compiled modules that are older than the source or the types they were built from."""
    stale = []
    for package in ("lmq_store", "mqtt_proxy", "notify", "loadtest"):
        for built in (ROOT / package).rglob("*.so"):
            source = built.parent / (built.name.partition(".")[0] + ".py")
            if any(path.exists() and path.stat().st_mtime > built.stat().st_mtime for path in (source, source.with_suffix(".pxd"))):
                stale.append(str(source.relative_to(ROOT)))
    return stale


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs the suite in the background has it ignore Ctrl-C, and so would every program that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"hot modules: {'compiled' if compiled() else 'uncompiled'}")
    if compiled() and (stale := stale_modules()):
        print(f"STALE compiled modules, `make build` renews them: {', '.join(stale)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A skipped test fails where CI=true: everything that tests need has to be there."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped under CI=true: {report.longrepr}"
    return report
