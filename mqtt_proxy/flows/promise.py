"""What waits for the disk: bytes per connection and calls, let go when the batch they depend on is durable. Compiled.

Law two in one place: nothing that promises durability leaves before the store's `done(None)`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lmq_store.api.errors import StoreError
from mqtt_proxy.connection import Connection

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

log = logging.getLogger("lmq.broker")


class Promise:
    """One turn's writes, and what leaves when all of them are durable. `done` is the store's callback, once per write."""

    __slots__ = ("calls", "conns", "counts", "keeper", "pending", "texts")

    def __init__(self, keeper: Promises) -> None:
        self.keeper = keeper
        self.conns: list[Connection] = []
        self.texts: list[bytearray] = []
        self.counts: list[int] = []
        self.calls: list[Callable[[], None]] = []
        self.pending = 0

    def done(self, error: StoreError | None) -> None:
        """One of the turn's writes is durable (or never will be: then nothing leaves)."""
        if error is not None:
            self.keeper.broker.store_failed(error)
            return
        self.pending -= 1
        if self.pending == 0:
            self.keeper.release(self)


class Promises:
    """Collects what this turn's answers are until `settle` ties them to the turn's promise."""

    __slots__ = ("broker", "calls", "gated", "last")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.gated: list[Connection] = []
        self.calls: list[Callable[[], None]] = []
        self.last: Promise | None = None

    def hold(self, conn: Connection) -> bytearray:
        """The buffer for bytes that may leave only with this turn's sync."""
        out = conn.after_sync
        if out is None:
            out = conn.after_sync = bytearray()
            self.gated.append(conn)
        return out

    def settle(self, promise: Promise | None) -> None:
        """Tie what waits to the turn's promise. A turn that wrote nothing goes behind the last one that still waits, so
        that answers keep their order; with none waiting its answers leave at once."""
        if not self.gated and not self.calls:
            return
        ready = promise or self.last or Promise(self)
        for conn in self.gated:
            if conn.after_sync is not None:
                ready.conns.append(conn)
                ready.texts.append(conn.after_sync)
                ready.counts.append(conn.after_count)
                conn.held += 1
                conn.after_sync = None
            conn.after_count = 0
        self.gated = []
        if self.calls:
            ready.calls.extend(self.calls)
            self.calls = []
        if ready.pending:
            self.last = ready
        else:
            self.release(ready)

    def release(self, promise: Promise) -> None:
        """The batch is durable: acknowledgements leave, one write for each connection."""
        if promise is self.last:
            self.last = None
        texts = promise.texts
        counts = promise.counts
        index = 0
        for conn in promise.conns:
            conn.held -= 1
            if counts[index]:
                # PUBREL may end an exchange that an earlier connection began: the quota starts anew with each (MQTT 5.0 §4.9)
                conn.unacked_in = max(0, conn.unacked_in - counts[index])
                if conn.waiting_window and conn.unacked_in < conn.receive_max_in:
                    conn.waiting_window = False
                    conn.resume_reading()
            conn.send(bytes(texts[index]))
            index += 1
        for call in promise.calls:
            self._call(call)

    def _call(self, call: Any) -> None:
        """A fault of ours in one call must not keep back the others."""
        try:
            call()
        except Exception:
            log.exception("internal error after a sync")
