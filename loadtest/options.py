"""The options of `lmq load SCENARIO URL`, in one table: name, how it is read, what it means."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from loadtest import units
from loadtest.plan import Plan
from loadtest.units import UsageError


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` is what `--explain` says when neither the plan nor the scenario settles it."""

    name: str
    read: Callable[[str], Any] | None
    value: str
    help: str
    default: str = ""
    many: bool = False


def rate(text: str) -> float | None:
    """None for `max`: the closed loop."""
    if text == "max":
        return None
    value = units.number(text)
    if value <= 0:
        raise UsageError(f"--rate {text}: a number above 0, or max")
    return value


def choice(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise UsageError(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return read


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = units.count(text)
        if not low <= value <= high:
            raise UsageError(f"{text} is not within {low} to {high}")
        return value

    return read


def numbers(text: str) -> tuple[int, ...]:
    """`0,2-3` as (0, 2, 3)."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        found += range(units.count(low), units.count(high if dash else low) + 1)
    return tuple(found)


def names(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--user-property {text!r}: write K=V")
    return key, value


OPTIONS = (
    Option("publishers", units.positive, "N", "clients that publish (connect: connections)", "by scenario"),
    Option("subscribers", units.positive, "N", "clients that subscribe", "by scenario"),
    Option("topics", units.positive, "N", "topics that {random} draws from", "by scenario"),
    Option("topic", str, "T", "topic pattern; {i} {publisher} {random} {run}", "by scenario"),
    Option("mqtt", choice("3.1", "3.1.1", "5"), "V", "protocol version: 3.1, 3.1.1 or 5", "3.1.1"),
    Option("qos", whole(0, 2), "N", "QoS of publishing", "0, by scenario"),
    Option("sub-qos", whole(0, 2), "N", "QoS of the subscriptions", "= --qos"),
    Option("retain", None, "", "publish with the retain flag", "off"),
    Option("will", str, "TOPIC=MSG", "every client leaves this will", "none"),
    Option("keepalive", whole(0, 65535), "S", "keep alive in seconds", "60"),
    Option("receive-max", whole(1, 65535), "N", "MQTT 5 Receive Maximum of our side", "65535"),
    Option("user-property", pair, "K=V", "MQTT 5 user property on every PUBLISH; repeatable", "none", many=True),
    Option("rate", rate, "N|max", "messages a second over all publishers; max: as the window allows", "max"),
    Option("window", units.positive, "N", "unacknowledged messages per publisher", "20, with a rate 1000"),
    Option("credit", units.positive, "N", "messages that the subscribers have not received yet", "none, fan-out 20"),
    Option("count", units.positive, "N", "messages per publisher", "none"),
    Option("duration", units.duration, "D", "measured time", "10s without --count"),
    Option("warmup", units.duration, "D", "unmeasured time before it", "1s, 0 with a fault or a count"),
    Option("drain", units.duration, "D", "the drain ends after so long without progress", "5s"),
    Option("hold", units.duration, "D", "connect: how long the connections are held", "2s"),
    Option("connect-rate", units.number, "N", "connections a second", "as fast as they are answered"),
    Option("connect-timeout", units.duration, "D", "wait for a CONNACK or SUBACK", "10s"),
    Option("groups", units.positive, "N", "shared: groups of workers", "1"),
    Option("filters", units.positive, "N", "filters: filters per subscriber", "1000"),
    Option("size", units.size_range, "N|MIN-MAX", "bytes of the whole payload", "256"),
    Option("payload", str, "KIND", "zero, random, json or a .jsonl file", "zero"),
    Option("clean", None, "", "clean sessions", "without a fault"),
    Option("persistent", None, "", "sessions that survive a disconnect, publishers too", "with a fault"),
    Option("session-expiry", units.duration, "D", "MQTT 5 expiry of persistent sessions", "1h"),
    Option("username", str, "U", "user name", "that of the URL"),
    Option("password", str, "P", "password; better LMQ_PASSWORD or --password-file", "that of the URL"),
    Option("password-file", str, "FILE", "file that holds the password", "none"),
    Option("ca", str, "FILE", "certificates to trust", "the system's"),
    Option("cert", str, "FILE", "our certificate", "none"),
    Option("key", str, "FILE", "its key", "none"),
    Option("insecure", None, "", "do not check the broker's certificate", "off"),
    Option("bind", names, "ADDR,…", "our source addresses, dealt in turn", "the system's choice"),
    Option("workers", whole(1, 64), "N", "processes", "1"),
    Option("cpus", numbers, "LIST", "cores for the workers, in turn", "any"),
    Option("seed", whole(0, 2**31), "N", "seed of payloads, sizes and faults", "1"),
    Option("client", choice("fast", "paho"), "C", "fast: the harness's own; paho: paho-mqtt, as a check", "fast"),
    Option("no-ledger", None, "", "payloads without the ledger: rates and nothing else", "off"),
    Option("keep", None, "", "leave sessions and retained messages on the broker", "off"),
    Option("server-cmd", str, "CMD", "start this broker; {port} {data}", "none"),
    Option("server-pid", units.positive, "PID", "measure (and kill) this running broker", "none"),
    Option("server-cpus", numbers, "LIST", "cores for --server-cmd", "any"),
    Option("fault", str, "SPEC", "KIND@T[,for=D][,every=D][,share=F][,restart=D]; repeatable", "none", many=True),
    Option("recovery-timeout", units.duration, "D", "a broker must be back within this after a fault", "60s"),
    Option("require", str, "EXPR", "condition such as 'lost==0' or 'e2e.p99<5ms'; repeatable", "none", many=True),
    Option("json", str, "FILE|-", "write the report", "none"),
    Option("html", str, "FILE", "write the report as a page with charts", "none"),
    Option("prometheus", str, "HOST:PORT", "serve metrics while it runs", "none"),
    Option("runs", whole(1, 1000), "N", "repeat; the JSON is then a list", "1"),
    Option("quiet", None, "", "no view and no summary, only what did not hold", "off"),
    Option("no-color", None, "", "no colours", "off"),
    Option("explain", None, "", "print what would be done, with every default, and stop", "off"),
)

OUTPUT = ("json", "html", "prometheus", "runs", "quiet", "no_color", "explain")


class Parser(argparse.ArgumentParser):
    """argparse with one line for an error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.replace("unrecognized arguments:", "unknown option"))


@dataclass(slots=True)
class Output:
    """Where results go."""

    json: str | None = None
    html: str | None = None
    prometheus: str | None = None
    runs: int = 1
    quiet: bool = False
    no_color: bool = False
    explain: bool = False


def parser() -> Parser:
    made = Parser(prog="lmq load", add_help=False, allow_abbrev=False)
    made.add_argument("scenario")
    made.add_argument("url")
    for option in OPTIONS:
        if option.read is None:
            made.add_argument(f"--{option.name}", action="store_true", default=None)
        else:
            made.add_argument(f"--{option.name}", action="append" if option.many else "store", default=None)
    return made


def read_arguments(arguments: list[str]) -> tuple[Plan, Output]:
    """Raises UsageError; the sentence names the option."""
    given = vars(parser().parse_args(arguments))
    values: dict[str, Any] = {"scenario": given["scenario"], "url": given["url"]}
    output = Output()
    for option in OPTIONS:
        name = option.name.replace("-", "_")
        raw = given[name]
        if raw is None:
            continue
        value = _read(option, raw)
        if name in OUTPUT:
            setattr(output, name, value)
        else:
            values[name] = value
    return _plan(values), output


def _read(option: Option, raw: Any) -> Any:
    if option.read is None:
        return True
    try:
        return tuple(option.read(text) for text in raw) if option.many else option.read(raw)
    except UsageError as failure:
        text = str(failure)
        raise UsageError(text if text.startswith("--") else f"--{option.name}: {text}") from None


def _plan(values: dict[str, Any]) -> Plan:
    if values.get("clean") and values.get("persistent"):
        raise UsageError("--clean and --persistent contradict each other: give one of them")
    if values.pop("clean", None):
        values["persistent"] = False
    values["ledger"] = not values.pop("no_ledger", False)
    path = values.pop("password_file", None)
    if path is not None:
        if "password" in values:
            raise UsageError("--password and --password-file contradict each other: give one of them")
        try:
            values["password"] = Path(path).read_text(encoding="utf-8").rstrip("\n")
        except OSError as failure:
            raise UsageError(f"--password-file {path}: {failure.strerror}") from None
    elif "password" not in values and os.environ.get("LMQ_PASSWORD"):
        values["password"] = os.environ["LMQ_PASSWORD"]
    return Plan(**values)
