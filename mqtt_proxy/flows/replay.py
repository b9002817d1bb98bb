"""Replay: a SUBSCRIBE that names a place in the past reads on from there and goes into live without a gap or a repeat.

MQTT 5: user property `lmq-from`; MQTT 3.x: the filter `$replay/<from>/<filter>`. `<from>` is `earliest`, `latest`,
`offset:<position>` (as a message's `lmq-offset` gave it, inclusive), an RFC 3339 time, or a duration back like `-PT10M`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mqtt_proxy.connection import Connection
from mqtt_proxy.flows import routes
from mqtt_proxy.packets.reason_codes import ProtocolError, ReasonCode
from mqtt_proxy.packets.types import Subscribe
from mqtt_proxy.session.session import Reader, Session
from mqtt_proxy.topics.trie import filter_matches

if TYPE_CHECKING:
    from lmq_store.api.model import Message
    from mqtt_proxy.broker import Broker

FROM = b"lmq-from"
PREFIX = b"$replay/"
SCAN_BYTES = 262_144
"""Log bytes one step looks at for a filter that had no queue then; the others have their turn in between."""
_DURATION = re.compile(r"-P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z")


@dataclass(slots=True)
class ReplayRequest:
    """What was asked: read `topic_filter` from the log position on."""

    topic_filter: bytes
    position: int


class ReplayCursor:
    """A walk through the log for a filter that had no queue when its messages were written."""

    __slots__ = ("flow", "position", "reader", "until")

    def __init__(self, flow: ReplayFlow, reader: Reader, position: int, until: int) -> None:
        self.flow = flow
        self.reader = reader
        self.position = position
        self.until = until

    def step(self, session: Session, conn: Connection) -> bool | None:
        """Deliver what one bounded step finds. None: done; True: more; False: paused."""
        return self.flow.step(session, conn, self)


class ReplayFlow:
    """Positions readers in the past."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def plain_filter(self, topic_filter: bytes) -> bytes:
        """The filter that a `$replay/<from>/` filter stands for; any other is itself."""
        if topic_filter.startswith(PREFIX):
            return topic_filter[len(PREFIX) :].partition(b"/")[2]
        return topic_filter

    def asked(self, _conn: Connection, packet: Subscribe, topic_filter: bytes) -> ReplayRequest | None:
        """The replay that this filter of the SUBSCRIBE asks for. Raises ProtocolError for a place that means nothing."""
        place: bytes | None = None
        if topic_filter.startswith(b"$share/") and topic_filter.split(b"/", 2)[-1].startswith(PREFIX):
            raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, "a shared subscription can't replay")
        if topic_filter.startswith(PREFIX):
            place, _, topic_filter = topic_filter[len(PREFIX) :].partition(b"/")
        else:
            for name, value in packet.properties.user_properties:
                if name == FROM:
                    place = value
        if place is None:
            return None
        if topic_filter.startswith(b"$share/"):
            raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, "a shared subscription can't replay")
        return ReplayRequest(topic_filter, self.position(place.decode("utf-8", "replace")))

    def position(self, place: str) -> int:
        """The log position of a place in the past."""
        store = self.broker.store
        if place == "earliest":
            return int(store.start())
        if place == "latest":
            return int(store.end())
        if place.startswith("offset:"):
            try:
                return int(store.parse_position(place[7:]))
            except ValueError:
                raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, f"not a position: {place[7:]}") from None
        back = _DURATION.match(place)
        if back is not None:
            days, hours, minutes, seconds = (float(part or 0) for part in back.groups())
            ago_s = min(days * 86_400 + hours * 3_600 + minutes * 60 + seconds, self.broker.now_ms / 1000)  # any digits are a number
            return int(store.position_at_time(self.broker.now_ms - int(ago_s * 1000)))
        try:
            at = datetime.fromisoformat(place)
        except ValueError:
            raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, f"not a place to replay from: {place}") from None
        return int(store.position_at_time(max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))))

    def start(self, session: Session, reader: Reader, request: ReplayRequest) -> None:
        """Reposition the reader: through its queue as far back as that goes, else by walking the log."""
        broker = self.broker
        queue = reader.queue
        self._stop(session, reader)
        session.merge = None
        if queue.since <= request.position:
            reader.next_offset = broker.store.offset_at_position(queue, request.position)
        else:
            until = broker.store.end()
            broker.routes.anew = routes.ALL
            reader.next_offset = broker.store.max_offset(queue)
            if request.position < until:
                self.walk(session, reader, request.position, until)
        broker.deliverer.mark(session, reader)
        broker.deliverer.wake(session)

    def walk(self, session: Session, reader: Reader, position: int, until: int) -> None:
        """Read the log from `position` to `until` for the reader, which leaves the live delivery for as long."""
        if reader in session.readers:
            session.readers.remove(reader)
            reader.queue.readers.remove(reader)
        if session.cursors is None:
            session.cursors = []
        session.cursors.append(ReplayCursor(self, reader, position, until))

    def save_walks(self, session: Session) -> None:
        """How far the session's walks have come, for its snapshot."""
        for cursor in session.cursors or ():
            if isinstance(cursor, ReplayCursor):
                self.broker.stored_sessions.save_offset(session, cursor.reader, cursor.position, cursor.until)

    def _stop(self, session: Session, reader: Reader) -> None:
        """An earlier walk of the same reader ends here."""
        if session.cursors is not None:
            walks = [cursor for cursor in session.cursors if isinstance(cursor, ReplayCursor) and cursor.reader is reader]
            for cursor in walks:
                session.cursors.remove(cursor)
                self._join(session, reader)

    def _join(self, session: Session, reader: Reader) -> None:
        session.readers.append(reader)
        reader.queue.readers.append(reader)

    def step(self, session: Session, conn: Connection, cursor: ReplayCursor) -> bool | None:
        """One bounded step of a walk."""
        broker = self.broker
        reader = cursor.reader
        if session.subscriptions.get(reader.topic_filter) is not reader:
            return None
        start = broker.store.start()
        if cursor.position < start:
            broker.history_left_behind(session, reader, start - cursor.position)
        messages, next_position = broker.store.scan(cursor.position, SCAN_BYTES)
        for message in messages:
            if message.position >= cursor.until:
                break
            if filter_matches(reader.topic_filter, message.topic) and not broker.deliverer.deliver_one(session, conn, reader, message):
                cursor.position = message.position
                return False
        if session.persistent and not session.dirty:
            session.dirty = True
            broker.dirty_sessions.append(session)
        if next_position >= cursor.until or next_position <= cursor.position:
            self._join(session, reader)
            broker.deliverer.mark(session, reader)
            return None
        cursor.position = next_position
        return True

    def position_properties(self, message: Message) -> bytes:
        """`lmq-offset` and `lmq-stored-at` as encoded MQTT 5 user properties."""
        stored = datetime.fromtimestamp(message.stored_ms / 1000, UTC)
        text = stored.strftime("%Y-%m-%dT%H:%M:%S.") + f"{message.stored_ms % 1000:03d}Z"
        return _user_property(b"lmq-offset", self.broker.store.format_position(message.position).encode()) + _user_property(
            b"lmq-stored-at", text.encode()
        )


def _user_property(name: bytes, value: bytes) -> bytes:
    return b"\x26" + len(name).to_bytes(2, "big") + name + len(value).to_bytes(2, "big") + value
