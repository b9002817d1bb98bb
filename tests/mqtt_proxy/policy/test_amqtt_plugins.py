from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amqtt")

from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BasePlugin, BaseTopicPlugin
from amqtt.session import Session

from mqtt_proxy.policy.amqtt_plugins import AmqttPlugins, PluginRights, PluginsError
from mqtt_proxy.policy.authenticate import Admitted, Authenticator, Credentials, Decision, Denied
from mqtt_proxy.policy.identity import Identity
from mqtt_proxy.policy.limits import Limits
from mqtt_proxy.policy.password_hash import hash_argon2

HERE = __name__
FILE = "amqtt.plugins.authentication.FileAuthPlugin"
ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"
TOPIC_ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
TABOO = "amqtt.plugins.topic_checking.TopicTabooPlugin"


class SleepyAuthPlugin(BaseAuthPlugin):  # type: ignore[misc,unused-ignore]
    async def authenticate(self, *, session: Session) -> bool | None:
        if session.username == "hangs":
            await asyncio.sleep(60)
        if session.username == "blocks":
            time.sleep(0.3)  # noqa: ASYNC251 - what must not reach the proxy's loop
        if session.username == "breaks":
            raise KeyError("breaks")
        return None if session.username == "stranger" else True


class CountingTopicPlugin(BaseTopicPlugin):  # type: ignore[misc,unused-ignore]
    asked: list[tuple[str | None, str | None, Action | None]] = []  # noqa: RUF012

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        await asyncio.sleep(0.01)
        self.asked.append((session.username if session else None, topic, action))
        return topic != "no"


class OtherPlugin(BasePlugin[Any]):  # type: ignore[misc,unused-ignore]
    pass


