"""The brokers that `versus` knows: how each is started on a port with fresh data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtest.units import UsageError

MOSQUITTO = (
    "listener {port} 127.0.0.1\nallow_anonymous true\nmax_connections -1\nmax_inflight_messages 0\nmax_queued_messages 0\n"
    "log_type error\n"
)
AMQTT = (
    "listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{port}\nplugins:\n"
    "  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
)
AEDES = (
    "const net = require('net');const made = require('aedes');"
    "const start = made.Aedes && made.Aedes.createBroker ? made.Aedes.createBroker() : Promise.resolve(made());"
    "start.then(broker => net.createServer(broker.handle).listen({port}, '127.0.0.1'));"
)
RABBITMQ = "listeners.tcp.default = {amqp}\nmqtt.listeners.tcp.default = {port}\nmqtt.allow_anonymous = true\nmqtt.exchange = amq.topic\n"


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker that can be started; `prepare` writes what it needs into a folder and returns the command."""

    name: str
    prepare: Callable[[Path, int], str]
    version: Callable[[], str]


def _program(*names: str) -> str | None:
    beside = Path(sys.executable).parent
    for name in names:
        for found in (shutil.which(name), str(beside / name), f"/usr/sbin/{name}"):
            if found and os.access(found, os.X_OK):
                return found
    return None


def _needs(program: str | None, name: str, how: str) -> str:
    if program is None:
        raise UsageError(f"versus: {name} is not installed ({how})")
    return program


def _ours(folder: Path, port: int) -> str:
    return f"{_needs(_program('lmq'), 'lmq', 'pip install lmq-proxy')} serve --listen mqtt://127.0.0.1:{port} --data {folder / 'data'}"


def _mosquitto(persistence: str) -> Callable[[Path, int], str]:
    def prepare(folder: Path, port: int) -> str:
        conf = folder / "mosquitto.conf"
        user = f"user {os.environ.get('USER') or 'root'}\n" if os.geteuid() == 0 else ""
        conf.write_text(MOSQUITTO.format(port=port) + user + persistence.format(data=folder))
        return f"{_needs(_program('mosquitto'), 'mosquitto', 'apt install mosquitto')} -c {conf}"

    return prepare


def _amqtt(folder: Path, port: int) -> str:
    conf = folder / "amqtt.yaml"
    conf.write_text(AMQTT.format(port=port))
    return f"{_needs(_program('amqtt'), 'amqtt', 'pip install amqtt')} -c {conf}"


def _aedes(folder: Path, port: int) -> str:
    node = _needs(_program("node"), "node", "apt install nodejs")
    script = folder / "aedes.js"
    script.write_text(AEDES.replace("{port}", str(port)))
    for root in (Path.cwd() / ".tools", Path.cwd()):
        if (root / "node_modules" / "aedes").is_dir():
            return f"env NODE_PATH={root / 'node_modules'} {node} {script}"
    raise UsageError("versus: aedes is not installed (npm install --prefix .tools aedes)")


def _rabbitmq(folder: Path, port: int) -> str:
    # Debian's /usr/sbin/rabbitmq-server changes the user; the one it calls does not. The name server (epmd) is one of our own, in
    # the foreground: a daemon would outlive the run.
    server = _needs(_program("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"), "RabbitMQ", "apt install rabbitmq-server")
    (folder / "rabbitmq.conf").write_text(RABBITMQ.format(port=port, amqp=port + 1))
    (folder / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
    given = {
        "HOME": folder, "ERL_CRASH_DUMP": folder / "dump", "ERL_EPMD_PORT": port + 3, "RABBITMQ_NODENAME": f"load{port}@localhost",
        "RABBITMQ_CONFIG_FILE": folder / "rabbitmq", "RABBITMQ_MNESIA_BASE": folder, "RABBITMQ_LOG_BASE": folder,
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "enabled_plugins", "RABBITMQ_DIST_PORT": port + 2,
    }  # fmt: skip
    words = " ".join(f"{name}={value}" for name, value in given.items())
    return f"env {words} sh -c '(ulimit -n 1024; exec epmd) & sleep 1; exec {server}'"


def _rabbitmq_version() -> str:
    """By the folder it is installed in: `rabbitmqctl version` would leave a name server running."""
    return next((folder.name.replace("_server-", " ") for folder in Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")), "rabbitmq")


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    return (done.stdout + done.stderr).strip().splitlines()[0] if done.stdout or done.stderr else "?"


def _version_of(package: str) -> Callable[[], str]:
    def version() -> str:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        try:
            return f"{package} {installed(package)}"
        except PackageNotFoundError:
            return package

    return version


PEERS = {
    peer.name: peer
    for peer in (
        Peer("ours", _ours, _version_of("lmq-proxy")),
        Peer("mosquitto", _mosquitto("persistence false\n"), lambda: _first_line(_program("mosquitto") or "mosquitto", "-h")),
        Peer(
            "mosquitto-saved",
            _mosquitto("persistence true\npersistence_location {data}/\nautosave_interval 1\n"),
            lambda: _first_line(_program("mosquitto") or "mosquitto", "-h"),
        ),
        Peer("amqtt", _amqtt, _version_of("amqtt")),
        Peer("aedes", _aedes, lambda: "aedes"),
        Peer("rabbitmq", _rabbitmq, _rabbitmq_version),
    )
}


def peer_of(text: str) -> Peer:
    """A name, or NAME=COMMAND with {port} and {data}. Raises UsageError."""
    if text in PEERS:
        return PEERS[text]
    name, equals, command = text.partition("=")
    if not equals or "{port}" not in command:
        raise UsageError(f"versus: {text!r} is none of {', '.join(PEERS)}, nor NAME=COMMAND with {{port}} in it")
    return Peer(name, lambda folder, port: command.replace("{port}", str(port)).replace("{data}", str(folder / "data")), lambda: name)
