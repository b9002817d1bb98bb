"""One connection's bytes: what came in is handed to `received`, what is sent leaves once a turn, both bounded.

A subclass says what the bytes mean. Nothing here raises for what a peer does: the link ends and `lost` is told why.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Any

import cython

from mqtt_proxy.net.turn import READ, WRITE, Turn

if not cython.compiled:
    from mqtt_proxy.net.syscalls import end_sending, receive, reset_at_close, transmit

if TYPE_CHECKING:
    from mqtt_proxy.net.layers import LayerStack
    from mqtt_proxy.net.listener import Listener
    from mqtt_proxy.net.tls import TlsSubject

log = logging.getLogger(__name__)

RECV_BYTES = 256 * 1024
"""Most that one link may read in one turn, so that all get theirs."""
TAIL_IN_SHARED = 8 * 1024
"""An incomplete packet up to this size is presented again in the shared buffer; a longer one gets its own."""
SHARED_BYTES = RECV_BYTES + TAIL_IN_SHARED

OPEN, CLOSING, CLOSED = 0, 1, 2  # CLOSING: sends its rest and waits for the peer's end
BY_OWNER, BY_OUTPUT = 1, 2  # why a link isn't read


class Link:
    """A stream connection in the reactor. An idle one is this object and its peer's address.

    `out` holds what waits to be sent: None, the one bytes object queued (not copied: a fan-out queues the same object
    on a thousand links), or a bytearray; `sent` bytes of it have left. `tail` holds a packet's beginning, as far as it
    has arrived. `opened_ms` (the turn's clock) is when it was accepted, before any TLS or WebSocket handshake; while it is
    `blocked`, `moved_ms` is when the kernel last took bytes of it.
    """

    __slots__ = (
        "blocked", "dirty", "fd", "layer", "listener", "moved_ms", "opened_ms", "out", "paused", "peer", "sent", "stalled", "state", "tail",
        "tls_subject", "turn", "wanted",
    )  # fmt: skip

    def __init__(self, turn: Turn, fd: int, peer: str, listener: Listener | None = None) -> None:
        self.turn = turn
        self.fd = fd
        self.peer = peer
        self.listener = listener
        self.layer: LayerStack | None = None
        self.tls_subject: TlsSubject | None = None
        self.opened_ms = turn.now_ms
        self.moved_ms = 0
        self.out: bytes | bytearray | None = None
        self.sent = 0
        self.tail: bytearray | None = None
        self.wanted = 0
        self.state = OPEN
        self.paused = 0
        self.dirty = False
        self.blocked = False
        self.stalled = False

    # What a subclass answers.

    def received(self, buffer: bytearray, start: int, end: int) -> int:
        """Take the complete packets in `buffer[start:end]`; return where the first incomplete one begins.

        The buffer is everybody's: keep no view of it. What isn't consumed is presented again, with what follows it.
        """
        return end

    def needed(self, buffer: bytearray, start: int, end: int) -> int:
        """The whole length of the packet whose beginning is `buffer[start:end]`, or 0 while that can't be told.

        `received` is then called again only when that much is there.
        """
        return 0

    def lost(self, reason: str) -> None:
        """The connection has ended, and not by `close` or `abort`. Comes once; nothing can be sent any more."""

    def drained(self) -> None:
        """What `congested` complained about has been sent. Comes once for each time that it did."""

    def takes_peer(self, peer: str) -> bool:
        """A PROXY header names the real peer. False: a limit refuses that one, and the link ends."""
        self.peer = peer
        return True

    # What the owner calls.

    def start(self) -> None:
        """Register with the reactor: bytes come from now on."""
        self.turn.add(self, self.fd)

    def send(self, data: bytes) -> None:
        """Queue for this turn's one send; ignored on a link that is closing or closed."""
        if self.state != OPEN:
            return
        out = self.out
        if self.layer is not None:
            self.layer.plain += data
        elif out is None:
            self.out = data
        elif isinstance(out, bytearray):
            out += data
        else:
            self.out_buffer().extend(data)
        if not self.dirty:
            self._mark()

    def out_buffer(self) -> bytearray:
        """The bytearray to append output to; valid until the turn ends."""
        if not self.dirty:
            self._mark()
        if self.state != OPEN:
            return bytearray()
        if self.layer is not None:
            return self.layer.plain
        out = self.out
        if out is None:
            own = self.out = bytearray()
        elif isinstance(out, bytearray):
            own = out
        else:
            own = self.out = bytearray(out)
            if self.sent:
                del own[: self.sent]
                self.sent = 0
        return own

    def pending_bytes(self) -> int:
        """Bytes queued and not yet taken by the kernel."""
        waiting = 0 if self.out is None else len(self.out) - self.sent
        return waiting if self.layer is None else waiting + len(self.layer.plain)

    def congested(self) -> bool:
        """True while more than `turn.high_bytes` wait; then `drained` follows, or `lost`."""
        if self.pending_bytes() <= self.turn.high_bytes:
            return False
        self.stalled = True
        return True

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`; what `received` didn't consume waits too."""
        if not self.paused & BY_OWNER:
            self.paused |= BY_OWNER
            self._rewatch()

    def resume_reading(self) -> None:
        """Read again; what was held back is presented first, in the next turn."""
        if self.paused & BY_OWNER:
            self.paused &= ~BY_OWNER
            self._rewatch()
            if self.tail is not None:
                self.wanted = 0
                self.turn.fed.append(self)
                self.turn.ask()

    def close(self, reason: str = "") -> None:
        """Send what is queued, then end; the peer has LINGER_MS to read it. `lost` doesn't come."""
        if self.state != OPEN:
            return
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: closing: %s", self.peer, reason)
        if not self.dirty:
            self._mark()
        if self.layer is not None:
            self.layer.ending = True
        self.state = CLOSING
        self.tail = None
        self.paused = 0
        self._rewatch()
        self.turn.linger(self)

    def abort(self, reason: str = "") -> None:
        """End at once: what is queued here or in the kernel is dropped, the peer sees a reset. `lost` doesn't come."""
        if self.state == CLOSED:
            return
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: aborted: %s", self.peer, reason)
        reset_at_close(self.fd)
        self._release()

    # What the reactor calls.

    def read(self, shared: bytearray) -> None:
        """One recv into the shared buffer, behind the tail of the last one; then hand over."""
        if self.state != OPEN:
            self._discard(shared)
            return
        if self.layer is not None:
            self._read_layered(shared)
            return
        tail = self.tail
        kept = 0
        if tail is not None:
            kept = len(tail)
            if kept > TAIL_IN_SHARED:
                self._read_long(shared, tail)
                return
            shared[0:kept] = tail
        count = receive(self.fd, shared, kept, RECV_BYTES)
        if count <= 0:
            self._ended(count)
            return
        self.turn.bytes_received += count
        end = kept + count
        if end < self.wanted and tail is not None:
            tail += shared[kept:end]
            return
        self.tail = None
        consumed = self.received(shared, 0, end)
        if consumed < end and self.state == OPEN:
            self._keep(shared, consumed, end)

    def _read_long(self, shared: bytearray, tail: bytearray) -> None:
        """More of a long packet: it grows in its own buffer, never ahead of what has arrived."""
        count = receive(self.fd, shared, 0, RECV_BYTES)
        if count <= 0:
            self._ended(count)
            return
        self.turn.bytes_received += count
        with memoryview(shared) as view:
            tail += view[:count]
        if len(tail) >= self.wanted:
            self._present(tail)

    def _present(self, own: bytearray) -> None:
        """Hand over a buffer of the link's own, and keep the rest in it."""
        self.tail = None
        size = len(own)
        consumed = self.received(own, 0, size)
        if consumed >= size or self.state != OPEN:
            return
        if size - consumed <= TAIL_IN_SHARED:
            self._keep(own, consumed, size)
            return
        del own[:consumed]
        self.tail = own
        self.wanted = 0 if self.paused else self.needed(own, 0, size - consumed)

    def _read_layered(self, shared: bytearray) -> None:
        layer = self.layer
        assert layer is not None
        count = receive(self.fd, shared, 0, RECV_BYTES)
        if count <= 0:
            self._ended(count)
            return
        self.turn.bytes_received += count
        with memoryview(shared) as view:
            data = bytes(view[:count])
        plain = layer.receive(self, data)
        if layer.wire and not self.dirty and self.state != CLOSED:
            self._mark()
        if plain and self.state == OPEN:
            own = self.tail
            if own is None:
                own = bytearray(plain)
                self.wanted = 0  # of the last long packet, which was handed over
            else:
                own += plain
            if len(own) >= self.wanted and not self.paused & BY_OWNER:
                self._present(own)
            else:
                self.tail = own
        if layer.ended is not None:
            self.finish(layer.ended)

    def _discard(self, shared: bytearray) -> None:
        """A closing link waits for the peer's end only."""
        if self.state == CLOSING:
            count = receive(self.fd, shared, 0, RECV_BYTES)
            if count <= 0 and count != -errno.EAGAIN:
                self._release()

    def _keep(self, buffer: bytearray, start: int, end: int) -> None:
        self.tail = buffer[start:end]
        self.wanted = 0 if self.paused else self.needed(buffer, start, end)

    def feed(self) -> None:
        """Present the tail again after a pause, without new bytes."""
        tail = self.tail
        if tail is not None and self.state == OPEN and not self.paused & BY_OWNER:
            self._present(tail)

    def writable(self) -> None:
        """The kernel has room again."""
        self.blocked = False
        self.flush()
        if not self.blocked and self.state != CLOSED:
            self._rewatch()

    def flush(self) -> None:
        """One send of what is queued; the rest waits for room, and only then is the socket watched for it."""
        self.dirty = False
        if self.state == CLOSED:
            return
        if self.blocked:
            self._check_stall()
            return
        if self.layer is not None:
            self.layer.wrap_into(self)
        out = self.out
        if out is not None:
            count = transmit(self.fd, out, self.sent)
            if count < 0:
                if count != -errno.EAGAIN:
                    self._ended(count)
                    return
                count = 0
            self.turn.bytes_sent += count
            size = len(out) - self.sent
            if count < size:
                self.moved_ms = self.turn.now_ms
                if isinstance(out, bytearray):
                    del out[:count]
                else:
                    self.sent += count
                self.blocked = True
                self._rewatch()
                self._check_stall()
                if self.stalled and size - count <= self.turn.low_bytes:
                    self._sent_all()
                return
            self.out = None
            self.sent = 0
        if self.state == CLOSING:
            self._end_output()
        elif self.stalled or self.paused & BY_OUTPUT:
            self._sent_all()

    def _check_stall(self) -> None:
        if not self.paused & BY_OUTPUT and self.state == OPEN and self.pending_bytes() > self.turn.stall_bytes:
            self.paused |= BY_OUTPUT
            self._rewatch()

    def _sent_all(self) -> None:
        """Down to `low_bytes`: read again if output was what stopped it, and tell the owner."""
        if self.paused & BY_OUTPUT:
            self.paused &= ~BY_OUTPUT
            self._rewatch()
        if self.stalled:
            self.stalled = False
            if self.state == OPEN:
                self.drained()

    def _end_output(self) -> None:
        """All is sent: tell the peer, and wait for its end, since closing on unread input would take the rest back."""
        if not end_sending(self.fd):
            self._release()

    def fail(self, reason: str) -> None:
        """The connection is gone."""
        if self.state == CLOSED:
            return
        told = self.state == OPEN
        self._release()
        if told:
            self.lost(reason)

    def finish(self, reason: str) -> None:
        """A layer has ended: its last word still goes out, and the owner hears that the connection is gone."""
        if self.state == OPEN:
            self.close(reason)
            self.lost(reason)

    def _mark(self) -> None:
        self.dirty = True
        turn = self.turn
        turn.dirty.append(self)
        if not turn.running:
            turn.ask()

    def _rewatch(self) -> None:
        if self.state != CLOSED:
            mask = 0 if self.paused else READ
            if self.blocked:
                mask |= WRITE
            self.turn.watch(self.fd, mask)

    def _ended(self, count: int) -> None:
        """recv or send said that there is nothing more, or that it failed."""
        if count == -errno.EAGAIN:
            return
        if count == 0:
            if self.out is not None and not self.blocked:
                transmit(self.fd, self.out, self.sent)  # a peer that only ended its side may still read
            self.fail("closed by peer")
        elif count == -errno.ECONNRESET or count == -errno.EPIPE:
            self.fail("reset by peer")
        else:
            self.fail(os.strerror(-count).lower())

    def _release(self) -> None:
        """Leave the reactor; the descriptor is closed at the end of the turn."""
        turn = self.turn
        self.state = CLOSED
        self.out = self.tail = self.layer = None
        self.sent = 0
        turn.links[self.fd] = None
        turn.open_links -= 1
        turn.doomed.append(self.fd)
        if not turn.running:
            turn.ask()
        listener: Any = self.listener
        if listener is not None:
            listener.open_links -= 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.peer}, fd {self.fd}, {('open', 'closing', 'closed')[self.state]})"
