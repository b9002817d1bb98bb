"""A plan made whole: the scenario's defaults filled in, contradictions refused, the machine's limits checked."""

from __future__ import annotations

import dataclasses
import os
import resource
from pathlib import Path

from loadtest import faults, payload, requirements
from loadtest.address import Address, parse
from loadtest.layout import Layout
from loadtest.links import tls_context
from loadtest.plan import Plan
from loadtest.scenarios import module_of
from loadtest.units import UsageError
from loadtest.workforce import KINDS

WINDOW_CLOSED = 20
WINDOW_OPEN = 1000
DURATION = 10.0
SPARE_FILES = 64
PAHO_CLIENTS = 500


def resolved(plan: Plan) -> Plan:
    """A copy without open choices. Raises UsageError, one sentence, for whatever contradicts itself."""
    module = module_of(plan.scenario)
    done = dataclasses.replace(plan)
    for name, value in module.DEFAULTS.items():
        if getattr(done, name) is None and not (name == "credit" and done.rate is not None) and not (name == "count" and done.duration):
            setattr(done, name, value)
    if plan.scenario == "pairs" and plan.subscribers is not None:
        if plan.publishers is not None and plan.publishers != plan.subscribers:
            raise UsageError("pairs: --publishers and --subscribers must be the same number")
        done.publishers = plan.subscribers
    done.qos = 0 if done.qos is None else done.qos
    done.sub_qos = done.qos if done.sub_qos is None else done.sub_qos
    done.window = done.window or (WINDOW_OPEN if done.rate is not None else WINDOW_CLOSED)
    if done.persistent is None:
        done.persistent = bool(done.fault)
    if done.persistent is False and plan.scenario == "offline":
        raise UsageError("offline needs persistent sessions: leave --clean out")
    if plan.scenario == "retained":
        done.count, done.duration = max(1, (done.topics or 1) // (done.publishers or 1)), None
    if done.count is None and done.duration is None:
        done.duration = DURATION
    if done.warmup is None:
        done.warmup = 0.0 if done.fault or done.count is not None or plan.scenario in ("offline", "retained", "connect") else 1.0
    _contradictions(plan, done)
    return done


def _contradictions(plan: Plan, done: Plan) -> None:
    if plan.scenario == "retained" and (plan.count is not None or plan.duration is not None):
        raise UsageError("retained sends one message to each of --topics: it takes no --count or --duration")
    if plan.count is not None and plan.duration is not None:
        raise UsageError("--count and --duration contradict each other: give one of them")
    if plan.credit is not None and plan.rate is not None:
        raise UsageError("--credit is a brake of the closed loop: it does not go with --rate N")
    if plan.rate is not None and plan.rate <= 0:
        raise UsageError("--rate must be above 0, or max")
    for name in ("publishers", "workers", "window", "credit", "count", "topics", "filters", "groups"):
        value = getattr(plan, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1")
    if plan.window is not None and plan.window > 65535:
        raise UsageError("--window: at most 65535 packet ids exist")
    if done.mqtt not in ("3.1", "3.1.1", "5"):
        raise UsageError("--mqtt is 3.1, 3.1.1 or 5")
    if done.qos not in (0, 1, 2) or done.sub_qos not in (0, 1, 2):
        raise UsageError("QoS is 0, 1 or 2")
    for name, needs in (("receive_max", "Receive Maximum"), ("user_property", "user properties")):
        if getattr(plan, name) and done.mqtt != "5":
            raise UsageError(f"{needs} exist in MQTT 5 only: add --mqtt 5")
    if plan.receive_max is not None and not 1 <= plan.receive_max <= 65535:
        raise UsageError("--receive-max is 1 to 65535 [MQTT-3.1.2.11.3]")
    if not 0 <= plan.keepalive <= 65535:
        raise UsageError("--keepalive is 0 to 65535 seconds")
    if plan.subscribers is not None and plan.scenario in ("publish", "connect", "churn"):
        raise UsageError(f"{plan.scenario} has no subscribers of its own: leave --subscribers out")
    if plan.will and "=" not in plan.will:
        raise UsageError("--will is TOPIC=MESSAGE")
    if plan.password is not None and plan.username is None and done.mqtt != "5":
        raise UsageError("a password without a user name exists in MQTT 5 only [MQTT-3.1.2-22]")
    if plan.client == "paho":
        _check_paho(plan, done)
    if plan.client not in ("fast", "paho"):
        raise UsageError("--client is fast or paho")
    if plan.cert and not plan.key and not plan.cert.endswith(".pem"):
        raise UsageError("--cert needs --key")
    if plan.key and not plan.cert:
        raise UsageError("--key needs --cert")
    if plan.server_cmd and plan.server_pid:
        raise UsageError("--server-cmd and --server-pid contradict each other: give one of them")
    _check_faults(plan)
    _check_payload(done)


def _check_paho(plan: Plan, done: Plan) -> None:
    try:
        import paho.mqtt  # noqa: F401
    except ImportError:
        raise UsageError("--client paho needs paho-mqtt: pip install paho-mqtt") from None
    if plan.scenario in ("request-response", "churn", "fleet") or plan.scenario.startswith("file:"):
        raise UsageError(f"--client paho does not carry out {plan.scenario}")
    clients = (done.publishers or 0) + (done.subscribers or 0)
    if clients > PAHO_CLIENTS:
        raise UsageError(f"--client paho: {clients} clients are a thread each; at most {PAHO_CLIENTS}")


def _check_faults(plan: Plan) -> None:
    for fault in (faults.parse(text) for text in plan.fault):
        if fault.kind in ("kill", "stop") and not (plan.server_cmd or plan.server_pid):
            raise UsageError(f"--fault {fault.kind} needs --server-cmd (or --server-pid)")
        if plan.scenario == "publish" and fault.kind == "slow-reader":
            raise UsageError("--fault slow-reader needs subscribers")
        if plan.client == "paho" and fault.kind in ("slow-reader", "half-open"):
            raise UsageError(f"--fault {fault.kind} needs --client fast")
    for text in plan.require:
        requirements.parse(text)


def _check_payload(plan: Plan) -> None:
    kind = KINDS.get(plan.payload, payload.LINES)
    if kind == payload.LINES:
        if plan.size is not None:
            raise UsageError("--size contradicts --payload FILE: the lines have their own sizes")
        lines_of(plan.payload)
        return
    smallest = payload.smallest_size(kind if plan.ledger else payload.BARE)
    if plan.size is not None and plan.size[0] < smallest:
        what = "JSON with the ledger" if kind == payload.JSON else "the ledger"
        raise UsageError(f"--size {plan.size[0]}: {what} needs {smallest} bytes (or --no-ledger)")
    if plan.size is not None and plan.size[1] > 256 << 20:
        raise UsageError("--size: an MQTT packet ends at 256 MiB")


def lines_of(path: str) -> list[bytes]:
    """The objects of a .jsonl file, without their opening brace. Raises UsageError with the line."""
    try:
        raw = Path(path).read_bytes()
    except OSError as failure:
        raise UsageError(f"--payload {path}: {failure.strerror}; it is zero, random, json or a file of JSON objects") from None
    lines = []
    for number, line in enumerate(raw.splitlines(), 1):
        if line.strip():
            try:
                lines.append(payload.rest_of_object(line))
            except (ValueError, UnicodeDecodeError):
                raise UsageError(f"--payload {path}: line {number} is no JSON object") from None
    if not lines:
        raise UsageError(f"--payload {path}: no lines")
    return lines


def check_machine(plan: Plan, layout: Layout, address: Address) -> None:
    """Files and ports, before anything starts. Raises UsageError that says what to change."""
    each = -(-layout.clients // plan.workers) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if each > soft:
        limit = each if hard == resource.RLIM_INFINITY else min(each, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
        if each > limit:
            raise UsageError(
                f"{layout.clients} connections need {each} open files per worker, the limit is {hard}: "
                f"raise it (ulimit -n {each}) or use --workers {-(-layout.clients // max(1, hard - SPARE_FILES))}"
            )
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return
    sources = max(1, len(plan.bind))
    if layout.clients > (high - low) * sources:
        raise UsageError(
            f"{layout.clients} connections from {sources} address(es) exceed the {high - low} ports of each: "
            f"give --bind {-(-layout.clients // (high - low))} addresses, or widen net.ipv4.ip_local_port_range"
        )
    for name in plan.bind:
        _check_bind(name, address)
    for number in plan.cpus + plan.server_cpus:
        if number not in os.sched_getaffinity(0):
            raise UsageError(f"--cpus {number}: this machine gives us {sorted(os.sched_getaffinity(0))}")


def _check_bind(name: str, address: Address) -> None:
    import socket

    family, _ = address.resolve()
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((name, 0))
        except OSError as failure:
            raise UsageError(f"--bind {name}: {failure.strerror or failure}") from None


def address_of(plan: Plan) -> Address:
    """The broker's address; the URL's user and password count where the options give none."""
    address = parse(plan.url)
    if not address.tls and (plan.ca or plan.cert or plan.insecure):
        raise UsageError("--ca, --cert, --key and --insecure need mqtts:// or wss://")
    if plan.username is None:
        plan.username = address.username
    if plan.password is None:
        plan.password = address.password
    if address.tls:
        tls_context(plan.ca, plan.cert, plan.key, plan.insecure)
    return address
