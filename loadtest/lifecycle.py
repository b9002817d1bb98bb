"""From nothing to subscribed and back: connecting, handshakes, CONNACK, SUBACK, loss and return of a worker's clients."""

from __future__ import annotations

import dataclasses
import errno
import heapq
import os
import random
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from loadtest import frames, links
from loadtest.address import Address
from loadtest.client import CONNECTING, IDLE, LEAVING, SHAKING, UP, WAITING, Client
from loadtest.layout import Group
from loadtest.tally import Tally

SUBSCRIBE_BATCH = 100
"""Filters in one SUBSCRIBE."""
SUBSCRIBE_OPEN = 4
"""SUBSCRIBE packets without SUBACK per client."""
CONNECTING_MAX = 64
"""Connections in progress at once, over all workers."""
BACKOFF_FIRST = 0.02
BACKOFF_MAX = 0.5
SEND_BUFFER = 128 * 1024
LINGER = 1.0
"""Seconds that a polite leave waits for the broker's close."""


class Life:
    """What the worker notes of one client beside its connection."""

    __slots__ = (
        "absences", "absent_from", "attempts", "clean_start", "due", "filters", "had_session", "open_subscribes", "opened", "packet_id",
        "place", "refused", "subscribe_sent", "subscribed", "wanted",
    )  # fmt: skip

    def __init__(self, place: int) -> None:
        self.place = place
        """Index within the group."""
        self.wanted = False
        self.attempts = 0
        self.due = 0
        self.opened = 0
        self.clean_start: bool | None = None
        self.had_session = False
        self.subscribed = False
        self.refused = False
        self.filters: Iterator[str] | None = None
        self.open_subscribes = 0
        self.packet_id = 0
        self.subscribe_sent = 0
        self.absent_from: int | None = 0
        self.absences: list[tuple[int, int]] = []


