"""The server: one loop with the reactor, the listeners and the store's sync in it; signals, start and stop.

    async with mqtt_proxy.serve(Settings(listen=("mqtt://127.0.0.1:0",))) as server:
        print(server.urls)
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from types import TracebackType

from lmq_store.api.errors import StoreError
from mqtt_proxy import log_lines
from mqtt_proxy.broker import TICK_MS, Broker
from mqtt_proxy.connection import Connection
from mqtt_proxy.net.listen_url import ListenError
from mqtt_proxy.net.listener import Listener
from mqtt_proxy.net.reactor import Reactor
from mqtt_proxy.net.turn import Turn
from mqtt_proxy.observe.figures import Figures
from mqtt_proxy.observe.metrics_page import MetricsPage
from mqtt_proxy.observe.sys_topics import SysTopics
from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.policy.acl_file import AclError
from mqtt_proxy.policy.file_limit import raise_file_limit
from mqtt_proxy.policy.users import UsersError
from mqtt_proxy.reload import Reload
from mqtt_proxy.settings import Settings, SettingsError
from mqtt_proxy.wiring import login_plugins, open_store, read_policy, wire_broker

log = logging.getLogger("lmq.server")

FAREWELL_S = 0.5
"""How long clients may take to read the DISCONNECT of a server that stops."""


class Server:
    """A running broker with its listeners. `urls` has the real ports once it is started."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.listeners: list[Listener] = []
        self.metrics_page: MetricsPage | None = None
        self.stopped = asyncio.Event()
        self.exit_code = 0
        self.reload = Reload(self)
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def urls(self) -> list[str]:
        return [listener.url for listener in self.listeners]

    async def __aenter__(self) -> Server:
        self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def start(self) -> None:
        """Open the store, recover, listen. Raises StoreError or ListenError."""
        self.loop = asyncio.get_running_loop()
        raise_file_limit(self.settings.limits.max_connections)
        self.policy = read_policy(self.settings, self._from_thread)
        try:
            self.store = open_store(self.settings)
        except BaseException:
            self._close_beside()
            raise
        try:
            self.broker: Broker = wire_broker(self.settings, self.store, self.policy, self._from_thread)
            self.reactor = Reactor(self.loop, self.broker.end_turn, self.broker.commit_turn)
            self.reactor.watch(self.store.sync_fd, self._synced)
            self.broker.turn_again = self.reactor.turn.ask
            self.reactor.newcomers = self.broker.admission.newcomers
            self.figures = Figures(self.broker, self.reactor.turn)
            self.broker.sys_topics = SysTopics(self.broker, self.figures)
            self.broker.sys_topics.tick(self.broker.now_ms)
            self._warn_of_names()
            bound_output(self.reactor.turn, self.settings.limits.max_buffered_bytes)
            address = self.settings.metrics_address
            if address is not None:
                self.metrics_page = MetricsPage(self.figures, address)
                log.info("metrics at http://%s:%d/metrics", *self.metrics_page.address)
            for options in self.settings.listeners:
                listener = Listener(self.reactor, options, self._accept)
                listener.open()
                self.listeners.append(listener)
        except BaseException:
            for listener in self.listeners:
                listener.close()
            self._close_beside()
            self.store.close()
            raise
        self._tick()

    def _close_beside(self) -> None:
        """What runs beside the reactor."""
        if self.metrics_page is not None:
            self.metrics_page.close()
        if self.policy.plugins is not None:
            self.policy.plugins.close()

    # --- reload -----------------------------------------------------------------------------------------------------------

    def apply_settings(self, settings: Settings) -> None:
        """Bring the settings into force that need no restart (reload.py)."""
        if settings.log_level != self.settings.log_level:  # in a program of someone else's, levels are its own business
            log_lines.set_level(settings.log_level)
        self.settings = settings
        raise_file_limit(settings.limits.max_connections)
        bound_output(self.reactor.turn, settings.limits.max_buffered_bytes)
        self.store.retention.retention_ms = int(settings.retention_hours * 3_600_000)
        self.store.retention.retention_bytes = settings.retention_bytes
        self.broker.apply_settings(settings)

    def apply_policy(self) -> None:
        """Bring users and rights into force: for logins from now on, and for who is there already."""
        broker = self.broker
        authenticator = broker.authenticating.authenticator
        authenticator.reload(self.settings.limits, self.policy.users, login_plugins(self.policy), self.settings.takes_anonymous)
        broker.acl = self.policy.acl
        broker.rights.reapply()
        self._warn_of_names()

    def _warn_of_names(self) -> None:
        if self.policy.acl.names_users and not self.broker.authenticating.authenticator.checks_names:
            log.warning("the ACL has rules for users, but nothing checks user names: set users (--users), or anybody may take any name")

    def between_turns(self, call: Callable[[], None]) -> None:
        """Run a call on the loop as a turn of its own, with what it writes and sends."""
        self.broker.begin_turn()
        call()
        self.reactor.end_turn()

    # --- turns ------------------------------------------------------------------------------------------------------------

    def _from_thread(self, call: Callable[[], None]) -> None:
        """Run a call within a turn, from any thread."""

        def in_turn() -> None:
            call()
            self.reactor.end_turn()

        self.loop.call_soon_threadsafe(in_turn)

    def _accept(self, turn: Turn, fd: int, peer: str, listener: Listener) -> Connection | None:
        """A new connection, unless a limit says no."""
        return self.broker.admission.accept(turn, fd, peer, listener)

    def _synced(self) -> None:
        """The store's sync thread has an answer."""
        self.store.on_sync_ready()
        if self.broker.failed is not None:
            self.fail()

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(TICK_MS / 1000, self._tick)
        try:
            self.broker.tick()
            self.reactor.end_turn()
        except StoreError as error:
            self.broker.store_failed(error)
        if self.broker.failed is not None:
            self.fail()

    def fail(self) -> None:
        """The store is poisoned: end, with exit code 1 (law two)."""
        self.exit_code = 1
        self.stopped.set()

    async def stop(self) -> None:
        """Say good-bye, sync all, close. Idempotent."""
        if self._ticker is None:
            return
        self._ticker.cancel()
        self._ticker = None
        broker = self.broker
        broker.stopping = True
        for listener in self.listeners:
            listener.close()
        reference = self.settings.server_reference
        broker.disconnecting.shut_down(ReasonCode.USE_ANOTHER_SERVER if reference else ReasonCode.SERVER_SHUTTING_DOWN, reference)
        self.reactor.end_turn()
        broker.save_all()
        broker.end_turn()
        deadline = self.loop.time() + min(FAREWELL_S, self.settings.stop_timeout_s)
        while self.reactor.open_links and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        self.reactor.close()
        broker.authenticating.authenticator.close()
        self._close_beside()
        try:
            self.store.close()
        except StoreError as error:
            log.critical("stopped, but not all could be written: %s", error)
            self.exit_code = 1
            self.store.abandon()


