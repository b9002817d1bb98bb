"""A plan: everything that a run is asked to do, with the names of the command's options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Plan:
    """What to run against which broker. None means: the scenario's or the situation's default (see `--explain`).

    Times are seconds. `require` holds expressions such as `lost==0`; `faults` specifications such as `kill@5s,restart=2s`.
    """

    scenario: str
    url: str
    publishers: int | None = None
    subscribers: int | None = None
    topics: int | None = None
    topic: str | None = None
    mqtt: str = "3.1.1"
    qos: int | None = None
    sub_qos: int | None = None
    retain: bool = False
    will: str | None = None
    keepalive: int = 60
    receive_max: int | None = None
    user_property: tuple[tuple[str, str], ...] = ()
    rate: float | None = None
    """Messages a second over all publishers; None: closed loop."""
    window: int | None = None
    credit: int | None = None
    count: int | None = None
    duration: float | None = None
    warmup: float | None = None
    drain: float = 5.0
    hold: float = 2.0
    connect_rate: float | None = None
    connect_timeout: float = 10.0
    groups: int | None = None
    filters: int | None = None
    size: tuple[int, int] | None = None
    payload: str = "zero"
    persistent: bool | None = None
    session_expiry: float = 3600.0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    bind: tuple[str, ...] = ()
    workers: int = 1
    cpus: tuple[int, ...] = ()
    seed: int = 1
    client: str = "fast"
    ledger: bool = True
    keep: bool = False
    server_cmd: str | None = None
    server_pid: int | None = None
    server_cpus: tuple[int, ...] = ()
    fault: tuple[str, ...] = ()
    recovery_timeout: float = 60.0
    require: tuple[str, ...] = ()
    plan_file: str | None = None

    def options(self) -> dict[str, Any]:
        """What the report shows of the plan: no password, nothing that repeats the scenario or the address."""
        hidden = {"password", "scenario", "url", "require"}
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in hidden}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in shown.items()}
