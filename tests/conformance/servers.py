"""Starts the server under test, or mosquitto as a second opinion, each with the few settings that the tests need."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .client import Address

START_S = 10.0


@dataclass(frozen=True)
class ServerSettings:
    """What a test may ask of a server; the defaults are the server's own, open to all."""

    users: dict[str, str] = field(default_factory=dict)
    acl: str = ""
    max_keepalive_s: int = 0
    disk_full: bool = False


@dataclass
class Server:
    kind: str
    process: subprocess.Popen[str]
    mqtt: Address
    websocket: Address

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def start(kind: str, directory: Path, settings: ServerSettings) -> Server:
    """Starts `lmq` or `mosquitto` on free ports with its data in the directory, and returns when it accepts connections."""
    directory.mkdir(parents=True, exist_ok=True)
    return _start_mosquitto(directory, settings) if kind == "mosquitto" else _start_lmq(directory, settings)


def _start_lmq(directory: Path, settings: ServerSettings) -> Server:
    command = [str(Path(sys.executable).parent / "lmq"), "serve", "--data", str(directory / "data")]
    command += ["--listen", "mqtt://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"]
    command += ["--users", str(_password_file(directory, settings))] if settings.users else ["--allow-anonymous"]
    if settings.acl:
        (directory / "acl").write_text(settings.acl)
        command += ["--acl", str(directory / "acl")]
    if settings.max_keepalive_s:
        command += ["--max-keepalive", str(settings.max_keepalive_s)]
    if settings.disk_full:
        command += ["--min-free-bytes", str(2**49)]
    log = (directory / "log").open("w")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | {"LMQ_LOG_LEVEL": "info"})
    log.close()
    assert process.stdout is not None
    addresses = []
    for _ in range(2):
        line = process.stdout.readline()
        assert line.startswith("ready "), f"{line!r}; log: {(directory / 'log').read_text()[-2000:]}"
        host, port = line.split("//")[1].split("/")[0].strip().rsplit(":", 1)
        addresses.append((host, int(port)))
    return Server("lmq", process, addresses[0], addresses[1])


def _password_file(directory: Path, settings: ServerSettings) -> Path:
    path = directory / "users"
    for name, password in settings.users.items():
        create = [] if path.exists() else ["-c"]
        subprocess.run([str(Path(sys.executable).parent / "lmq"), "passwd", "-b", *create, str(path), name, password], check=True)
    return path


def _start_mosquitto(directory: Path, settings: ServerSettings) -> Server:
    mqtt, websocket = _free_address(), _free_address()
    lines = [f"listener {mqtt[1]} {mqtt[0]}", "max_packet_size 1048576", "set_tcp_nodelay true", "max_queued_messages 0"]
    if settings.max_keepalive_s:
        lines.append(f"max_keepalive {settings.max_keepalive_s}")
    lines += [f"listener {websocket[1]} {websocket[0]}", "protocol websockets"]
    if settings.users:
        path = directory / "users"
        path.write_text("".join(f"{name}:{password}\n" for name, password in settings.users.items()))
        path.chmod(0o600)
        subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)
        lines += ["allow_anonymous false", f"password_file {path}"]
    else:
        lines.append("allow_anonymous true")
    if settings.acl:
        (directory / "acl").write_text(settings.acl)
        lines.append(f"acl_file {directory / 'acl'}")
    if os.geteuid() == 0:
        lines.append("user root")
    (directory / "conf").write_text("\n".join(lines) + "\n")
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([program, "-c", str(directory / "conf")], stdout=log, stderr=log, text=True)
    deadline = time.monotonic() + START_S
    for address in (mqtt, websocket):
        while True:
            try:
                socket.create_connection(address, timeout=1).close()
                break
            except ConnectionError:
                assert time.monotonic() < deadline and process.poll() is None, (directory / "log").read_text()[-2000:]
                time.sleep(0.02)
    return Server("mosquitto", process, mqtt, websocket)


def _free_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host, port = probe.getsockname()
        return host, port
