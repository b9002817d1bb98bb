"""A campaign: one server and its folder over many rounds of load, SIGKILL, check, restart, drain and account."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from lmq_store.embedded.check import check
from mqtt_proxy.demo.client import ONLINE, Clients
from mqtt_proxy.demo.server_process import ServerProcess
from mqtt_proxy.packets.types import V5, V311

from .actors import Churner, Historian, Keeper, Mourned, Reborn, Source, Subscriber, Witness, wild
from .ledger import Publisher, Receipts

DRAIN_S = 10.0
"""No progress for so long while draining: what is missing is lost."""
OPTIONS = (
    "--segment-bytes", "1MiB", "--retention-bytes", "6MiB", "--queue-grace-s", "1", "--will-grace-s", "0", "--sys-interval-s", "0",
    "--min-free-bytes", "1MiB",
)  # fmt: skip
QOS_OF_PUBLISHERS = (1, 2, 1, 2, 1, 2, 0)
P2P = "sub-p2p"
SLEEP_ROUNDS = 12
"""How long the sleeper is away: longer than retention keeps messages."""


class CampaignFailed(AssertionError):
    """Something was lost, came twice, or came out of order."""


class Campaign:
    """Seeded: what is done, and when, follows from `seed`; how far the server gets in that time doesn't."""

    def __init__(self, folder: Path, seed: int, messages: int = 600, say: Callable[[str], None] = print) -> None:
        self.rng = rng = random.Random(seed)
        self.messages = messages
        self.say = say
        self.server = ServerProcess(folder, (*OPTIONS, "--flush", rng.choice(("sync", "sync", "async"))))
        self.server.start()
        self.clients = clients = Clients(self.server.address)
        self.publishers = [Publisher(number, qos) for number, qos in enumerate(QOS_OF_PUBLISHERS)]
        self.publishers += [Publisher(len(QOS_OF_PUBLISHERS) + number, qos, P2P) for number, qos in enumerate((1, 2))]
        self.sources = [Source(clients, publisher, rng) for publisher in self.publishers]
        self.keeper = Keeper(clients, rng)
        self.mourned = Mourned(clients, rng)
        self.round = 0
        self.rounds_asleep = 0
        self.woken_at = self.history_from = 0
        """Where the server's log stood then."""
        self.full = [
            self._subscriber("sub-exactly", V5, [("crash/#", 2)]),
            self._subscriber("sub-at-least", V311, [("crash/+/+", 1)]),
            self._subscriber("sub-overlap", V5, [("crash/#", 2), ("crash/1/#", 1), ("crash/+/2", 2)]),
            self._subscriber("sub-narrow-window", V5, [("crash/#", 2)], window=3),
        ]
        self.taken_over = self._subscriber("sub-taken-over", V311, [("crash/#", 2)])
        self.flappers = [self._subscriber("sub-flap-1", V5, [("crash/#", 1)]), self._subscriber("sub-flap-2", V311, [("crash/+/#", 2)])]
        self.sleeper = self._subscriber("sub-sleeper", V5, [("crash/#", 1)])
        self.sleeper.receipts.ordered = False  # it may be moved to between two copies of what a publisher sent again
        self.groups = [self._group("g1", 1), self._group("g2", 2)]
        self.reborn = Reborn(clients, "sub-reborn", V5, [("crash/#", 2)], self._receipts("sub-reborn", 2))
        self.churners = [
            Churner(clients, "churn-1", V5, "crash/+/1", self._receipts("churn-1", 2)),
            Churner(clients, "churn-2", V311, "crash/3/#", self._receipts("churn-2", 2)),
            Churner(clients, "churn-3", V5, "crash/2/#", self._receipts("churn-3", 1)),
        ]
        for churner in self.churners:
            churner.receipts.only = churner.filter.encode()
        self.p2p = self._subscriber(P2P, V5, [])
        self.p2p.receipts.only = b"$p2p/" + P2P.encode()
        self.historian = Historian(clients, "sub-history", V5, [("crash/+/3", 2)], self._receipts("sub-history", 2, ordered=False))
        self.historian.receipts.only = b"crash/+/3"
        self.members = [member for group in self.groups for member in group]
        self.subscribers = [*self.full, self.taken_over, *self.flappers, self.sleeper, self.reborn, self.p2p, self.historian, *self.members]

    def _receipts(self, name: str, qos: int, ordered: bool = True) -> Receipts:
        return Receipts(name, self.publishers, qos, ordered)

    def _subscriber(self, name: str, version: int, filters: list[tuple[str, int]], window: int = 50) -> Subscriber:
        receipts = self._receipts(name, max([qos for _, qos in filters], default=2))
        return Subscriber(self.clients, name, version, filters, receipts, window)

    def _group(self, name: str, qos: int) -> list[Subscriber]:
        receipts = self._receipts(f"$share/{name}", qos, ordered=False)
        return [
            Subscriber(self.clients, f"{name}-{number}", V5 if number else V311, [(f"$share/{name}/crash/#", qos)], receipts)
            for number in range(3)
        ]

    # --- a round --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Everyone connects and subscribes."""
        self.mourned.mourner.go_online()
        self._all_online()
        self._until(self._settled, "subscribing")

    def run_round(self) -> None:
        """Load, kill, check, restart, drain, account. Raises CampaignFailed."""
        self.round += 1
        rng = self.rng
        for source in self.sources:
            source.budget = rng.randrange(self.messages // 4, self.messages)
        self.keeper.budget = rng.randrange(40)
        self.mourned.bear(rng.randrange(4))
        if self.sleeper.client.wanted and rng.random() < 0.5:
            self.sleeper.client.leave()
            self.rounds_asleep = 0
        self._load(rng.uniform(0.02, 0.8))
        self.server.kill()
        self.mourned.crash()
        self._check()
        if rng.random() < 0.25:  # killed again while it opens
            self.server.launch()
            time.sleep(rng.uniform(0.0, 0.5))
            self.server.kill()
            self._check()
        self.server.start()
        self._drain()
        self._account()

    def _load(self, seconds: float) -> None:
        rng = self.rng
        end = time.monotonic() + seconds
        acts_at = 0.0
        while (now := time.monotonic()) < end:
            self._feed()
            self.clients.turn(0.005)
            if now < acts_at:
                continue
            acts_at = now + 0.03
            choices: list[tuple[float, Callable[[], object]]] = [
                (0.05, self.taken_over.client.take_over),
                (0.03, lambda: rng.choice(self.sources).client.take_over()),
                (0.05, lambda: self._flap(rng.choice(self.flappers))),
                (0.05, lambda: self._flap(rng.choice(self.members))),
                (0.03, self.reborn.end_session),
                (0.03, self._begin_history),
                (0.03, lambda: self._flap(self.p2p)),
                (0.30, lambda: rng.choice(self.churners).toggle()),
                (0.05, lambda: self.mourned.die(1)),
                (0.05, lambda: self.mourned.bear(1)),
            ]
            wild(rng, choices)

    def _begin_history(self) -> None:
        self.history_from = self.server.log.stat().st_size
        self.historian.end_session()

    def _flap(self, subscriber: Subscriber) -> None:
        client = subscriber.client
        if not client.wanted:
            client.go_online()
        elif self.rng.random() < 0.5:
            client.leave()
        else:
            client.drop()

    def _feed(self) -> None:
        for source in self.sources:
            source.feed()
        self.keeper.feed()

    def _check(self) -> None:
        findings = check(str(self.server.data))
        if findings.faults:
            raise CampaignFailed(f"lmq store check: {findings.faults[:10]}")

    # --- after the restart ----------------------------------------------------------------------------------------------

    def _all_online(self) -> None:
        for source in self.sources:
            source.client.go_online()
        self.keeper.client.go_online()
        for subscriber in self.subscribers:
            if subscriber is not self.sleeper or self.round == 0:
                subscriber.client.go_online()
        for churner in self.churners:
            churner.client.go_online()

    def _settled(self) -> bool:
        present = [one for one in self.subscribers if one is not self.sleeper or one.client.wanted]
        return all(one.settled for one in [*present, *self.churners]) and all(
            source.client.state == ONLINE and not source.budget and source.client.idle for source in self.sources
        ) and not self.keeper.budget and self.keeper.client.idle and self.mourned.mourner.state == ONLINE  # fmt: skip

    def _drain(self) -> None:
        self._all_online()
        if not self.sleeper.client.wanted:
            self.rounds_asleep += 1
            if self.rounds_asleep >= SLEEP_ROUNDS:
                self.woken_at = self.server.log.stat().st_size
                self.sleeper.client.go_online()
        for source in self.sources:
            source.budget = min(source.budget, 30)  # a little of the load goes on over the restart
        self._until(self._settled, "settling")
        self._until(lambda: not self._missing(), "draining")
        self._quiet()

    def _quiet(self) -> None:
        """Let repeats come, should there be any."""
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            self.clients.turn(0.01)

    def _log_from(self, at: int) -> str:
        with self.server.log.open() as log:
            log.seek(at)
            return log.read()

    def _missing(self) -> list[str]:
        texts: list[str] = []
        for receipts in self._all_receipts():
            if receipts not in (self.sleeper.receipts, self.historian.receipts):
                texts += receipts.missing()
        texts += [
            f"{one.name}: not at the end yet" for one in (self.sleeper, self.historian) if one.client.wanted and one.receipts.behind()
        ]
        return texts + self.mourned.missing()

    def _all_receipts(self) -> list[Receipts]:
        return list({id(one.receipts): one.receipts for one in [*self.subscribers, *self.churners]}.values())

    def _until(self, done: Callable[[], bool], what: str) -> None:
        moved_at = time.monotonic()
        before = -1
        look_at = 0.0
        while True:
            self._feed()
            busy = self.clients.turn(0.01)
            now = time.monotonic()
            if (not busy or now >= look_at) and done():
                return
            if now >= look_at:
                look_at = now + 0.1
            progress = sum(one.taken for one in self._all_receipts()) + sum(publisher.acked_below for publisher in self.publishers)
            if progress != before:
                before, moved_at = progress, now
            elif now - moved_at > DRAIN_S:
                self._fail(what)

    def _fail(self, what: str) -> None:
        lines = [f"nothing moves for {DRAIN_S:g} s while {what}", *self._missing()]
        lines += [one.name for one in [*self.subscribers, *self.churners] if not one.settled and one.client.wanted]
        lines += [
            f"{source.client.client_id}: state {source.client.state}, {len(source.client.in_flight)} unacknowledged"
            for source in self.sources if not source.client.idle
        ]  # fmt: skip
        raise CampaignFailed("\n  ".join(lines))

    def _account(self) -> None:
        faults = [fault for receipts in self._all_receipts() for fault in receipts.faults]
        history = self.historian.receipts.history_fault()
        if history and "sub-history: moved forward" not in self._log_from(self.history_from):  # else: overtaken by retention
            faults.append(history)
        if self.sleeper.client.wanted and self.rounds_asleep:
            fault = self.sleeper.receipts.suffix_fault()
            if fault and self._log_from(self.woken_at).count("sub-sleeper: moved forward") < 2:  # more: overtaken while it was reading
                faults.append(fault)
            self.rounds_asleep = 0
        if self.sleeper.client.wanted:
            self.sleeper.receipts.open_from = [publisher.sent for publisher in self.publishers]
        witness = Witness(self.clients, f"witness-{self.round}")
        witness.client.go_online()
        self._until(lambda: witness.complete, "looking at what is retained")
        witness.client.leave()
        self.clients.all.remove(witness.client)
        faults += self.keeper.retained.difference(witness.found)
        if faults:
            raise CampaignFailed("\n  ".join(faults))

    def end(self) -> None:
        """Stop cleanly and look at the folder once more. Raises CampaignFailed."""
        self.clients.close()
        status = self.server.stop()
        if status:
            raise CampaignFailed(f"the server ended with status {status} on SIGTERM:\n{self.server.last_lines()}")
        self._check()

    def summary(self) -> str:
        sent = sum(publisher.sent for publisher in self.publishers)
        taken = sum(receipts.taken for receipts in self._all_receipts())
        repeats = sum(receipts.redelivered for receipts in self._all_receipts())
        return f"{sent:,} published, {taken:,} delivered, {repeats:,} redelivered, {len(self.mourned.seen)} wills"
