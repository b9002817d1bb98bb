"""mosquitto_pub and mosquitto_sub: MQTT 3.1, 3.1.1 and 5.0, TLS, mutual TLS, WebSocket where they have it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import Endpoints, program

WAIT_S = 10
VERSIONS = pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])


def pub(server: Endpoints, *options: str, port: int = 0, lines: str | None = None) -> None:
    command = [program("mosquitto_pub"), "-h", "127.0.0.1", "-p", str(port or server.mqtt), *options]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr


class Sub:
    """A mosquitto_sub that has its SUBACK and ends after `number` messages; `lines` waits for them."""

    def __init__(self, server: Endpoints, number: int, *options: str, port: int = 0) -> None:
        command = [
            program("mosquitto_sub"),
            "-d",
            "-h",
            "127.0.0.1",
            "-p",
            str(port or server.mqtt),
            "-C",
            str(number),
            "-W",
            "8",
            *options,
        ]
        unbuffered = ["stdbuf", "-oL", *command]
        self.process = subprocess.Popen(unbuffered, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("Subscribed"):
                return
        raise AssertionError(f"mosquitto_sub ended with {self.process.wait()}")

    def lines(self) -> list[str]:
        output, _ = self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0, output
        return [line for line in output.splitlines() if not line.startswith(("Client ", "Subscribed"))]


def listen(server: Endpoints, *options: str, port: int = 0) -> list[str]:
    """A mosquitto_sub to its end, without the debug lines."""
    command = [program("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port or server.mqtt), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode in (0, 27), done.stderr
    return done.stdout.splitlines()


@VERSIONS
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_every_qos_both_ways(server: Endpoints, name: str, version: str, qos: str) -> None:
    subscriber = Sub(server, 100, "-V", version, "-q", qos, "-t", f"{name}/#", "-F", "%q %p")
    pub(server, "-V", version, "-q", qos, "-t", f"{name}/x", "-l", lines="".join(f"{number}\n" for number in range(100)))
    assert subscriber.lines() == [f"{qos} {number}" for number in range(100)]


@VERSIONS
def test_retained_and_will(server: Endpoints, name: str, version: str) -> None:
    pub(server, "-V", version, "-q", "1", "-r", "-t", f"{name}/kept", "-m", "on")
    assert listen(server, "-V", version, "-t", f"{name}/kept", "-C", "1", "-F", "%r %p") == ["1 on"]
    pub(server, "-V", version, "-q", "1", "-r", "-n", "-t", f"{name}/kept")
    assert listen(server, "-V", version, "-t", f"{name}/kept", "-W", "1") == []
    watcher = Sub(server, 1, "-V", version, "-q", "2", "-t", f"{name}/gone")
    mortal = Sub(server, 1, "-V", version, "-t", "nothing", "--will-topic", f"{name}/gone", "--will-payload", "dead", "--will-qos", "2")
    mortal.process.kill()
    mortal.process.communicate()
    assert watcher.lines() == ["dead"]


@VERSIONS
def test_a_persistent_session_resumes(server: Endpoints, name: str, version: str) -> None:
    keep = ["-V", version, "-c", "-i", name, "-q", "1", "-t", f"{name}/#", *(["-x", "600"] if version == "mqttv5" else [])]
    listen(server, *keep, "-E")
    pub(server, "-V", version, "-q", "1", "-t", f"{name}/x", "-l", lines="one\ntwo\nthree\n")
    assert listen(server, *keep, "-C", "3", "-W", "5") == ["one", "two", "three"]


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_shared_subscription(server: Endpoints, name: str, version: str) -> None:
    members = [Sub(server, 10, "-V", version, "-q", "1", "-t", f"$share/g/{name}/#") for _ in range(2)]
    pub(server, "-V", version, "-q", "1", "-t", f"{name}/x", "-l", lines="".join(f"{number}\n" for number in range(20)))
    assert sorted(int(line) for member in members for line in member.lines()) == list(range(20))


def test_properties(server: Endpoints, name: str) -> None:
    subscriber = Sub(server, 1, "-V", "mqttv5", "-t", f"{name}/#", "-q", "1", "-F", "%J")
    command = ["-V", "mqttv5", "-q", "1", "-t", f"{name}/x", "-m", "21.5"]
    for key, value in (("content-type", "text/plain"), ("response-topic", "answers"), ("message-expiry-interval", "60")):
        command += ["-D", "publish", key, value]
    pub(server, *command, "-D", "publish", "user-property", "unit", "C")
    found = json.loads("".join(subscriber.lines()))["properties"]
    assert (found["content-type"], found["response-topic"]) == ("text/plain", "answers")
    assert 58 <= found["message-expiry-interval"] <= 60
    assert found["user-properties"] in ({"unit": "C"}, [{"unit": "C"}])


@VERSIONS
def test_tls(server: Endpoints, name: str, version: str) -> None:
    tls = ["-V", version, "--cafile", server.ca, "-q", "1"]
    subscriber = Sub(server, 2, *tls, "-t", f"{name}/#", port=server.mqtts)
    pub(server, *tls, "-t", f"{name}/x", "-l", lines="one\ntwo\n", port=server.mqtts)
    assert subscriber.lines() == ["one", "two"]


@VERSIONS
def test_mutual_tls_makes_the_subject_the_user(server: Endpoints, version: str) -> None:
    mutual = ["-V", version, "--cafile", server.ca, "--cert", server.client_cert, "--key", server.client_key, "-q", "1"]
    subscriber = Sub(server, 1, *mutual, "-t", "private/device-7/#", port=server.mutual)
    pub(server, *mutual, "-t", "private/device-7/x", "-m", "mine", port=server.mutual)
    assert subscriber.lines() == ["mine"]


def test_mutual_tls_refuses_a_client_without_certificate(server: Endpoints) -> None:
    command = [program("mosquitto_pub"), "-h", "127.0.0.1", "-p", str(server.mutual), "--cafile", server.ca, "-t", "x", "-m", "x"]
    assert subprocess.run(command, capture_output=True, timeout=WAIT_S).returncode != 0


def test_websocket(server: Endpoints, name: str) -> None:
    if "--ws" not in subprocess.run([program("mosquitto_sub"), "--help"], capture_output=True, text=True).stdout:
        return  # this build of mosquitto's clients has no WebSocket
    subscriber = Sub(server, 1, "--ws", "-q", "1", "-t", f"{name}/#", port=server.ws)
    pub(server, "--ws", "-q", "1", "-t", f"{name}/x", "-m", "hello", port=server.ws)
    assert subscriber.lines() == ["hello"]


def test_a_large_file(server: Endpoints, name: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 900_000)
    subscriber = Sub(server, 1, "-q", "2", "-t", f"{name}/#", "-F", "%l")
    pub(server, "-q", "2", "-t", f"{name}/x", "-f", str(tmp_path / "large"))
    assert subscriber.lines() == ["900000"]
