"""A whole broker without sockets: the real flows on a real store, and clients whose bytes are handed over in memory.

Time stands still unless a test moves it (`advance`); nothing is synced to the disk, so a turn costs microseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmq_store.embedded.files import OsFiles
from lmq_store.embedded.store import EmbeddedStore, StoreOptions
from mqtt_proxy.broker import TICK_MS
from mqtt_proxy.net.listen_url import parse_listen_url
from mqtt_proxy.net.turn import Turn
from mqtt_proxy.packets.decoder import decode
from mqtt_proxy.packets.reason_codes import ReasonCode
from mqtt_proxy.policy.acl import Acl
from mqtt_proxy.settings import Settings
from mqtt_proxy.wiring import Policy, wire_broker
from tests.conformance import wire

OPEN, CLOSING, CLOSED = 0, 1, 2
"""`Link.state`; in the compiled module these are C constants."""
CLOCK_MS = 1_700_000_000_000
"""When time begins."""
FIRST_FD = 200_000
"""Numbers that no open file of this process has."""


class UnsyncedFiles(OsFiles):
    """The file system, but for the wait: a sync returns at once."""

    def fdatasync(self, handle: int) -> None:
        pass


def open_unsynced(folder: Path, now_ms: int = CLOCK_MS, **options: Any) -> EmbeddedStore:
    """An embedded store whose syncs are done in no time."""
    asked = StoreOptions(**({"segment_bytes": 4 << 20, "min_free_bytes": 0} | options))
    return EmbeddedStore.open(str(folder), asked, files=UnsyncedFiles(), now_ms=now_ms)


class NoEpoll:
    """Takes registrations of descriptors that do not exist."""

    def register(self, fd: int, mask: int) -> None: ...

    def modify(self, fd: int, mask: int) -> None: ...


class AnyListener:
    """A plain one."""

    def __init__(self) -> None:
        self.options = parse_listen_url("mqtt://127.0.0.1:1883")
        self.open_links = 0


class Faults(logging.Handler):
    """Keeps what the broker logs as an error: a fault that it survived is a fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(logging.Formatter().format(record))


