"""What every kind of worker shares: payloads and CONNECT options of the groups, and its part of the ledger at the end."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

from loadtest import frames, payload
from loadtest.histogram import merged
from loadtest.layout import Group, Layout
from loadtest.payload import Payload
from loadtest.plan import Plan
from loadtest.tally import FOREVER

if TYPE_CHECKING:
    from loadtest.orders import Orders

KINDS = {"zero": payload.ZERO, "random": payload.RANDOM, "json": payload.JSON}
COUNTS = (
    "sent", "acked", "rejected", "delivered", "duplicate", "redelivered", "reordered", "corrupt", "foreign", "phantom", "misrouted",
    "retained_repeats", "retransmitted", "protocol_errors", "measured_sent", "measured_acked", "measured_delivered",
    "last_sent", "last_acked", "first_delivered", "last_delivered", "last_pong",
)  # fmt: skip
HISTOGRAMS = ("ack", "send_to_ack", "end_to_end", "send_late", "connect", "subscribe")


def payloads_of(layout: Layout, run: int, plan: Plan, lines: dict[str, list[bytes]]) -> list[Any]:
    """A payload maker for each group that publishes, None for the others."""
    made: list[Any] = []
    for group in layout.groups:
        publish = group.publish
        if publish is None:
            made.append(None)
            continue
        kind = KINDS.get(publish.payload, payload.LINES) if plan.ledger else payload.BARE
        smallest, largest = publish.size
        made.append(Payload(kind, run, smallest, largest, plan.seed, lines.get(publish.payload)))
    return made


def group_options(plan: Plan, group: Group) -> frames.ConnectOptions:
    will = None
    if plan.will:
        topic, _, text = plan.will.partition("=")
        will = (topic.encode(), text.encode(), plan.qos or 0, False)
    return frames.ConnectOptions(
        version=frames.LEVELS[plan.mqtt],
        clean=not group.persistent,
        keep_alive=plan.keepalive,
        username=plan.username.encode() if plan.username is not None else None,
        password=plan.password.encode() if plan.password is not None else None,
        session_expiry=int(plan.session_expiry) if group.persistent else 0,
        receive_maximum=plan.receive_max or 0,
        will=will,
    )


def ledger_of(worker: Orders) -> dict[str, Any]:
    """One worker's part of the ledger, as the account merges it."""
    tally, life = worker.tally, worker.life
    publishers: dict[int, tuple[int, int, int, list[tuple[int, int, int]]]] = {}
    for number, clients in enumerate(worker.by_group):
        if worker.layout.groups[number].responder:
            continue
        for client in clients:
            publisher = client.publisher
            if publisher is not None:
                publishers[publisher.number] = (publisher.next_number, publisher.in_flight, publisher.waiting(), publisher.ack_runs)
    rows = []
    for note in worker.rows:
        absences: list[tuple[int, int]] = []
        if len(note.clients) == 1 and tally.track_epochs:
            single = note.clients[0].work
            absences = list(single.absences)
            if single.absent_from is not None:
                absences.append((single.absent_from, FOREVER))
        refused = all(client.work.refused or client.work.subscribe_sent == 0 for client in note.clients)
        rows.append((note.key, note.row.first, note.row.number, note.row.cell, note.row.qos, note.spans, absences, refused))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "publishers": publishers,
        "acknowledged": tally.acknowledged.picture(),
        "rejected_numbers": tally.rejected_numbers,
        "resent": tally.resent,
        "repeats": tally.repeats,
        "flagged_firsts": tally.flagged_firsts,
        "seen": tally.seen.picture(),
        "rows": rows,
        "counts": {name: getattr(tally, name) for name in COUNTS},
        "histograms": {name: getattr(tally, name).sparse() for name in HISTOGRAMS},
        "pacing": worker.pacing,
        "loop_late": merged(schedule.late.sparse() for schedule in worker.schedules).sparse(),
        "life": {
            "sessions_lost": life.sessions_lost, "connect_failed": life.connect_failed, "subscribe_refused": life.subscribe_refused,
            "disconnects": life.disconnects, "connects": life.connects, "first_attempt": life.first_attempt,
            "last_connected": life.last_connected,
        },
        "reasons": dict(life.reasons),
        "cpu_measured": max(0.0, worker.cpu_until - worker.cpu_from),
        "cpu_whole": usage.ru_utime + usage.ru_stime,
    }  # fmt: skip
