"""Retained messages to new subscriptions, in bounded steps that respect the window and the link (MQTT 5.0 §3.3.1.3).

The store derives the RETAINED rows from the log; a cursor walks them in topic order for one subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmq_store.api import rows
from lmq_store.api.ports import Table
from lmq_store.api.rows import RetainedWalkRow
from mqtt_proxy.connection import Connection
from mqtt_proxy.observe.sys_topics import begins_in_sys
from mqtt_proxy.session.session import ASKING, LINK_BUSY, WINDOW_FULL, Reader, Session
from mqtt_proxy.topics.trie import filter_matches

if TYPE_CHECKING:
    from lmq_store.api.model import Message
    from mqtt_proxy.broker import Broker

STEP_ROWS = 200
"""Rows one session's cursor looks at before the others have their turn."""


class RetainedCursor:
    """One subscription's walk through the retained messages, as of the log position where its live delivery starts."""

    __slots__ = ("as_of", "flow", "next_topic", "prefix", "reader")

    def __init__(self, flow: RetainedFlow, reader: Reader, as_of: int, next_topic: bytes) -> None:
        self.flow = flow
        self.reader = reader
        self.as_of = as_of
        self.prefix = literal_prefix(reader.topic_filter)
        self.next_topic = next_topic

    def step(self, session: Session, conn: Connection) -> bool | None:
        """Send what one bounded step finds. None: done; True: more; False: paused."""
        return self.flow.step(session, conn, self)


def literal_prefix(topic_filter: bytes) -> bytes:
    """What every topic that the filter matches begins with. `a/#` matches `a` too."""
    levels = topic_filter.split(b"/")
    for index, level in enumerate(levels):
        if level == b"#":
            return b"/".join(levels[:index])
        if level == b"+":
            return b"".join(part + b"/" for part in levels[:index])
    return topic_filter


class RetainedFlow:
    """Sends what is retained."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def owed(self, session: Session, reader: Reader, as_of: int) -> bool:
        """Whether there may be something to send for a new subscription; a session that outlives its connection remembers it."""
        if begins_in_sys(reader.topic_filter):
            return True  # values of this process, stored nowhere
        if self.broker.retained_quota.surely_empty():
            return False
        topic_filter = reader.topic_filter
        if literal_prefix(topic_filter) == topic_filter and self.broker.meta.get(Table.RETAINED, topic_filter) is None:
            return False
        if session.persistent:
            self._save(session, reader, RetainedWalkRow(as_of))
        return True

    def begin(self, session: Session, reader: Reader, as_of: int, next_topic: bytes = b"") -> None:
        """Queue the retained messages of a subscription; the next pump starts to send them. An earlier walk of it ends."""
        cursors = [one for one in session.cursors or () if not (isinstance(one, RetainedCursor) and one.reader is reader)]
        cursors.append(RetainedCursor(self, reader, as_of, next_topic))
        session.cursors = cursors
        self.broker.deliverer.wake(session)

    def save_walks(self, session: Session) -> None:
        """How far the session's walks have come, for its snapshot."""
        for cursor in session.cursors or ():
            if isinstance(cursor, RetainedCursor) and session.subscriptions.get(cursor.reader.topic_filter) is cursor.reader:
                self._save(session, cursor.reader, RetainedWalkRow(cursor.as_of, cursor.next_topic))

    def _save(self, session: Session, reader: Reader, row: RetainedWalkRow) -> None:
        self.broker.put(Table.OFFSET, rows.retained_walk_key(session.id, reader.queue.id), row.encode())

    def step(self, session: Session, conn: Connection, cursor: RetainedCursor) -> bool | None:
        """At most STEP_ROWS rows. None: done; True: more; False: paused at `next_topic`."""
        reader = cursor.reader
        if session.subscriptions.get(reader.topic_filter) is not reader:
            return None  # unsubscribed meanwhile
        outcome = self._step(session, conn, cursor)
        if outcome is None and session.persistent:
            self.broker.delete(Table.OFFSET, rows.retained_walk_key(session.id, reader.queue.id))
        elif session.persistent and not session.dirty:
            session.dirty = True
            self.broker.dirty_sessions.append(session)
        return outcome

    def _step(self, session: Session, conn: Connection, cursor: RetainedCursor) -> bool | None:
        meta = self.broker.meta
        topic_filter = cursor.reader.topic_filter
        if cursor.prefix == topic_filter:  # no wildcard: one row
            row = meta.get(Table.RETAINED, topic_filter)
            if row is not None and not self._send(session, conn, cursor, self.broker.store.retained_message(row)):
                return False
            return None
        looked = 0
        for topic, row in meta.scan(Table.RETAINED, cursor.prefix, cursor.next_topic):
            if looked == STEP_ROWS:
                cursor.next_topic = topic
                return True
            looked += 1
            if filter_matches(topic_filter, topic) and not self._send(
                session, conn, cursor, self.broker.store.retained_message(row)
            ):
                cursor.next_topic = topic
                return False
        return None

    def _send(self, session: Session, conn: Connection, cursor: RetainedCursor, message: Message) -> bool:
        """One retained message with RETAIN 1 [MQTT-3.3.1-8]. False: paused before it."""
        if message.position >= cursor.as_of:
            return True  # newer than the subscription: it comes live
        if session.bound is not None and message.position in session.bound:
            return True  # its QoS 2 exchange was already begun before the restart
        reader = cursor.reader
        qos = min(message.qos, reader.qos)
        deliverer = self.broker.deliverer
        if conn.congested():
            deliverer.pause(session, LINK_BUSY)
            return False
        if qos and session.room() <= 0:
            deliverer.pause(session, WINDOW_FULL)
            return False
        if conn.gate is not None and not conn.gate.knows(session, message.topic):
            deliverer.pause(session, ASKING)
            return False
        if deliverer.wants(session, reader, message):
            deliverer.send(session, conn, message, qos, True, [reader])
        return True