class BrokerInMemory:
    """The broker of `settings` on a store, its turns and its clock. A context manager."""

    def __init__(self, store: Any, settings: Settings | None = None, now_ms: int = CLOCK_MS) -> None:
        self.store = store
        self.settings = settings or Settings(allow_anonymous=True)
        self.faults = Faults()
        logging.getLogger().addHandler(self.faults)
        self.now_ms = now_ms
        self.calls: list[Callable[[], None]] = []
        self.turn_state = Turn(NoEpoll())  # type: ignore[arg-type]
        self.broker = wire_broker(self.settings, store, Policy(None, Acl(None)), self.calls.append, lambda: self.now_ms)
        self.broker.turn_again = self.turn_state.ask
        self.listener = AnyListener()
        self.clients: list[Client] = []
        self.free = list(range(FIRST_FD + 1_000, FIRST_FD, -1))
        self.turn_state.links = [None] * (FIRST_FD + 1_001)
        self.broker.begin_turn()

    def __enter__(self) -> BrokerInMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop in order, as the server does."""
        self.broker.stopping = True
        self.broker.disconnecting.shut_down(ReasonCode.SERVER_SHUTTING_DOWN, "")
        self.turn()
        self.broker.save_all()
        self.broker.end_turn()
        self._leave()
        self.store.close()

    def cut_off(self) -> None:
        """End without writing a byte more, as a killed process would."""
        self._leave()
        self.store.abandon()
        for queue in self.store.queues.open.values():  # unknown to the cycle collector, and they lead to sessions that are still there
            queue.readers = []

    def _leave(self) -> None:
        logging.getLogger().removeHandler(self.faults)
        self.broker.authenticating.authenticator.close()

    def accept(self) -> Client:
        """A new connection that has sent nothing yet."""
        client = Client(self, self.free.pop())
        self.clients.append(client)
        return client

    def connect(self, client_id: str | bytes, version: int = 5, **connect: Any) -> Client:
        """A client that has its CONNACK."""
        client = self.accept()
        client.send(wire.connect(client_id, version, **connect))
        self.settle()
        connack, *client.inbox = client.take()
        assert connack.type == wire.Type.CONNACK and connack.reason == 0, connack
        return client

    def turn(self) -> bool:
        """One turn of the loop; True when it was busy."""
        state = self.turn_state
        state.running = True
        state.again = state.woken = False
        busy = self._answer_syncs()
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()
            busy = True
        for client in list(self.clients):
            busy |= client.feed()
        self.broker.end_turn()
        busy |= self._flush()
        self.broker.commit_turn()
        busy |= self._flush()
        state.running = False
        asked = state.again or state.woken or bool(state.dirty)
        assert asked or self.store.commits.in_flight or not self._waiting(), "work waits for a turn that nobody has asked for"
        state.doomed.clear()
        state.fed.clear()
        state.lingering.clear()
        return busy or asked

    def _flush(self) -> bool:
        dirty, self.turn_state.dirty = self.turn_state.dirty, []
        for conn in dirty:
            conn.dirty = False
        busy = False
        for client in [client for client in self.clients if client.conn.out is not None or client.conn.state != OPEN]:
            busy |= client.collect()
        return busy

    def _waiting(self) -> bool:
        """True where something is left that only another turn does."""
        broker = self.broker
        return bool(broker.inbound.batch or broker.deliverer.due or broker.promises.gated or broker.promises.calls)

    def _answer_syncs(self) -> bool:
        in_flight: bool = self.store.commits.in_flight
        if in_flight:
            self.store.on_sync_ready()
        return in_flight

    def settle(self, most: int = 10_000) -> None:
        """Turns until nothing is left to do."""
        for _ in range(most):
            if not self.turn() and not self.store.commits.in_flight and not self.calls:
                return
        raise AssertionError(f"the broker is still busy after {most} turns")

    def advance(self, ms: int, step_ms: int = TICK_MS) -> None:
        """Let time pass, with the ticks that belong to it."""
        until = self.now_ms + ms
        while self.now_ms < until:
            self.now_ms = min(until, self.now_ms + step_ms)
            self.turn_state.now_ms = self.now_ms
            self.broker.tick()
            self.turn()


class Client:
    """One connection, seen from the device. `reads` False is a device that takes no bytes."""

    def __init__(self, lab: BrokerInMemory, fd: int) -> None:
        self.lab = lab
        self.fd = fd
        conn = lab.broker.admission.accept(lab.turn_state, fd, "127.0.0.1:1", lab.listener)  # type: ignore[arg-type]
        assert conn is not None
        self.conn = conn
        self.conn.start()
        self.unread = bytearray()
        self.got = bytearray()
        self.inbox: list[wire.Packet] = []
        self.reads = True

    @property
    def closed(self) -> bool:
        return bool(self.conn.state == CLOSED)

    def send(self, *packets: bytes) -> None:
        """Bytes on their way; the next turn hands them to the broker."""
        self.unread += b"".join(packets)

    def drop(self) -> None:
        """The connection breaks without a word."""
        if self.conn.state != CLOSED:
            self.conn.fail("closed by peer")
            self._gone()

    def feed(self) -> bool:
        conn = self.conn
        if not self.unread or conn.state != OPEN or conn.paused:
            return False
        consumed = conn.received(self.unread, 0, len(self.unread))
        del self.unread[:consumed]
        return consumed > 0

    def collect(self) -> bool:
        """Take what the broker sent, as a socket would; ends a closing connection."""
        conn = self.conn
        busy = False
        if conn.out is not None and self.reads:
            self.got += memoryview(conn.out)[conn.sent :]
            conn.out = None
            conn.sent = 0
            busy = True
            if conn.stalled:
                conn.stalled = False
                conn.drained()
        if conn.state == CLOSING:
            conn.fail("closed")
        if conn.state == CLOSED:
            self._gone()
        return busy

    def _gone(self) -> None:
        if self in self.lab.clients:
            self.lab.clients.remove(self)
            self.lab.free.append(self.fd)

    def take(self) -> list[wire.Packet]:
        """The packets that came since the last time, checked strictly."""
        packets, self.inbox = self.inbox, []
        while (size := wire.frame_size(self.got)) and len(self.got) >= size:
            packets.append(wire.read_packet(bytes(self.got[:size]), self.conn.version or 4))
            del self.got[:size]
        return packets

    def decoded(self) -> list[Any]:
        """The same, as the product's own decoder says, which is fast."""
        items: list[Any] = []
        end = decode(self.got, 0, len(self.got), self.conn.version or 4, 1 << 28, items, False)
        del self.got[:end]
        return items