class Calls:
    """Stands for the proxy's loop."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.called = threading.Condition()

    def soon(self, call: Callable[[], None]) -> None:
        with self.called:
            self.calls.append(call)
            self.called.notify()

    def run_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            with self.called:
                assert self.called.wait_for(lambda: self.calls, timeout=10), "no answer"
                call = self.calls.pop(0)
            call()


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def load(calls: Calls) -> Iterator[Callable[..., AmqttPlugins]]:
    loaded: list[AmqttPlugins] = []

    def load_(plugins: dict[str, dict[str, Any]], timeout_s: float = 5) -> AmqttPlugins:
        loaded.append(AmqttPlugins(plugins, calls.soon, timeout_s))
        return loaded[-1]

    yield load_
    for plugins in loaded:
        plugins.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "lmq-amqtt-plugins"]


def login(calls: Calls, plugins: AmqttPlugins, user: bytes | None, password: bytes | None = None) -> bool | None:
    answers: list[bool | None] = []
    plugins.authenticate(Credentials(b"c", user, password, "192.0.2.1"), answers.append)
    calls.run_until(lambda: bool(answers))
    return answers[0]


def ask(calls: Calls, question: Callable[..., bool | None], topic: bytes) -> bool:
    answers: list[bool] = []
    known = question(topic, answers.append)
    if known is not None:
        return known
    calls.run_until(lambda: bool(answers))
    return answers[0]


def rights_of(plugins: AmqttPlugins, user: bytes | None) -> PluginRights:
    rights = plugins.topic_rights(Identity(user, b"c"), Credentials(b"c", user, b"secret"))
    assert rights is not None
    return rights


def test_file_auth_plugin(calls: Calls, load: Callable[..., AmqttPlugins], tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"# amqtt's own format\nalice:{hash_argon2(b'secret')}\n")
    plugins = load({FILE: {"password_file": str(path)}})
    assert plugins.judges_logins
    assert not plugins.judges_topics
    assert login(calls, plugins, b"alice", b"secret") is True
    assert login(calls, plugins, b"alice", b"wrong") is False
    assert login(calls, plugins, b"bob", b"secret") is False
    assert login(calls, plugins, None) is None
    assert plugins.topic_rights(Identity(b"alice", b"c"), Credentials(b"c")) is None


def test_anonymous_plugin_and_how_opinions_add_up(calls: Calls, load: Callable[..., AmqttPlugins], tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"alice:{hash_argon2(b'secret')}\n")
    open_, closed = load({ANONYMOUS: {}}), load({ANONYMOUS: {"allow_anonymous": False}})
    assert login(calls, open_, None) is True
    assert login(calls, closed, None) is False
    assert login(calls, closed, b"anyone") is True
    both = load({ANONYMOUS: {"allow_anonymous": True}, FILE: {"password_file": str(path)}})
    assert login(calls, both, None) is True
    assert login(calls, both, b"alice", b"secret") is True
    assert login(calls, both, b"alice", b"wrong") is False


@pytest.mark.filterwarnings("ignore:The 'acl' option:DeprecationWarning")
def test_topic_acl_plugin(calls: Calls, load: Callable[..., AmqttPlugins]) -> None:
    plugins = load({TOPIC_ACL: {"publish_acl": {"alice": ["a/#"], "anonymous": ["open/+"]}, "acl": {"alice": ["a/b", "c/#"]}}})
    alice, anonymous = rights_of(plugins, b"alice"), rights_of(plugins, None)
    assert ask(calls, alice.may_publish, b"a/x/y")
    assert not ask(calls, alice.may_publish, b"b")
    assert ask(calls, alice.may_subscribe, b"c/#")
    assert not ask(calls, alice.may_subscribe, b"#")
    assert ask(calls, alice.may_receive, b"a/b")
    assert ask(calls, anonymous.may_publish, b"open/x")
    assert not ask(calls, anonymous.may_publish, b"a/x")


def test_taboo_plugin_beside_another(calls: Calls, load: Callable[..., AmqttPlugins]) -> None:
    plugins = load({TABOO: {}, f"{HERE}.CountingTopicPlugin": {}})
    rights = rights_of(plugins, b"u")
    assert not ask(calls, rights.may_publish, b"prohibited")
    assert not ask(calls, rights.may_publish, b"no")
    assert ask(calls, rights.may_publish, b"fine")


def test_a_topic_is_asked_for_once_a_connection(calls: Calls, load: Callable[..., AmqttPlugins]) -> None:
    asked = CountingTopicPlugin.asked
    asked.clear()
    plugins = load({f"{HERE}.CountingTopicPlugin": {}})
    rights = rights_of(plugins, b"u")
    answers: list[bool] = []
    for _ in range(3):
        assert rights.may_publish(b"a", answers.append) is None
    calls.run_until(lambda: len(answers) == 3)
    assert answers == [True] * 3
    assert rights.may_publish(b"a", answers.append) is True
    assert ask(calls, rights.may_receive, b"a")
    assert asked == [("u", "a", Action.PUBLISH), ("u", "a", Action.RECEIVE)]
    rights.forget()
    assert ask(calls, rights.may_publish, b"a")
    assert len(asked) == 3


def test_a_plugin_that_hangs_breaks_or_blocks_harms_nobody_else(
    calls: Calls, load: Callable[..., AmqttPlugins], caplog: pytest.LogCaptureFixture
) -> None:
    plugins = load({f"{HERE}.SleepyAuthPlugin": {}}, timeout_s=0.5)
    began = time.monotonic()
    answers: dict[bytes, bool | None] = {}
    for user in (b"hangs", b"breaks", b"blocks", b"fine", b"stranger"):
        plugins.authenticate(Credentials(b"c", user), lambda answer, user=user: answers.update({user: answer}))  # type: ignore[misc]
    assert time.monotonic() - began < 0.2
    calls.run_until(lambda: len(answers) == 5)
    assert answers == {b"hangs": False, b"breaks": False, b"blocks": True, b"fine": True, b"stranger": None}
    assert "no answer within 0.5 s" in caplog.text
    assert "breaks" in caplog.text


def test_the_authenticator_asks_the_plugins(calls: Calls, load: Callable[..., AmqttPlugins]) -> None:
    plugins = load({f"{HERE}.SleepyAuthPlugin": {}})
    authenticator = Authenticator(Limits(), calls.soon, lambda: 0, plugins=plugins)
    decisions: list[Decision] = []
    for user in (b"fine", b"stranger"):
        assert authenticator.authenticate(Credentials(b"c", user, b"x"), decisions.append) is None
    calls.run_until(lambda: len(decisions) == 2)
    assert isinstance(decisions[0], Admitted)
    assert isinstance(decisions[1], Denied)


@pytest.mark.parametrize(
    ("plugins", "says"),
    [
        ({"no.such.Plugin": {}}, "amqtt plugin no.such.Plugin: "),
        ({"amqtt.plugins.authentication.NoPlugin": {}}, "amqtt plugin amqtt.plugins.authentication.NoPlugin: "),
        ({"nodots": {}}, "amqtt plugin nodots: "),
        ({"pathlib.Path": {}}, "not a subclass"),
        ({ANONYMOUS: {"no_such_option": 1}}, "no_such_option"),
        ({ANONYMOUS: {"allow_anonymous": "maybe"}}, "allow_anonymous"),
        ({FILE: {"password_file": "/no/such/file"}}, "/no/such/file"),
        ({f"{HERE}.OtherPlugin": {}}, "neither an authentication nor a topic plugin"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_line_with_its_name(calls: Calls, plugins: dict[str, dict[str, Any]], says: str) -> None:
    with pytest.raises(PluginsError) as raised:
        AmqttPlugins(plugins, calls.soon, 1)
    assert says in str(raised.value)
    assert next(iter(plugins)) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not [thread for thread in threading.enumerate() if thread.name == "lmq-amqtt-plugins"]
