"""`lmq pub` and `lmq sub` against a running broker, as processes.

The broker is `lmq serve`; LMQ_TEST_BROKER=mosquitto takes that one, for all but history.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

OURS = os.environ.get("LMQ_TEST_BROKER", "lmq") == "lmq"
LMQ = [sys.executable, "-m", "mqtt_proxy"]


class Broker:
    """A broker process that can be killed and started again on the same port and folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        ours = [*LMQ, "serve", "--listen", f"mqtt://127.0.0.1:{self.port}", "--data", str(self.folder / "data"), "--log-level", "warning"]
        self.process = subprocess.Popen(ours if OURS else ["mosquitto", "-p", str(self.port)], stdout=subprocess.PIPE)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, "the broker ended"
                assert time.monotonic() < deadline, "the broker did not start"
                time.sleep(0.02)

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def pub(self, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*LMQ, "pub", "-p", str(self.port), *argv], input=stdin, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("broker"))
    yield made
    made.stop()


class Subscriber:
    """A running `lmq sub`; made once the broker has answered its SUBSCRIBE."""

    def __init__(self, broker: Broker, *argv: str) -> None:
        self.process = subprocess.Popen(
            [*LMQ, "sub", "-d", "-p", str(broker.port), *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.errors = b""
        self.wait_for(b"received Suback")

    def wait_for(self, text: bytes) -> None:
        assert self.process.stderr is not None
        deadline = time.monotonic() + 10
        while text not in self.errors:
            assert select.select([self.process.stderr], [], [], deadline - time.monotonic())[0], f"no {text!r} in {self.errors!r}"
            data = os.read(self.process.stderr.fileno(), 65_536)
            assert data, self.errors
            self.errors += data
        self.errors = self.errors.partition(text)[2]

    def output(self) -> bytes:
        out, _ = self.process.communicate(timeout=15)
        return out


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_what_is_published_is_printed(broker: Broker, version: str, qos: str) -> None:
    topic = f"basic/{version}/{qos}"
    subscriber = Subscriber(broker, "-v", "-t", f"basic/{version}/+", "-q", qos, "-V", version, "-C", "3")
    assert broker.pub("-t", topic, "-m", "one", "-q", qos, "-V", version).returncode == 0
    assert broker.pub("-t", topic, "-l", "-q", qos, "-V", version, stdin=b"two\nthree").returncode == 0
    assert subscriber.output() == b"".join(topic.encode() + b" " + word + b"\n" for word in (b"one", b"two", b"three"))
    assert subscriber.process.returncode == 0


@pytest.mark.skipif(not OURS, reason="mosquitto drops what waits beyond 1,000 messages")
def test_ten_thousand_lines_keep_their_order(broker: Broker) -> None:
    lines = b"".join(b"%d\n" % number for number in range(10_000))
    subscriber = Subscriber(broker, "-t", "lines", "-q", "1", "-C", "10000")
    assert broker.pub("-t", "lines", "-l", "-q", "1", stdin=lines).returncode == 0
    assert subscriber.output() == lines


def test_properties_travel(broker: Broker) -> None:
    subscriber = Subscriber(broker, "--json", "-t", "props", "-C", "1")
    broker.pub("-t", "props", "-m", "x", *"-D publish user-property k v -D publish content-type text/x".split())
    entry = json.loads(subscriber.output())
    assert entry["properties"]["content-type"] == "text/x"
    assert entry["properties"]["user-properties"] == [{"k": "v"}]


def test_retained_messages_are_kept_left_out_and_forgotten(broker: Broker) -> None:
    def printed(*argv: str) -> bytes:
        command = [*LMQ, "sub", "-p", str(broker.port), "-t", "kept", "-W", "0.5", *argv]
        return subprocess.run(command, capture_output=True, timeout=20).stdout

    broker.pub("-t", "kept", "-m", "state", "-r", "-q", "1")
    assert printed("-C", "1") == b"state\n"
    assert printed("-R") == b""
    broker.pub("-t", "kept", "-n", "-r", "-q", "1")
    assert printed() == b""


def test_a_kept_session_gets_what_came_meanwhile(broker: Broker) -> None:
    away = ["-i", "away", "-c", "-t", "later", "-q", "1"]
    Subscriber(broker, *away, "-E").output()
    broker.pub("-t", "later", "-m", "while you were away", "-q", "1")
    back = subprocess.run([*LMQ, "sub", "-p", str(broker.port), *away, "-C", "1"], capture_output=True, timeout=20)
    assert back.stdout == b"while you were away\n"


def test_time_out_is_27_and_ctrl_c_is_130(broker: Broker) -> None:
    subscriber = Subscriber(broker, "-t", "silent", "-W", "0.3")
    subscriber.output()
    assert subscriber.process.returncode == 27
    subscriber = Subscriber(broker, "-t", "silent")
    subscriber.process.send_signal(signal.SIGINT)
    _, errors = subscriber.process.communicate(timeout=10)
    assert subscriber.process.returncode == 130
    assert b"Traceback" not in errors


def test_a_reader_that_goes_away_ends_it_quietly(broker: Broker) -> None:
    subscriber = Subscriber(broker, "-t", "pipe")
    assert subscriber.process.stdout is not None
    subscriber.process.stdout.close()
    broker.pub("-t", "pipe", "-m", "x", "-q", "1")
    assert subscriber.process.wait(10) == 1
    assert subscriber.process.stderr is not None
    assert b"Traceback" not in subscriber.process.stderr.read()
    subscriber.process.stderr.close()


needs_history = pytest.mark.skipif(not OURS, reason="only our broker keeps history")


@needs_history
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_history_from_the_beginning_then_live(broker: Broker, version: str) -> None:
    topic = f"history/{version}"
    for word in ("one", "two"):
        broker.pub("-t", topic, "-m", word, "-q", "1")
    subscriber = Subscriber(broker, "-t", topic, "-q", "1", "--from", "earliest", "-V", version, "-C", "3")
    broker.pub("-t", topic, "-m", "three", "-q", "1")
    assert subscriber.output() == b"one\ntwo\nthree\n"


@needs_history
def test_a_crash_of_the_broker_loses_and_repeats_nothing_for_a_reader_of_history(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        broker.pub("-t", "crash", "-l", "-q", "1", stdin=b"one\ntwo\n")
        subscriber = Subscriber(broker, "-t", "crash", "-q", "1", "--from", "earliest", "-C", "4")
        broker.pub("-t", "crash", "-m", "three", "-q", "1")
        broker.stop(signal.SIGKILL)
        broker.start()
        broker.pub("-t", "crash", "-m", "four", "-q", "1")
        assert subscriber.output() == b"one\ntwo\nthree\nfour\n"
    finally:
        broker.stop()
