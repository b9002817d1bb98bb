"""amqtt's own plugins, and a slow one, judging clients of a running server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amqtt")

from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from mqtt_proxy.policy.password_hash import hash_argon2
from tests.conformance import wire
from tests.conformance.wire import Type, Will
from tests.mqtt_proxy.server.running import RunningServer, running

HERE = __name__
FILE = "amqtt.plugins.authentication.FileAuthPlugin"
TOPIC_ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
NOT_AUTHORIZED = 0x87


class SlowTopicPlugin(BaseTopicPlugin):  # type: ignore[misc,unused-ignore]
    """Thinks about each topic for a moment, the longer the earlier in the alphabet; refuses those with `no` in them."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        assert topic is not None
        await asyncio.sleep(0.1 if topic.startswith("a") else 0.02)
        refused = {Action.PUBLISH: "no-write", Action.SUBSCRIBE: "no-subscribe", Action.RECEIVE: "no-read"}
        return refused[action or Action.PUBLISH] not in topic


@pytest.fixture
def amqtt_files(tmp_path: Path) -> dict[str, dict[str, Any]]:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"alice:{hash_argon2(b'wonderland')}\n")
    return {
        FILE: {"password_file": str(passwords)},
        TOPIC_ACL: {"acl": {"alice": ["a/#"]}, "publish_acl": {"alice": ["a/up/#", "will"]}},
    }


def test_amqtts_password_file_and_topic_rules(tmp_path: Path, amqtt_files: dict[str, dict[str, Any]]) -> None:
    with running(tmp_path, amqtt_plugins=amqtt_files) as server:
        server.connect("x", username="alice", password=b"wrong", reason=0x86)
        server.connect("x", username="bob", password=b"wonderland", reason=0x86)
        server.connect("x", reason=NOT_AUTHORIZED)
        alice = server.connect("alice", username="alice", password=b"wonderland")
        assert alice.subscribe("a/#", "b", "$share/g/a/x", "$share/g/b").reasons == (0, NOT_AUTHORIZED, 0, NOT_AUTHORIZED)
        assert alice.publish("a/up/1", b"1", qos=1) in (0, 0x10)
        assert alice.publish("a/down", b"2", qos=1) == NOT_AUTHORIZED
        assert alice.publish("a/up/2", b"3", qos=2) in (0, 0x10)
        assert alice.payloads(2) == [b"1", b"3"]
        server.connect("y", username="alice", password=b"wonderland", will=Will("b"), reason=NOT_AUTHORIZED)
        server.connect("z", username="alice", password=b"wonderland", will=Will("will"))
        old = server.connect("old", 4, username="alice", password=b"wonderland")
        assert old.subscribe("b").reasons == (0x80,)
        assert old.publish("b", b"", qos=1) == 0  # acknowledged and dropped: a 3.x client can't be told


@pytest.fixture
def slow(tmp_path: Path) -> Any:
    with running(tmp_path, amqtt_plugins={f"{HERE}.SlowTopicPlugin": {}}, allow_anonymous=True) as server:
        yield server


def test_what_comes_behind_a_question_keeps_its_order(slow: RunningServer) -> None:
    reader = slow.connect("reader")
    reader.subscribe("#", qos=1)
    writer = slow.connect("writer")
    topics = ["a/1", "b/no-write", "c", "a/2", "a/1", "d"] * 5
    sent = [wire.publish(topic, str(n).encode(), qos=n % 3, packet_id=n if n % 3 else None) for n, topic in enumerate(topics, 1)]
    writer.send(*sent, wire.PINGREQ)
    wanted = [str(n).encode() for n, topic in enumerate(topics, 1) if topic != "b/no-write"]
    assert reader.payloads(len(wanted)) == wanted
    packets = [writer.next() for _ in range(21)]
    assert packets[-1].type == Type.PINGRESP
    assert [packet.packet_id for packet in packets[:-1]] == [n for n in range(1, 31) if n % 3]
    assert [packet.packet_id for packet in packets[:-1] if packet.reason == NOT_AUTHORIZED] == [2, 8, 14, 20, 26]


def test_a_subscription_waits_for_all_its_filters(slow: RunningServer) -> None:
    client = slow.connect("c")
    client.send(wire.subscribe(1, [("a", 1), ("no-subscribe", 1), ("c", 1)]), wire.publish("c", b"behind", qos=0), wire.PINGREQ)
    assert client.expect(Type.SUBACK).reasons == (1, NOT_AUTHORIZED, 1)
    assert client.message().payload == b"behind"
    client.expect(Type.PINGRESP)


def test_replay_filters_are_asked_for_by_themselves(slow: RunningServer) -> None:
    client = slow.connect("c")
    client.publish("a", b"1", qos=1)
    assert client.subscribe("$replay/earliest/a", "$replay/earliest/no-subscribe").reasons == (0, NOT_AUTHORIZED)
    assert client.message().payload == b"1"


def test_messages_wait_for_the_answer_and_keep_their_order(slow: RunningServer) -> None:
    writer = slow.connect("writer")
    for n, topic in enumerate(("r/a", "r/no-read", "r/c")):
        writer.publish(topic, b"retained%d" % n, qos=1, retain=True)
    reader = slow.connect("reader")
    reader.subscribe("r/#", qos=1)
    assert reader.payloads(2) == [b"retained0", b"retained2"]
    reader.subscribe("+", qos=1)
    for topic in ("a", "z", "no-read", "y", "a", "x"):
        writer.publish(topic, topic.encode(), qos=1)
    assert reader.payloads(5) == [b"a", b"z", b"y", b"a", b"x"]
    reader.silent()


def test_shared_subscriptions_wait_too(slow: RunningServer) -> None:
    readers = [slow.connect(f"r{n}") for n in range(2)]
    for reader in readers:
        reader.subscribe("$share/g/+", qos=1)
    writer = slow.connect("writer")
    for n in range(20):
        writer.publish(f"t{n % 4}", str(n).encode(), qos=1)
    seen: set[bytes] = set()
    while len(seen) < 20:
        for reader in readers:
            seen.update(packet.payload for packet in [*reader.inbox])
            for packet in list(reader.inbox):
                reader.answer(packet)
            reader.inbox.clear()
            reader.alive()


def test_point_to_point_passes(slow: RunningServer) -> None:
    receiver = slow.connect("receiver")
    slow.connect("writer").publish("$p2p/receiver", b"x", qos=1)
    assert receiver.message().payload == b"x"


def test_amqtt_is_loaded_only_where_it_is_asked_for() -> None:
    code = "import sys, mqtt_proxy.server; sys.exit('amqtt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plugin_that_is_not_there_is_exit_2_and_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mqtt_proxy", "serve", "--data", str(tmp_path / "data"), "--listen", "mqtt://127.0.0.1:0"]
    done = subprocess.run([*command, "--amqtt-plugins", '{"no.such.Plugin": {}}'], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "no.such.Plugin" in done.stderr
    assert [line for line in done.stderr.splitlines() if " info " not in line] == [
        "lmq serve: amqtt plugin no.such.Plugin: ModuleNotFoundError: No module named 'no'"
    ]