class Lifecycle:
    """Brings clients up and keeps them up; all of a worker's connections pass through here."""

    def __init__(self, tally: Tally, poll: select.epoll, groups: list[Group], options: list[frames.ConnectOptions],
                 address: Address, target: tuple[int, Any], context: Any, prefix: str, bind: tuple[str, ...], workers: int,
                 timeout: float, seed: int) -> None:  # fmt: skip
        self.tally = tally
        self.poll = poll
        self.groups = groups
        self.options = options
        self.address = address
        self.target = target
        self.context = context
        self.prefix = prefix
        self.bind = bind
        self.in_progress_max = max(4, CONNECTING_MAX // workers)
        self.timeout_ns = int(timeout * 1e9)
        self.random = random.Random(seed)
        self.by_fd: list[Client | None] = [None] * 1024
        self.queue: deque[Client] = deque()
        self.retries: list[tuple[int, int, Client]] = []
        self.progressing: dict[Client, int] = {}
        """Clients between connect() and CONNACK or the last SUBACK → deadline."""
        self.leaving: dict[Client, int] = {}
        self.reasons: Counter[str] = Counter()
        self.connected = 0
        self.connect_failed = self.connects = self.subscribe_refused = self.disconnects = self.sessions_lost = 0
        self.last_connected = 0
        self.first_attempt = 0
        self.interval = 0.0
        self.paused: set[Client] = set()
        self.ghosts: list[int] = []
        """Sockets of half-open connections: open, and never touched again."""

    # ------------------------------------------------------------- wanting
    def want(self, clients: list[Client], interval: float = 0.0, offset: float = 0.0, clean: bool | None = None) -> None:
        """Bring these up, one each `interval` ns (0: as fast as they are answered), the first after `offset` ns."""
        now = time.monotonic_ns()
        self.interval = interval
        for place, client in enumerate(clients):
            life: Life = client.work
            life.wanted = True
            life.attempts = 0
            life.due = int(now + offset + place * interval) if interval else 0
            life.clean_start = clean
            if client.state == IDLE:
                self.queue.append(client)

    def step(self, now: int) -> int:
        """Starts what is due; when to be called again (ns)."""
        while self.retries and self.retries[0][0] <= now:
            client = heapq.heappop(self.retries)[2]
            if client.work.wanted and client.state == IDLE:
                self.queue.append(client)
        while self.queue and len(self.progressing) < self.in_progress_max:
            due = self.queue[0].work.due
            if due > now:
                return int(min(due, now + 10_000_000))
            client = self.queue.popleft()
            if client.state == IDLE and client.work.wanted:
                self._open(client, now)
        wake = now + 10_000_000
        return min(wake, self.retries[0][0]) if self.retries else wake

    def expire(self, now: int) -> None:
        """Ends attempts without an answer and leaves without a close; called every few ms."""
        for client, deadline in list(self.progressing.items()):
            if now > deadline:
                self.failed(client, "no SUBACK in time" if client.state == UP else "no CONNACK in time")
        for client, deadline in list(self.leaving.items()):
            if now > deadline:
                self._close(client)

    def _open(self, client: Client, now: int) -> None:
        family, where = self.target
        life: Life = client.work
        life.opened = time.monotonic_ns()
        if life.due == 0 or life.attempts:
            life.due = life.opened
        self.first_attempt = self.first_attempt or life.opened
        self.progressing[client] = now + self.timeout_ns
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as failure:
            self.failed(client, failure.strerror or str(failure))
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if client.publisher is not None and client.publisher.qos == 0:
            # What lies in our own socket is neither sent nor late: keep it small, so that a full one shows at once.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        try:
            if self.bind:
                sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: the port is picked per destination
                sock.bind((self.bind[client.index % len(self.bind)], 0))
            code = sock.connect_ex(where)
        except OSError as failure:
            code = failure.errno or errno.EIO
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self.failed(client, os.strerror(code).lower())
            return
        client.link = None
        client.fd = sock.detach()
        client.state = CONNECTING
        self._place(client)
        self.poll.register(client.fd, select.EPOLLOUT)

    def _place(self, client: Client) -> None:
        while client.fd >= len(self.by_fd):
            self.by_fd.extend([None] * len(self.by_fd))
        self.by_fd[client.fd] = client

    # ------------------------------------------------------------- handshakes
    def progress(self, client: Client, events: int) -> None:
        """An event of a client that is not up yet."""
        if client.state == CONNECTING:
            probe = socket.socket(fileno=client.fd)
            code = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code or events & select.EPOLLERR:
                probe.detach()
                self.failed(client, os.strerror(code or errno.ECONNRESET).lower())
                return
            probe.setblocking(False)
            try:
                link = links.link_for(probe, self.address, self.context) if self.address.scheme != "mqtt" else None
            except (OSError, ValueError) as failure:
                self.failed(client, str(failure))
                return
            if link is None:
                probe.detach()
                self._say_connect(client)
                return
            client.link = link
            client.state = SHAKING
        if client.state == SHAKING:
            try:
                wanted = client.link.handshake()
            except links.LinkError as failure:
                self.failed(client, str(failure))
                return
            if wanted == links.DONE:
                self._say_connect(client)
            else:
                self.poll.modify(client.fd, select.EPOLLIN if wanted == links.WANT_READ else select.EPOLLOUT)

    def _say_connect(self, client: Client) -> None:
        life: Life = client.work
        client.state = WAITING
        options = self.options[client.group]
        clean = life.clean_start if life.clean_start is not None else options.clean
        client_id = f"{self.prefix}{client.group}-{life.place}".encode()
        self.poll.modify(client.fd, select.EPOLLIN)
        if life.clean_start:
            options = dataclasses.replace(options, session_expiry=0)  # this session is to end, not to begin anew
        client.put(frames.connect(options, client_id, clean))
        if client.tail is not None:
            self.poll.modify(client.fd, select.EPOLLIN | select.EPOLLOUT)

    def control(self, client: Client, first: int, body: bytes) -> None:
        """A packet that is not per message: called by the client while it scans."""
        kind = first >> 4
        try:
            if first == 0:
                self.reasons[f"acknowledgement {frames.reason_text(body[0], 5)}"] += 1
            elif first == 0x20 and client.state == WAITING:
                self._connack(client, frames.connack(body, client.version))
            elif first == 0x90 and client.state == UP:
                self._suback(client, body)
            elif first == 0xB0 and client.state == UP:
                pass
            elif first == 0xE0 and client.version == 5:
                reason = body[0] if body else 0
                self.reasons[f"disconnect {frames.reason_text(reason, 5)}"] += 1
            else:
                raise frames.BadFrame(f"packet type {kind}")
        except (frames.BadFrame, IndexError):
            self.tally.protocol_errors += 1
            self.lost(client, "broke the protocol")

    def _connack(self, client: Client, answer: frames.Connack) -> None:
        life: Life = client.work
        if answer.reason:
            self.reasons[f"connect {frames.reason_text(answer.reason, client.version)}"] += 1
            self.failed(client, "")
            return
        now = time.monotonic_ns()
        group = self.groups[client.group]
        client.state = UP
        self.connected += 1
        self.connects += 1
        self.last_connected = now
        life.attempts = 0
        self.tally.connect.record(now - life.due)
        if life.had_session and not answer.session_present and life.clean_start is None:
            self.sessions_lost += 1
        if not answer.session_present:
            client.received_ids = None
            life.subscribed = False
        publisher = client.publisher
        if publisher is not None:
            publisher.receive_maximum = answer.receive_maximum
            publisher.reconnected(answer.session_present)
        life.had_session = group.persistent
        if group.subscribe is None or life.subscribed or life.clean_start:
            self._ready(client)
            return
        life.filters = group.subscribe.filters_of(life.place)
        life.open_subscribes = 0
        life.subscribe_sent = now
        self._subscribe(client)

    def _subscribe(self, client: Client) -> None:
        """The next SUBSCRIBE packets, as many as may be open."""
        life: Life = client.work
        subscribe = self.groups[client.group].subscribe
        assert subscribe is not None
        assert life.filters is not None
        while life.open_subscribes < SUBSCRIBE_OPEN:
            batch = [topic_filter.encode() for _, topic_filter in zip(range(SUBSCRIBE_BATCH), life.filters, strict=False)]
            if not batch:
                break
            life.packet_id = life.packet_id % 65535 + 1
            life.open_subscribes += 1
            client.put(frames.subscribe(life.packet_id, batch, subscribe.qos, client.version))

    def _suback(self, client: Client, body: bytes) -> None:
        life: Life = client.work
        _, codes = frames.suback(body, client.version)
        for code in codes:
            if code >= 0x80:
                self.subscribe_refused += 1
                life.refused = True
                self.reasons[f"subscribe {frames.reason_text(code, 5)}"] += 1
        life.open_subscribes -= 1
        self._subscribe(client)
        if life.open_subscribes <= 0 and not life.subscribed:
            life.subscribed = True
            self.tally.subscribe.record(time.monotonic_ns() - life.subscribe_sent)
            self._ready(client)

    def _ready(self, client: Client) -> None:
        """Up, and subscribed to what it should be."""
        self.progressing.pop(client, None)
        life: Life = client.work
        if self.tally.track_epochs and client.row is not None and life.absent_from is not None and life.subscribed:
            life.absences.append((life.absent_from, self.tally.next_epoch()))
            life.absent_from = None
        self.on_ready(client)

    def on_ready(self, client: Client) -> None:
        """For the worker to override: a client may begin its part."""

    # ------------------------------------------------------------- ends
    def failed(self, client: Client, why: str) -> None:
        """An attempt to connect or subscribe came to nothing; it is made again later."""
        self.connect_failed += 1
        if why:
            self.reasons[f"connect: {why}"] += 1
        self._close(client)
        self._again(client)

    def lost(self, client: Client, why: str) -> None:
        """An established connection is gone, and not by our will."""
        if client.state == LEAVING:
            self._close(client)
            return
        if client.state != UP:
            self.failed(client, "connection closed before CONNACK" if client.state == WAITING else why)
            return
        self.disconnects += 1
        self._close(client)
        self._again(client)

    def _again(self, client: Client) -> None:
        life: Life = client.work
        if life.wanted:
            pause = min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** min(life.attempts, 10)) * self.random.uniform(0.5, 1.0)
            life.attempts += 1
            heapq.heappush(self.retries, (time.monotonic_ns() + int(pause * 1e9), client.index, client))

    def leave(self, client: Client, politely: bool = True) -> None:
        """DISCONNECT and close; or just close, as a device that loses its link."""
        life: Life = client.work
        life.wanted = False
        if client.state == UP and politely:
            client.put(frames.DISCONNECT)
            self._absent(client)
            self.connected -= 1
            client.state = LEAVING
            self.progressing.pop(client, None)
            self.leaving[client] = time.monotonic_ns() + int(LINGER * 1e9)
            if client.tail is None and client.link is None:
                self._half_close(client)
        elif client.state != LEAVING:
            self._close(client)

    def _half_close(self, client: Client) -> None:
        sock = socket.socket(fileno=client.fd)
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        sock.detach()

    def drop(self, client: Client, keep_socket: bool = False) -> None:
        """Cut the connection without a word and come back; `keep_socket` leaves it half open."""
        if client.state == UP:
            self.disconnects += 1
        if keep_socket and client.state == UP and client.link is None:
            ghost = client.fd
            self.poll.unregister(ghost)
            self.by_fd[ghost] = None
            self.ghosts.append(ghost)
            self._absent(client)
            self.connected -= 1
            client.forget()
        else:
            self._close(client)
        self._again(client)

    def _absent(self, client: Client) -> None:
        if not self.groups[client.group].persistent:
            client.work.subscribed = False
        if self.groups[client.group].churn:
            return  # it leaves only when it has all of its own messages
        if self.tally.track_epochs and client.row is not None and client.work.absent_from is None:
            client.work.absent_from = self.tally.next_epoch()

    def _close(self, client: Client) -> None:
        self.progressing.pop(client, None)
        self.leaving.pop(client, None)
        self.paused.discard(client)
        if client.state == UP:
            self.connected -= 1
            self._absent(client)
        if client.fd >= 0:
            self.by_fd[client.fd] = None
            if client.link is not None:
                client.link.close()
            else:
                os.close(client.fd)
        client.forget()

    def close_ghosts(self) -> None:
        for ghost in self.ghosts:
            os.close(ghost)
        self.ghosts.clear()