def bound_output(turn: Turn, max_buffered_bytes: int) -> None:
    """From how many waiting bytes on a link is paused, and goes on."""
    turn.high_bytes = max_buffered_bytes
    turn.low_bytes = max_buffered_bytes // 4
    turn.stall_bytes = max_buffered_bytes * 4


COLLECTOR_STEPS = (10_000, 5, 1_000)
"""The cycle collector's thresholds. Its small passes stay below two milliseconds, the middle ones below ten. A full pass, which
a million subscriptions make long, is for the unforeseen: sessions and connections go by their reference counts alone."""


def serve(settings: Settings) -> Server:
    """A server as an async context manager, for tests and notebooks."""
    return Server(settings)


def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit code. Prints `ready URL` for each listener once it accepts."""
    try:
        if settings.event_loop == "uvloop":
            import uvloop

            return uvloop.run(_run(settings))
        return asyncio.run(_run(settings))
    except (StoreError, ListenError, UsersError, AclError) as error:
        print(f"lmq serve: {error}", file=sys.stderr)
        return 1
    except SettingsError as error:
        print(f"lmq serve: {error}", file=sys.stderr)
        return 2


async def _run(settings: Settings) -> int:
    server = Server(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopped.set)
    loop.add_signal_handler(signal.SIGHUP, server.reload.ask)
    gc.collect()
    gc.disable()  # what a start makes it keeps: looking through a million queues again and again takes longer than making them
    server.start()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_STEPS)
    gc.enable()
    for url in server.urls:
        print(f"ready {url}", flush=True)
    await server.stopped.wait()
    await server.stop()
    return server.exit_code
