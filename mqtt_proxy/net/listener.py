"""Listening sockets, and the accept loop: many connections a turn, each a link of the owner's making."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from mqtt_proxy.net.layers import Layer, LayerStack
from mqtt_proxy.net.listen_url import ListenerOptions, ListenError
from mqtt_proxy.net.proxy_protocol import ProxyLayer
from mqtt_proxy.net.tls import TlsLayer, read_certificates
from mqtt_proxy.net.turn import Turn
from mqtt_proxy.net.websocket import WebSocketLayer

if not cython.compiled:
    from mqtt_proxy.net.syscalls import accept

if TYPE_CHECKING:
    from mqtt_proxy.net.link import Link
    from mqtt_proxy.net.reactor import Reactor

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
RETRY_S = 2.0
"""How long a taken port is tried again: the killed predecessor may just be going."""
FULL_PAUSE_S = 0.2
"""Pause of the accept loop when the process has no descriptor left, or max_connections is reached."""
LOG_EVERY_S = 10.0
KEEP_ALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 120),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 30),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 4),
)
"""The kernel finds peers that vanished without an MQTT keep alive, after 4 minutes; accepted sockets inherit it."""

NewLink = Callable[[Turn, int, str, "Listener"], "Link | None"]


class Listener:
    """One listen URL's sockets (more than one where the host has several addresses) in a reactor.

    `new_link(turn, fd, peer, listener)` makes the link of an accepted connection (a subclass of Link does as it is), or
    answers None to refuse it. `open_links` counts those that are open.
    """

    def __init__(self, reactor: Reactor, options: ListenerOptions, new_link: NewLink) -> None:
        self.reactor = reactor
        self.options = options
        self.new_link = new_link
        self.open_links = 0
        self.accepted = 0
        self.refused = 0
        self.port = options.port
        self.certificates = read_certificates(options)
        self._layered = options.tls or options.websocket or options.proxy_protocol
        self._sockets: list[socket.socket] = []
        self._paused = False
        self._last_logged = -LOG_EVERY_S

    def reload_certificates(self) -> None:
        """New handshakes use what the files hold now. Raises ListenError, and then goes on with what it had."""
        self.certificates = read_certificates(self.options)

    @property
    def url(self) -> str:
        """Where it listens, with the real port."""
        return self.options.url(self.port)

    def open(self) -> None:
        """Bind, listen and accept from now on. A taken address is tried for RETRY_S, which blocks; raises ListenError."""
        until = time.monotonic() + RETRY_S
        while True:
            try:
                self._sockets = self._bind_unix() if self.options.scheme == "unix" else self._bind_all()
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    raise ListenError(f"cannot listen on {self.options.url()}: {(error.strerror or str(error)).lower()}") from None
                time.sleep(0.05)
        self._watch()

    def close(self) -> None:
        """Accept no more; connections stay. A Unix socket's file goes."""
        if not self._paused:
            self._unwatch()
        for listening in self._sockets:
            listening.close()
        if self._sockets and self.options.scheme == "unix":
            try:
                os.unlink(self.options.path)
            except OSError:
                pass
        self._sockets = []

    def _bind_all(self) -> list[socket.socket]:
        options = self.options
        flags = socket.AI_PASSIVE
        try:
            found = socket.getaddrinfo(options.host or None, options.port, 0, socket.SOCK_STREAM, 0, flags)
        except OSError as error:
            raise ListenError(f"cannot listen on {options.url()}: host {options.host!r}: {error.strerror}") from None
        bound: list[socket.socket] = []
        self.port = options.port
        try:
            for family, _, _, _, address in found:
                try:
                    bound.append(self._bind(family, (address[0], self.port, *address[2:])))
                except OSError as error:
                    if bound and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        continue  # a host without IPv6 still has its IPv4 address
                    raise
                self.port = bound[0].getsockname()[1]
        except OSError:
            for listening in bound:
                listening.close()
            raise
        return bound

    def _bind(self, family: int, address: tuple[str | int, ...]) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted inherits it
            for option, value in KEEP_ALIVE:
                listening.setsockopt(*option, value)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(self.options.backlog)
        except OSError:
            listening.close()
            raise
        return listening

    def _bind_unix(self) -> list[socket.socket]:
        path = self.options.path
        _remove_stale_socket(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.bind(path)
            os.chmod(path, self.options.mode)
            listening.listen(self.options.backlog)
        except OSError:
            listening.close()
            raise
        return [listening]

    def _watch(self) -> None:
        for listening in self._sockets:
            fd = listening.fileno()
            self.reactor.watch(fd, lambda fd=fd: self._accept_ready(fd))  # type: ignore[misc]

    def _unwatch(self) -> None:
        for listening in self._sockets:
            self.reactor.unwatch(listening.fileno())

    def _accept_ready(self, listening: int) -> None:
        """Accept what waits, up to ACCEPTS_PER_TURN; nothing while those that were accepted before have to wait."""
        if self.reactor.crowded:
            return
        turn = self.reactor.turn
        most = self.options.max_connections
        for _ in range(ACCEPTS_PER_TURN):
            if most and self.open_links >= most:
                self._pause(f"max_connections = {most} reached")
                return
            fd, peer = accept(listening)
            if fd < 0:
                if fd in (-errno.EMFILE, -errno.ENFILE, -errno.ENOBUFS, -errno.ENOMEM):
                    self._pause(os.strerror(-fd).lower())
                elif fd != -errno.EAGAIN:
                    continue  # that one connection went away while it waited
                return
            self.accepted += 1
            link = self.new_link(turn, fd, peer, self)
            if link is None:
                self.refused += 1
                os.close(fd)
                continue
            self.open_links += 1
            if self._layered:
                link.layer = self._new_layers()
            link.start()

    def _new_layers(self) -> LayerStack:
        layers: list[Layer] = []
        if self.options.proxy_protocol:
            layers.append(ProxyLayer())
        if self.certificates is not None:
            layers.append(TlsLayer(self.certificates))
        if self.options.websocket:
            layers.append(WebSocketLayer(self.options))
        stack = LayerStack(layers)
        stack.handshaking = self.options.tls
        return stack

    def _pause(self, reason: str) -> None:
        """Leave connections in the kernel's backlog for a moment, rather than spin."""
        now = time.monotonic()
        if now - self._last_logged >= LOG_EVERY_S:
            self._last_logged = now
            log.warning("%s: not accepting for now: %s", self.url, reason)
        self._unwatch()
        self._paused = True
        self.reactor.loop.call_later(FULL_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._paused = False
        self._watch()


def _remove_stale_socket(path: str) -> None:
    """A socket file that nobody listens on is a killed predecessor's; anything else stays."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        os.unlink(path)
