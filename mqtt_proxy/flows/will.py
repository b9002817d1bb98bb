"""Wills: durable before CONNACK, published when the connection ends without a DISCONNECT, at once or after their delay.

After the server itself died or stopped, a will fires once its delay, and at least `will_grace_s`, has passed since the
listeners opened again, unless the client came back (MQTT 5.0 §3.1.2.5, §3.1.3.2.2).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from lmq_store.api.model import Message
from lmq_store.api.ports import Table
from lmq_store.api.rows import WillRow
from mqtt_proxy.packets.types import Will
from mqtt_proxy.session.session import Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.policy.acl import Rights


STALE_MAX = 1_000
"""Entries of wills that are not sent any more, beyond as many as there are waiting: then they are cleared away."""


class WillFlow:
    """The wills of connected clients and those that wait for their delay, by client identifier."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.due: list[tuple[int, bytes]] = []
        self.waiting: dict[bytes, int] = {}
        self.grace_until_ms = 0
        """Before it no will that an earlier process left behind is sent, unless the client itself ends the session."""

    def load(self) -> None:
        """Wills that the last process left behind."""
        now_ms = self.broker.now_ms
        self.grace_until_ms = now_ms + self.broker.settings.will_grace_s * 1000
        for client_id, raw in self.broker.meta.scan(Table.WILL, b""):
            row = WillRow.decode(raw)
            due_ms = row.due_ms or now_ms + row.delay_s * 1000
            self._wait(client_id, max(due_ms, self.grace_until_ms))

    def _must_wait(self) -> bool:
        """No room on the disk, or the server stops: the row stays, and the will goes out at the next chance."""
        return self.broker.inbound.guarded or bool(self.broker.store.disk_full)

    def _wait(self, client_id: bytes, due_ms: int) -> None:
        self.waiting[client_id] = due_ms
        if len(self.due) > 2 * len(self.waiting) + STALE_MAX:  # clients came back before their delay: forget those entries
            self.due = [(due, waiting) for waiting, due in self.waiting.items()]
            heapify(self.due)
            return
        heappush(self.due, (due_ms, client_id))

    def keep(self, session: Session, will: Will) -> None:
        """Store a connection's will; the caller's CONNACK waits for it."""
        delay_s = self.broker.limits.will_delay_s(will.delay_s)
        row = WillRow(session.client_id, will.topic, will.payload, will.properties, will.qos, will.retain, delay_s, will.expiry_s)
        self.broker.put(Table.WILL, session.client_id, row.encode())

    def connection_ended(self, session: Session, wanted: bool) -> None:
        """Drop the will [MQTT-3.1.2-10], publish it [MQTT-3.1.2-8], or wait for its delay; a session's end is the latest."""
        broker = self.broker
        raw = broker.meta.get(Table.WILL, session.client_id)
        if raw is None:
            return
        row = WillRow.decode(raw)
        delay_s = min(row.delay_s, session.expiry_s)
        if not wanted:
            broker.delete(Table.WILL, session.client_id)
        elif delay_s == 0 and not self._must_wait():
            self.publish(session.client_id, row)
        else:
            row.due_ms = broker.now_ms + delay_s * 1000
            broker.put(Table.WILL, session.client_id, row.encode())
            self._wait(session.client_id, row.due_ms)

    def session_resumed(self, client_id: bytes) -> None:
        """The client is back in time: its waiting will is not sent [MQTT-3.1.3-9]."""
        if self.waiting.pop(client_id, None) is not None:
            self.broker.delete(Table.WILL, client_id)

    client_back = session_resumed

    def session_expired(self, client_id: bytes) -> None:
        """The session's time is over while its client may still be on its way back to a server that was away: not before the grace."""
        due_ms = self.waiting.get(client_id)
        if due_ms is not None and due_ms >= self.grace_until_ms > self.broker.now_ms:
            self._wait(client_id, self.grace_until_ms)
        else:
            self.session_ended(client_id)

    def session_ended(self, client_id: bytes) -> None:
        """A waiting will does not outlive its session: it is sent now."""
        if self._must_wait() and client_id in self.waiting:  # no room for it now: at the next chance
            self._wait(client_id, self.broker.now_ms)
        elif self.waiting.pop(client_id, None) is not None:
            raw = self.broker.meta.get(Table.WILL, client_id)
            if raw is not None:
                self.publish(client_id, WillRow.decode(raw))

    def recheck(self, session: Session, rights: Rights) -> None:
        """Drop a connected client's will that it may not publish any more."""
        raw = self.broker.meta.get(Table.WILL, session.client_id)
        if raw is not None and not rights.may_publish(WillRow.decode(raw).topic):
            self.broker.delete(Table.WILL, session.client_id)

    def publish_due(self, now_ms: int, most: int = 200) -> None:
        """Send the wills whose time has come; none while the disk is full (they wait)."""
        while self.due and self.due[0][0] <= now_ms and most and not self._must_wait():
            due_ms, client_id = heappop(self.due)
            if self.waiting.get(client_id) == due_ms:
                most -= 1
                self.session_ended(client_id)

    def publish(self, client_id: bytes, row: WillRow) -> None:
        """Append the will as a message of its client; the row goes with the same batch."""
        message = Message(row.topic, row.payload, row.qos, row.retain)
        message.will = True
        message.client_id = client_id
        message.properties = row.properties
        message.expiry_s = row.expiry_s
        self.broker.delete(Table.WILL, client_id)
        self.broker.publishing.publish(message)
