"""The turn: read every ready link into one shared buffer, let the server work on the batch, send once per link.

Data sockets sit in an epoll set of their own, whose descriptor is one reader in the asyncio loop: a turn costs the loop
one callback, however many links it serves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable
from typing import Any

import cython

from mqtt_proxy.net.link import SHARED_BYTES
from mqtt_proxy.net.turn import BROKEN, READ, WRITE, Turn

if not cython.compiled:
    from mqtt_proxy.net.syscalls import monotonic

log = logging.getLogger(__name__)

TURN_S = 0.004
"""A turn stops reading after this long, so that what it has read is answered and timers get their time."""
MOST_EVENTS = 512
REPEAT_EVENTS = 8
"""After a turn of at least this many events more have probably come: look again before returning to the loop."""
LINGER_CHECK_S = 0.25
NEWCOMERS_S = 0.001
"""A turn reads connections that are not let in yet for so long, and at least one: a storm of CONNECTs holds up nobody else."""
HANDSHAKES_PER_TURN = 4
"""A TLS handshake costs as much as a hundred messages: a storm of them must not hold up everybody else."""


class Reactor:
    """Runs turns on the loop. `on_turn_end` works on what the turn has read and queues the answers.

    `on_turn_sent` is called when what the turn queued has been sent: what may wait comes after the deliveries, and may
    queue more. Both are called once in each turn, also in those that `end_turn` or queued output outside a turn brought about.
    """

    __slots__ = (
        "crowded", "epoll", "linger_timer", "loop", "newcomers", "on_turn_end", "on_turn_sent", "ready", "ready_at", "shared", "turn",
        "watchers",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_turn_end: Callable[[], None], on_turn_sent: Callable[[], None] | None = None
    ) -> None:
        self.loop = loop
        self.on_turn_end = on_turn_end
        self.on_turn_sent = on_turn_sent
        self.epoll = select.epoll()
        self.turn = Turn(self.epoll)
        self.turn.wake = self._wake
        self.turn.linger_started = self._linger_started
        self.turn.now_ms = int(monotonic() * 1000)
        self.watchers: dict[int, Callable[[], None]] = {}
        self.newcomers: set[int] = set()
        """Descriptors of connections that are not let in yet; whoever lets them in takes them out."""
        self.crowded = False
        """The last pass had to put links off: more connections can wait in the kernel's backlog."""
        self.shared = bytearray(SHARED_BYTES)
        self.ready: list[tuple[int, int]] = []
        self.ready_at = 0
        self.linger_timer: asyncio.TimerHandle | None = None
        loop.add_reader(self.epoll.fileno(), self.run_turn)

    @property
    def now_ms(self) -> int:
        """Monotonic, as of the turn's start."""
        return self.turn.now_ms

    @property
    def open_links(self) -> int:
        return self.turn.open_links

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back within a turn whenever the descriptor is readable (the store's sync, a listener)."""
        self.watchers[fd] = callback
        self.epoll.register(fd, READ)

    def unwatch(self, fd: int) -> None:
        if self.watchers.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def run_turn(self) -> None:
        """The loop's one callback: turns until nothing more is ready, or TURN_S has passed."""
        turn = self.turn
        if turn.running:
            return
        now = monotonic()
        until = now + TURN_S
        while True:
            turn.now_ms = int(now * 1000)
            turn.running = True
            if self.ready_at >= len(self.ready):
                self.ready = self.epoll.poll(0, MOST_EVENTS)
                self.ready_at = 0
            count = len(self.ready)
            late = self._read_ready(until)
            self._end()
            if late or count < REPEAT_EVENTS:
                return
            now = monotonic()
            if now > until:
                return

    def _read_ready(self, until: float) -> bool:
        """Serve the ready links; True when time ran out, and the rest is served first in the next turn."""
        ready, links, shared = self.ready, self.turn.links, self.shared
        at, count = self.ready_at, len(ready)
        handshakes = HANDSHAKES_PER_TURN
        newcomers = self.newcomers
        now = 0.0
        newcomers_until = 0.0
        crowded = False
        while at < count:
            fd, mask = ready[at]
            at += 1
            self.ready_at = at
            link = links[fd] if fd < len(links) else None
            if link is None:
                self._call_watcher(fd)
                continue
            if newcomers and fd in newcomers:
                if newcomers_until and now > newcomers_until:
                    crowded = True
                    continue  # still ready at the next look
                if not newcomers_until:
                    newcomers_until = monotonic() + NEWCOMERS_S
            if link.layer is not None and link.layer.handshaking:
                if not handshakes:
                    continue  # still ready at the next look
                handshakes -= 1
            try:
                if mask & WRITE:
                    link.writable()
                if mask & (READ | BROKEN):
                    if mask & READ or not link.paused:
                        link.read(shared)
                    else:
                        link.fail("reset by peer")
            except Exception as error:
                self._broken(link, error)
            now = monotonic()
            if now > until:
                self.crowded = crowded or at < count
                return at < count
        self.crowded = crowded
        return False

    def end_turn(self) -> None:
        """Run the end of a turn for work that came from outside one, such as a timer. Nothing to do within a turn."""
        if not self.turn.running:
            self.turn.now_ms = int(monotonic() * 1000)
            self.turn.running = True
            self._end()

    def _end(self) -> None:
        turn = self.turn
        turn.woken = turn.again = False
        try:
            while turn.fed:
                fed, turn.fed = turn.fed, []
                for link in fed:
                    try:
                        link.feed()
                    except Exception as error:
                        self._broken(link, error)
            self.on_turn_end()
        except Exception:
            log.exception("the end of a turn failed")
        self._flush_dirty()
        if self.on_turn_sent is not None:
            try:
                self.on_turn_sent()
            except Exception:
                log.exception("the end of a turn failed")
            self._flush_dirty()
        turn.running = False
        if turn.doomed:
            for fd in turn.doomed:
                try:
                    os.close(fd)
                except OSError:
                    log.exception("descriptor %d", fd)
            turn.doomed.clear()
        if turn.again or turn.dirty or turn.fed:
            turn.ask()

    def _flush_dirty(self) -> None:
        """One send for each link with output."""
        turn = self.turn
        dirty = turn.dirty
        if dirty:
            turn.dirty = []
            for link in dirty:
                try:
                    link.flush()
                except Exception as error:
                    self._broken(link, error)

    def _broken(self, link: Any, error: Exception) -> None:
        """A fault of ours while serving a link must not touch the others."""
        log.error("%s: internal error", link.peer, exc_info=error)
        try:
            link.fail("internal error")
        except Exception:
            log.exception("%s: internal error while ending", link.peer)

    def _call_watcher(self, fd: int) -> None:
        callback = self.watchers.get(fd)
        if callback is not None:
            try:
                callback()
            except Exception:
                log.exception("a watched descriptor's callback failed")

    def _wake(self) -> None:
        self.loop.call_soon(self.end_turn)

    def _linger_started(self) -> None:
        if self.linger_timer is None:
            self.linger_timer = self.loop.call_later(LINGER_CHECK_S, self._end_lingering)

    def _end_lingering(self) -> None:
        """Drop closing links whose peer neither reads nor ends."""
        self.linger_timer = None
        now_ms = self.turn.now_ms = int(monotonic() * 1000)
        lingering = self.turn.lingering
        while lingering and lingering[0][0] <= now_ms:
            lingering.popleft()[1].abort("did not take the rest in time")
        if lingering:
            self._linger_started()

    def close(self) -> None:
        """Abort what is still open and leave the loop."""
        for link in self.turn.links:
            if link is not None:
                link.abort("stopped")
        self.turn.lingering.clear()
        if self.linger_timer is not None:
            self.linger_timer.cancel()
        for fd in self.turn.doomed:
            os.close(fd)
        self.turn.doomed.clear()
        if not self.epoll.closed:
            self.loop.remove_reader(self.epoll.fileno())
            self.epoll.close()
