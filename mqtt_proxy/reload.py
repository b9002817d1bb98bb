"""SIGHUP: settings, users, rights, limits, certificates and the log level are read again while the server runs.

Each file is taken for itself: one that is bad leaves what it was in force, with one line that says why, and the others are
still taken. Files are read beside the loop; what they say comes into force between two turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from mqtt_proxy.net.listen_url import ListenError
from mqtt_proxy.policy.acl import Acl
from mqtt_proxy.policy.acl_file import AclError
from mqtt_proxy.policy.limits import LimitError
from mqtt_proxy.policy.users import Users, UsersError
from mqtt_proxy.settings import ITEMS, Settings, SettingsError
from mqtt_proxy.settings_sources import reread
from mqtt_proxy.wiring import read_acl, read_users

if TYPE_CHECKING:
    from mqtt_proxy.server import Server

log = logging.getLogger("lmq.reload")

T = TypeVar("T")


@dataclass(slots=True)
class Reread:
    """What the files say now; None where one could not be taken."""

    settings: Settings | None
    users: tuple[Users | None] | None
    acl: Acl | None


class Reload:
    """Reads again when asked; an ask that comes while one is under way is served after it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.count = 0
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def ask(self) -> None:
        """SIGHUP came."""
        if self._task is None or self._task.done():
            self._task = self.server.loop.create_task(self._serve())
        else:
            self._again = True

    async def _serve(self) -> None:
        while True:
            self._again = False
            await self.run()
            if not self._again:
                return

    async def run(self, settings: Settings | None = None) -> None:
        """Read everything again; `settings` in place of file, environment and options. Raises nothing for bad files."""
        before = self.server.settings
        found = await asyncio.to_thread(self._read, before, settings)
        if not self.server.broker.stopping:
            self.server.between_turns(lambda: self._apply(before, found))

    def _read(self, before: Settings, given: Settings | None) -> Reread:
        settings = given if given is not None else self._try("settings", lambda: reread(before))
        source = settings or before
        return Reread(settings, self._try("users", lambda: (read_users(source),)), self._try("acl", lambda: read_acl(source)))

    @staticmethod
    def _try(what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (SettingsError, LimitError, UsersError, AclError, OSError) as error:
            log.error("not reloaded: %s stay as they were: %s", what, "; ".join(str(error).splitlines()))
            return None

    # --- on the loop --------------------------------------------------------------------------------------------------------

    def _apply(self, before: Settings, found: Reread) -> None:
        server = self.server
        if found.settings is not None:
            settings = live_part(before, found.settings)
            self._certificates(settings)
            server.apply_settings(settings)
        else:
            self._certificates(before)
        server.policy.take(found.users, found.acl)
        server.apply_policy()
        self.count += 1
        log.info("reloaded: %s", ", ".join(self._taken(found)) or "nothing")

    @staticmethod
    def _taken(found: Reread) -> list[str]:
        parts = (("settings", found.settings), ("users", found.users), ("acl", found.acl))
        return [name for name, value in parts if value is not None]

    def _certificates(self, settings: Settings) -> None:
        """New handshakes use what the certificate files hold now."""
        for listener, options in zip(self.server.listeners, settings.listeners, strict=True):
            known = listener.options
            listener.options = replace(known, cert=options.cert, key=options.key, ca=options.ca, require=options.require)
            try:
                listener.reload_certificates()
            except ListenError as error:
                listener.options = known
                log.error("not reloaded: certificates stay as they were: %s", error)


def live_part(before: Settings, now: Settings) -> Settings:
    """The settings in force from now on: `now` where no restart is needed; a line names what needs one."""
    live: dict[str, Any] = {item.name: getattr(now, item.name) for item in ITEMS.values() if item.live and not item.is_limit}
    fixed = [item.name for item in ITEMS.values() if not item.live and getattr(now, item.name) != getattr(before, item.name)]
    if fixed:
        log.warning("changed, but needs a restart: %s", ", ".join(fixed))
    try:
        return replace(before, **live, limits=now.limits)
    except SettingsError as error:  # live and fixed settings that contradict each other
        log.error("not reloaded: settings stay as they were: %s", error)
        return before

