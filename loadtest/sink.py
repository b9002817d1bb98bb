"""`lmq load sink URL`: answers at once and forwards to matching subscribers; prints `ready URL`. It measures the harness."""

from __future__ import annotations

import select
import signal
import socket
import sys

from loadtest.address import parse
from loadtest.sink_link import Hub, SinkLink
from loadtest.units import UsageError

TAIL_MAX = 64 << 20
"""Bytes waiting for one slow client, above which its connection ends."""


class Sink:
    """The listener and its loop; `serve` runs until a signal."""

    def __init__(self, host: str, port: int) -> None:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self.listener = socket.create_server((host, port), family=family, backlog=4096)
        except OSError as failure:
            raise UsageError(f"sink: cannot listen on {host}:{port}: {failure.strerror or failure}") from None
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.poll = select.epoll()
        self.poll.register(self.listener.fileno(), select.EPOLLIN)
        self.hub = Hub()
        self.links: dict[int, SinkLink] = {}
        self.sockets: dict[int, socket.socket] = {}
        self.stopped = False

    def serve(self) -> None:
        while not self.stopped:
            try:
                events = self.poll.poll(0.5, 512)
            except InterruptedError:
                continue
            own = self.listener.fileno()
            for fd, what in events:
                if fd == own:
                    self._accept()
                    continue
                link = self.links.get(fd)
                if link is None:
                    continue
                if what & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and not link.readable():
                    self._close(link)
                    continue
                if what & select.EPOLLOUT:
                    link.mark()
                    if link.tail is None or len(link.tail) < 65536:
                        self.poll.modify(fd, select.EPOLLIN)
            self._flush()
        for link in list(self.links.values()):
            self._close(link)
        self.listener.close()

    def _accept(self) -> None:
        for _ in range(256):
            try:
                sock, _ = self.listener.accept()
            except (BlockingIOError, OSError):
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            fd = sock.fileno()
            self.sockets[fd] = sock
            self.links[fd] = SinkLink(self.hub, fd)
            self.poll.register(fd, select.EPOLLIN)

    def _flush(self) -> None:
        dirty = self.hub.dirty
        if dirty:
            self.hub.dirty = []
            for link in dirty:
                if link.fd in self.links and not link.flush():
                    self._close(link)
        for link in self.hub.blocked:
            if link.fd in self.links and link.tail is not None:
                if len(link.tail) > TAIL_MAX:
                    self.hub.dropped += 1
                    self._close(link)
                else:
                    self.poll.modify(link.fd, select.EPOLLIN | select.EPOLLOUT)
        self.hub.blocked = []

    def _close(self, link: SinkLink) -> None:
        self.links.pop(link.fd, None)
        sock = self.sockets.pop(link.fd, None)
        if sock is not None:
            self.hub.forget(link)
            sock.close()


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    if len(arguments) != 1:
        raise UsageError("sink takes one URL: lmq load sink mqtt://127.0.0.1:1884")
    url = arguments[0].replace(":0", ":65536", 1) if arguments[0].endswith(":0") else arguments[0]
    address = parse(url.replace(":65536", ":1")) if url.endswith(":65536") else parse(url)
    if address.scheme != "mqtt":
        raise UsageError("the sink speaks mqtt:// only")
    sink = Sink(address.host, 0 if url.endswith(":65536") else address.port)

    def stop(*_: object) -> None:
        sink.stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    host = f"[{address.host}]" if ":" in address.host else address.host
    print(f"ready mqtt://{host}:{sink.port}", flush=True)
    sink.serve()
    print(f"{sink.hub.packets} packets", file=sys.stderr)
    return 0
