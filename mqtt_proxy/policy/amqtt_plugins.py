"""Runs amqtt's authentication and topic plugins (amqtt ≥ 0.11) as they are, for logins and topics of this proxy.

Setting `amqtt_plugins` names the classes by dotted name, each with its options, as in amqtt's own configuration:

    [amqtt_plugins."amqtt.plugins.authentication.FileAuthPlugin"]
    password_file = "/etc/lmq/amqtt-passwords"

The plugins live in an event loop of their own, in a thread of their own: what blocks there (a slow hash, a database)
delays nobody but those who wait for it. Each question has a time limit and an error is a no. Answers about topics are
remembered per connection, so a topic costs one question. What several plugins say is put together as amqtt does it:
a login needs one True and no False (None is no opinion); a topic needs a True from every topic plugin.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from amqtt.contexts import Action, BaseContext
from amqtt.events import BrokerEvents
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.plugins.manager import PluginManager
from amqtt.session import Session

from mqtt_proxy.policy.authenticate import Credentials
from mqtt_proxy.policy.identity import Identity

log = logging.getLogger("lmq.amqtt_plugins")

QUESTIONS_MAX: Final = 10_000
"""Questions that may wait for the plugins; one more is a no."""
CACHED_TOPICS: Final = 1_024
"""Answers about topics that one connection keeps."""
START_S: Final = 30
STOP_S: Final = 3

PUBLISH: Final = Action.PUBLISH
SUBSCRIBE: Final = Action.SUBSCRIBE
RECEIVE: Final = Action.RECEIVE

Answer = Callable[[bool | None], None]


class PluginsError(Exception):
    """A plugin cannot be loaded; the text is one line with its name."""


class PluginSession(Session):  # type: ignore[misc,unused-ignore]
    """What plugins may read of a client: amqtt's session without its queues and state machine, which cost 100 µs each."""

    def __init__(self, credentials: Credentials) -> None:
        self.client_id = credentials.client_id.decode("utf-8", "replace")
        self.username = None if credentials.user is None else credentials.user.decode("utf-8", "replace")
        self.password = None if credentials.password is None else credentials.password.decode("utf-8", "replace")
        self.remote_address = credentials.address
        self.remote_port = credentials.port
        self.ssl_object = credentials.ssl_object
        self.clean_session = credentials.clean_start
        self.keep_alive = credentials.keep_alive_s
        self.is_anonymous = credentials.user is None
        self.will_flag = False
        self.will_message = self.will_qos = self.will_retain = self.will_topic = None
        self.broker_uri = self.cafile = self.capath = self.cadata = None
        self.attributes: dict[str, Any] = {}


