"""Drives any MQTT broker from outside, accounts for every message, breaks things while it runs, and ends in a verdict.

    from loadtest import Plan, run
    report = run(Plan(scenario="fan-in", url="mqtt://127.0.0.1:1883", qos=1, count=1000))
    assert report.exit == 0 and report["lost"] == 0

Imports nothing until it is used: `lmq --help` passes through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lmq_store  # noqa: F401 - with LMQ_PURE=1 it makes Python take the sources of the compiled modules

if TYPE_CHECKING:
    from loadtest.plan import Plan
    from loadtest.report import Report

__all__ = ["Plan", "Report", "UsageError", "run"]


def run(plan: Plan) -> Report:
    """Carries out the plan and reports. Raises UsageError for what the command ends with exit status 2."""
    from loadtest.conductor import Conductor

    return Conductor(plan).run()


def __getattr__(name: str) -> object:
    if name == "Plan":
        from loadtest.plan import Plan

        return Plan
    if name == "Report":
        from loadtest.report import Report

        return Report
    if name == "UsageError":
        from loadtest.units import UsageError

        return UsageError
    raise AttributeError(f"module 'loadtest' has no attribute {name!r}")
