"""`lmq demo`: the readings are all there, a reduced run accounts for every message, and the account notices what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lmq_store.api.model import Message
from mqtt_proxy.demo import readings
from mqtt_proxy.demo.account import Subscriber
from mqtt_proxy.demo.client import Client, Clients

LMQ = str(Path(sys.executable).parent / "lmq")


def test_a_reduced_demo_loses_nothing_over_a_crash(tmp_path: Path) -> None:
    done = subprocess.run([LMQ, "demo", "--readings", "3000", "--rate", "0"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"3000 sent, 3000 acknowledged, 0 lost, \d+ redelivered", done.stdout.splitlines()[-1])
    assert "SIGKILL" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_wrong_use_is_one_line_and_status_2() -> None:
    done = subprocess.run([LMQ, "demo", "--readings", "0"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "10 to 50270" in done.stderr


def test_all_readings_are_in_the_package() -> None:
    every = readings.load()
    assert len(every) == 50_270
    assert [one.number for one in every] == list(range(50_270))
    assert readings.number_of(every[-1].payload) == 50_269
    assert {one.box for one in every} == set(readings.ADDRESSES)
    assert len({one.device for one in every}) == 75


@pytest.fixture
def client() -> Client:
    return Clients(("127.0.0.1", 1)).add("nobody")


def took(subscriber: Subscriber, client: Client, *numbers: int, qos: int = 1) -> None:
    for number in numbers:
        subscriber.took(client, Message(b"sensors/a/h00/reading", b'{"n": %d, "ts"' % number, qos))


def test_the_account_notices_what_is_wrong(client: Client) -> None:
    three = readings.load(3)
    owed = Subscriber("test", "#", 2)
    owed.expect(3)
    took(owed, client, 0, 2)
    assert owed.lost(three, bytearray(b"\1\1\1")) == [1]
    assert owed.lost(three, bytearray(b"\1\0\1")) == []
    took(owed, client, 2)
    assert owed.redelivered == 1
    took(owed, client, 1)
    assert owed.out_of_order == [(2, 1)]
    took(owed, client, 1, qos=2)
    assert owed.twice == [1]
    owed.took(client, Message(b"sensors/a/h00/reading", b"hello", 0))
    assert owed.faults(1) == "1 lost, 1 twice at QoS 2, 1 out of order, 1 foreign"