class AmqttPlugins:
    """The loaded plugins. `call_soon` runs a callable on the proxy's loop, from any thread. Raises PluginsError."""

    def __init__(
        self, plugins: Mapping[str, Mapping[str, Any]], call_soon: Callable[[Callable[[], None]], object], timeout_s: float
    ) -> None:
        self._call_soon = call_soon
        self._timeout_s = timeout_s
        self._waiting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lmq-amqtt-plugins", daemon=True)
        self._thread.start()
        self._managers: list[Any] = []
        self._logins: list[Any] = []
        self._topics: list[Any] = []
        try:
            self._within(self._load({name: dict(options) for name, options in plugins.items()}), START_S)
        except BaseException:
            self.close()
            raise

    @property
    def judges_logins(self) -> bool:
        return bool(self._logins)

    @property
    def judges_topics(self) -> bool:
        return bool(self._topics)

    def authenticate(self, credentials: Credentials, done: Answer) -> None:
        """Ask the authentication plugins; `done` gets True, False, or None for no opinion, on the proxy's loop."""
        self._ask(lambda: self._judge_login(PluginSession(credentials)), done)

    def topic_rights(self, identity: Identity, credentials: Credentials) -> PluginRights | None:
        """What the topic plugins say about one connection; None where there is no topic plugin. Keep it with the connection."""
        if not self._topics:
            return None
        session = PluginSession(credentials)
        session.password = None
        session.username = None if identity.user is None else identity.user.decode("utf-8", "replace")
        return PluginRights(self, session)

    def ask_topic(self, session: Session, topic: bytes, action: Action, done: Answer) -> None:
        """Ask the topic plugins, without memory."""
        self._ask(lambda: self._judge_topic(session, topic.decode("utf-8", "replace"), action), done)

    def close(self) -> None:
        """Close the plugins and end their thread."""
        if self._thread.is_alive():
            if self._managers:
                try:
                    self._within(self._shut_down(), STOP_S)
                except PluginsError as error:
                    log.warning("amqtt plugins did not close: %s", error)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=STOP_S)
        if not self._loop.is_running() and not self._loop.is_closed():
            self._loop.close()

    # --- in the plugins' thread -------------------------------------------------------------------------------------------

    async def _load(self, plugins: dict[str, dict[str, Any]]) -> None:
        context = BaseContext()
        for name, options in plugins.items():  # one by one, so that an error has its plugin's name
            context.config = {"plugins": {name: options}}
            try:
                manager = PluginManager("lmq.amqtt", context, self._loop)
            except Exception as error:
                raise PluginsError(f"amqtt plugin {name}: {_reason(error)}") from None
            loaded = manager.plugins[0]
            if not isinstance(loaded, BaseAuthPlugin | BaseTopicPlugin):
                raise PluginsError(f"amqtt plugin {name}: neither an authentication nor a topic plugin, others are not run here")
            if isinstance(loaded, BaseAuthPlugin):
                self._logins.append(loaded)
            if isinstance(loaded, BaseTopicPlugin):
                self._topics.append(loaded)
            self._managers.append(manager)

    async def _shut_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        for manager in self._managers:
            await manager.fire_event(BrokerEvents.PRE_SHUTDOWN, wait=True)
            await manager.close()

    async def _judge_login(self, session: Session) -> bool | None:
        opinions = [await plugin.authenticate(session=session) for plugin in self._logins]
        heard = [opinion for opinion in opinions if opinion is not None]
        return all(heard) if heard else None

    async def _judge_topic(self, session: Session, topic: str, action: Action) -> bool:
        for plugin in self._topics:
            if not await plugin.topic_filtering(session=session, topic=topic, action=action):
                return False
        return True

    # --- between the threads ----------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], Coroutine[Any, Any, bool | None]], done: Answer) -> None:
        if self._waiting >= QUESTIONS_MAX:
            done(False)
            return
        self._waiting += 1
        self._loop.call_soon_threadsafe(self._start, question, done)

    def _start(self, question: Callable[[], Coroutine[Any, Any, bool | None]], done: Answer) -> None:
        task = self._loop.create_task(self._answer(question, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: Callable[[], Awaitable[bool | None]], done: Answer) -> None:
        answer: bool | None = False
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await question()
        except TimeoutError:
            log.warning("an amqtt plugin gave no answer within %g s: taken as a no", self._timeout_s)
        except Exception as error:
            log.warning("an amqtt plugin failed, taken as a no: %s", _reason(error))

        def tell() -> None:
            self._waiting -= 1
            done(answer)

        try:
            self._call_soon(tell)
        except RuntimeError:
            pass  # the proxy's loop is closed: nobody waits any more

    def _within(self, work: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Run a coroutine in the plugins' loop and wait for it: at start and stop only."""
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)
        except FutureTimeoutError:
            raise PluginsError(f"no end after {timeout_s} s") from None


class PluginRights:
    """The topic plugins' answers for one connection. Each question gives the answer if it is known.

    If it is not, the answer is None, and `done(answer)` is called on the loop once it is: hold what depends on it (and,
    for a PUBLISH, all that the connection sent after it) until then.
    """

    __slots__ = ("_known", "_plugins", "_session", "_waiting")

    def __init__(self, plugins: AmqttPlugins, session: Session) -> None:
        self._plugins = plugins
        self._session = session
        self._known: dict[tuple[Action, bytes], bool] = {}
        self._waiting: dict[tuple[Action, bytes], list[Callable[[bool], None]]] = {}

    def may_publish(self, topic: bytes, done: Callable[[bool], None]) -> bool | None:
        return self._ask(PUBLISH, topic, done)

    def may_subscribe(self, topic_filter: bytes, done: Callable[[bool], None]) -> bool | None:
        return self._ask(SUBSCRIBE, topic_filter, done)

    def may_receive(self, topic: bytes, done: Callable[[bool], None]) -> bool | None:
        return self._ask(RECEIVE, topic, done)

    def known_receive(self, topic: bytes) -> bool | None:
        """The answer of `may_receive`, without asking."""
        return self._known.get((RECEIVE, topic))

    def forget(self) -> None:
        """Ask anew from now on."""
        self._known.clear()

    def _ask(self, action: Action, topic: bytes, done: Callable[[bool], None]) -> bool | None:
        key = (action, topic)
        known = self._known.get(key)
        if known is not None:
            return known
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(done)
            return None
        self._waiting[key] = [done]
        self._plugins.ask_topic(self._session, topic, action, lambda answer: self._answered(key, bool(answer)))
        return None

    def _answered(self, key: tuple[Action, bytes], answer: bool) -> None:
        if len(self._known) >= CACHED_TOPICS:
            self._known.clear()
        self._known[key] = answer
        for done in self._waiting.pop(key, []):
            done(answer)


def _reason(error: BaseException) -> str:
    """One line for an error of amqtt's loader, which hides the cause behind its own errors."""
    cause = error.__cause__
    if cause is not None:
        return f"{type(cause).__name__}: {cause}".splitlines()[0]
    return (str(error) or type(error).__name__).splitlines()[0]
