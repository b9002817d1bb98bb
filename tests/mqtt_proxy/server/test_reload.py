"""SIGHUP: what is read again comes into force, and a bad file leaves what was."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqtt_proxy.policy.limits import Limits
from mqtt_proxy.policy.password_hash import hash_scrypt
from tests.conformance.client import Client, Closed
from tests.conformance.wire import Will
from tests.mqtt_proxy.net.certificates import Authority
from tests.mqtt_proxy.server.running import RunningServer, running, until

NOT_AUTHORIZED = 0x87


def reload(server: RunningServer, **changes: Any) -> None:
    settings = replace(server.server.settings, **changes)
    asyncio.run_coroutine_threadsafe(server.server.reload.run(settings), server.loop).result(10)


def write_users(path: Path, **passwords: str) -> None:
    path.write_text("".join(f"{name}:{hash_scrypt(password.encode())}\n" for name, password in passwords.items()))


def test_an_acl_reaches_standing_subscriptions_and_connections(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite #\n")
    with running(tmp_path, acl=str(acl)) as server:
        reader = server.connect("reader", will=Will("secret/will"))
        writer = server.connect("writer")
        reader.subscribe("a/#", "b", qos=1)
        acl.write_text("topic write #\ntopic read a/open\ntopic read b\ntopic deny secret/#\n")
        reload(server)
        for topic in ("a/secret", "a/open", "b"):
            writer.publish(topic, topic.encode(), qos=1)
        assert reader.payloads(2) == [b"a/open", b"b"]
        assert writer.publish("secret/x", b"", qos=1) == NOT_AUTHORIZED
        acl.write_text("topic readwrite #\n")
        reload(server)
        writer.subscribe("secret/#")
        reader.drop()  # its will went when it was denied
        writer.silent()
        late = server.connect("reader")
        late.subscribe("a/#")
        writer.publish("a/secret", b"again", qos=1)
        assert late.message().payload == b"again"


def test_who_is_taken_out_of_the_users_is_disconnected(tmp_path: Path) -> None:
    users = tmp_path / "users"
    write_users(users, alice="1", bob="2")
    with running(tmp_path, users=str(users)) as server:
        alice = server.connect("a", username="alice", password=b"1")
        bob = server.connect("b", username="bob", password=b"2")
        old = server.connect("c", 4, username="alice", password=b"1")
        write_users(users, bob="3")
        reload(server)
        alice.refused(NOT_AUTHORIZED)
        assert old.closed() == []
        bob.alive()
        server.connect("d", username="bob", password=b"2", reason=0x86)
        server.connect("e", username="bob", password=b"3")


def test_limits_and_settings_come_into_force(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.connect("a")
        reload(server, limits=Limits(max_topic_levels=2, max_connections=2), response_information="r/%c", log_level="debug")
        assert client.publish("a/b/c", b"", qos=1) == 0x90
        assert logging.getLogger("lmq").level == logging.DEBUG
        second = server.connect("b", properties=[("request_response_information", 1)])
        assert ("response_information", b"r/b") in second.connack.properties
        with pytest.raises(Closed):
            server.dial().connect("c")
        reload(server, log_level="info", limits=Limits(auth_threads=3, auth_queue_max=7))
        checks = server.broker.authenticating.authenticator._checks
        assert (checks._threads_max, checks._waiting_max) == (3, 7)
        assert logging.getLogger("lmq").level == logging.INFO


def test_bad_files_leave_what_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users, acl = tmp_path / "users", tmp_path / "acl"
    write_users(users, alice="1")
    acl.write_text("user alice\ntopic readwrite a/#\n")
    with running(tmp_path, users=str(users), acl=str(acl)) as server:
        alice = server.connect("a", username="alice", password=b"1")
        users.write_text("alice\nnonsense\n")
        acl.write_text("topic maybe #\n")
        reload(server)
        lines = [record.getMessage() for record in caplog.records if record.name == "lmq.reload" and record.levelno == logging.ERROR]
        assert len(lines) == 2
        assert all("\n" not in line for line in lines)
        assert f"{users}:1" in lines[0]
        assert f"{acl}:1" in lines[1]
        assert alice.publish("a/x", b"", qos=1) in (0, 0x10)
        assert alice.publish("b", b"", qos=1) == NOT_AUTHORIZED
        server.connect("b", username="alice", password=b"1")


def test_a_setting_that_needs_a_restart_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path) as server:
        reload(server, partitions=4, sys_interval_s=5)
        assert "needs a restart: partitions" in caplog.text
        assert server.broker.settings.partitions == 8
        assert server.broker.settings.sys_interval_s == 5


def test_it_says_when_an_acl_rests_on_names_that_nobody_checks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "acl").write_text("user alice\ntopic readwrite #\n")
    with running(tmp_path, acl=str(tmp_path / "acl")):
        pass
    assert "nothing checks user names" in caplog.text


def certificate_of(address: tuple[str, int]) -> str:
    return ssl.get_server_certificate(address)


def test_certificates_for_new_handshakes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"

    def issue(name: str) -> None:
        made = authority.issue(name, "localhost")
        cert.write_bytes(Path(made[0]).read_bytes())
        key.write_bytes(Path(made[1]).read_bytes())

    issue("one")
    with running(tmp_path, listen=("mqtts://127.0.0.1:0",), tls_cert=str(cert), tls_key=str(key)) as server:
        first = certificate_of(server.address())
        issue("two")
        reload(server)
        second = certificate_of(server.address())
        assert second != first
        cert.write_text("nonsense")
        reload(server)
        assert "certificates stay as they were" in caplog.text
        assert certificate_of(server.address()) == second


def test_sighup_to_a_process(tmp_path: Path) -> None:
    acl, config = tmp_path / "acl", tmp_path / "lmq.toml"
    acl.write_text("topic readwrite a/#\n")
    config.write_text(f'acl = "{acl}"\nlog_level = "info"\n')
    log = tmp_path / "log"
    command = [sys.executable, "-m", "mqtt_proxy", "serve", "--data", str(tmp_path / "data"), "--listen", "mqtt://127.0.0.1:0"]
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, "--config", str(config)], stdout=subprocess.PIPE, stderr=stderr, text=True, env=os.environ)
    try:
        assert process.stdout is not None
        host, port = process.stdout.readline().split("//")[1].strip().rsplit(":", 1)
        client = Client.dial((host, int(port)))
        client.connect("a")
        assert client.publish("b", b"", qos=1) == NOT_AUTHORIZED
        acl.write_text("topic readwrite b\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "reloaded: settings, users, acl" in log.read_text())
        assert client.publish("b", b"", qos=1) in (0, 0x10)
        config.write_text("partitions = -1\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "settings stay as they were" in log.read_text())
        assert client.publish("b", b"", qos=1) in (0, 0x10)
        client.disconnect()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()
    assert "Traceback" not in log.read_text()
