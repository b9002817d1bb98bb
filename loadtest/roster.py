"""A worker's share of a plan: its clients with their halves, the rows of the ledger that they fill, and what they count into."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from loadtest import frames, links
from loadtest.address import Address
from loadtest.client import CLOSED, OPEN, Client
from loadtest.layout import Group, Layout
from loadtest.lifecycle import Life, Lifecycle
from loadtest.pacing import Schedule
from loadtest.payload import Payload
from loadtest.plan import Plan
from loadtest.publisher import Publisher
from loadtest.responder import Responder
from loadtest.server_process import usage_of
from loadtest.tally import FOREVER, OUTBOX, Row, Tally
from loadtest.workforce import group_options, payloads_of


@dataclass(slots=True)
class Assignment:
    """What a worker is told at its start."""

    plan: Plan
    layout: Layout
    run: int
    worker: int
    workers: int
    board: memoryview
    address: Address
    target: tuple[int, Any]
    lines: dict[str, list[bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class RowNote:
    """A row as the account needs it: whose it is, and where its cells are."""

    key: tuple[int, int]
    """(group, client), or (group, -1 - shared group) where several clients share one row."""
    row: Row
    spans: list[tuple[int, int]]
    clients: list[Client]

class Roster:
    """Who belongs to this worker; made once, before anything connects."""

    def __init__(self, given: Assignment, pipe: Connection) -> None:
        self.given = given
        self.resident_bare = usage_of([os.getpid()])[1]
        """Bytes before there was a single client."""
        self.plan = given.plan
        self.pipe = pipe
        self.layout = given.layout
        self.poll = select.epoll()
        self.rows: list[RowNote] = []
        self.by_group: list[list[Client]] = []
        self.tally = self._tally()
        self.life = self._lifecycle()
        self.payloads = payloads_of(given.layout, given.run, given.plan, given.lines)
        self._people()
        self.schedules: list[Schedule] = []
        self.pumped: list[Client] = []
        """Closed loop without acknowledgements, or with credit: nothing wakes them but the turn."""
        self.started_at = 0
        self.second = 0
        self.turn = 0
        self.quit = False
        self.cpu_from = self.cpu_until = 0.0
        self.measured = (0, 0)
        self.fenced: set[Client] = set()
        self.flaps: list[tuple[int, list[Client], float, float]] = []
        self.churning = False
        self.pacing: Any = None
        self.poll.register(pipe.fileno(), select.EPOLLIN)
        self.next_status = self.next_chores = self.next_keepalive = 0
    def _tally(self) -> Tally:
        given, plan = self.given, self.plan
        cells = self._rows_of()
        tally = Tally(given.run, self.layout.publishers, cells, given.workers, given.worker, given.board)
        largest = max([group.publish.size[1] for group in self.layout.groups if group.publish] or [256])
        largest = max([largest] + [len(line) + 128 for lines in given.lines.values() for line in lines])
        room = max(OUTBOX, 2 * largest + OUTBOX)
        tally.inbox, tally.outbox = bytearray(room), bytearray(room)
        tally.ledger = plan.ledger
        tally.fan = self.layout.fan()
        tally.credit = plan.credit or 0 if tally.fan else 0
        tally.measure_latency = not any(group.offline or group.late for group in self.layout.groups)
        for group in self.layout.groups:
            if group.publish:
                first = group.publish.first
                for publisher in range(first, first + group.clients):
                    tally.publisher_qos[publisher] = group.publish.qos
                    tally.publisher_topics[publisher] = group.publish.topics_drawn
        tally.track_epochs = any(
            group.subscribe and not (group.persistent or group.late or group.responder or group.churn) for group in self.layout.groups
        )
        return tally

    def _rows_of(self) -> int:
        """Rows for this worker's subscribers; the number of cells that they need."""
        cells = 0
        self.row_by_key: dict[tuple[int, int], RowNote] = {}
        for number, group in enumerate(self.layout.groups):
            subscribe = group.subscribe
            if subscribe is None or group.responder:
                continue
            for place in self._places(group):
                shared = subscribe.share_groups or subscribe.one_owner
                key = (number, -1 - (place % subscribe.share_groups if subscribe.share_groups else 0)) if shared else (number, place)
                if key in self.row_by_key:
                    continue
                spans = subscribe.spans_of(place)
                first = min((start for start, _ in spans), default=0)
                last = max((start + length for start, length in spans), default=0)
                row = Row(first, last - first, cells, subscribe.qos, bool(subscribe.share_groups))
                cells += last - first
                note = RowNote(key, row, spans, [])
                self.row_by_key[key] = note
                self.rows.append(note)
        return cells

    def _places(self, group: Group) -> range:
        """The indices of a group's clients that are this worker's."""
        return range(self.given.worker, group.clients, self.given.workers)

    def _lifecycle(self) -> Lifecycle:
        given, plan = self.given, self.plan
        options = [group_options(plan, group) for group in self.layout.groups]
        context = links.tls_context(plan.ca, plan.cert, plan.key, plan.insecure) if given.address.tls else None
        made = Lifecycle(
            self.tally, self.poll, self.layout.groups, options, given.address, given.target, context, f"l{given.run:08x}-",
            plan.bind, given.workers, plan.connect_timeout, plan.seed * 1000 + given.worker,
        )  # fmt: skip
        made.on_ready = self._ready  # type: ignore[method-assign]
        return made

    def _people(self) -> None:
        """The clients of this worker, with their halves."""
        version = frames.LEVELS[self.plan.mqtt]
        members = any(group.subscribe and group.subscribe.share_groups for group in self.layout.groups)
        for number, group in enumerate(self.layout.groups):
            mine: list[Client] = []
            for place in self._places(group):
                client = Client(self.tally, group.first_client + place, version, self.life.control)
                client.group = number
                client.packet_max = max(1 << 20, 4 * len(self.tally.outbox))
                client.work = Life(place)
                if group.publish:
                    client.publisher = self._publisher(group, number, place)
                if group.subscribe and not group.responder:
                    self._give_row(client, group, number, place, members)
                if group.responder:
                    Responder.attach(client, self.tally, self.plan.sub_qos or 0, version)
                mine.append(client)
            self.by_group.append(mine)

    def _give_row(self, client: Client, group: Group, number: int, place: int, members: bool) -> None:
        subscribe = group.subscribe
        assert subscribe is not None
        shared = subscribe.share_groups or subscribe.one_owner
        key = (number, -1 - (place % subscribe.share_groups if subscribe.share_groups else 0)) if shared else (number, place)
        note = self.row_by_key[key]
        note.clients.append(client)
        client.row = note.row
        if members and subscribe.share_groups:
            client.tops = memoryview(bytearray(8 * max(1, self.layout.publishers))).cast("Q")

    def _publisher(self, group: Group, number: int, place: int) -> Publisher:
        publish = group.publish
        assert publish is not None
        before, after = publish.pattern(place)
        properties = b""
        if self.plan.mqtt == "5":
            own = frames.user_properties(self.plan.user_property)
            if publish.request:
                answer = f"load/{self.layout.run}/answer/{place}".encode()
                own = b"\x08" + frames.text(answer) + b"\x09" + frames.text(b"%d" % place) + own
            properties = frames.block(own)
        payload: Payload = self.payloads[number]
        made = Publisher(
            self.tally, publish.first + place, (before.encode(), after.encode()), publish.topics_drawn, publish.qos, publish.retain,
            properties, payload, min(publish.window, 65535),
        )  # fmt: skip
        made.limit = 0 if group.churn else publish.count if publish.count is not None else FOREVER
        return made

    def _check(self, client: Client, status: int) -> None:
        if status != OPEN and client.fd >= 0:
            self.life.lost(client, "connection closed" if status == CLOSED else "broke the protocol")

    def _ready(self, client: Client) -> None:
        """A client is up and subscribed: churners begin a life, the others go on where they were."""
        group = self.layout.groups[client.group]
        publisher = client.publisher
        if group.churn and publisher is not None and self.churning:
            publisher.limit = publisher.next_number + group.churn
        self.tally.now = time.monotonic_ns()
        self._check(client, client.pump())
