"""POP over the two ports: lends a queue's messages to groups, keeps each group's progress in the GROUP table.

Works with any MessageStore whose `pull` answers at once and any MetaStore; holds no file and no thread. A group's row is
written when asked (`save`) or, by `tick`, at most `offset_commit_ms` after a change. Rows are records of the log, behind
the messages they speak of, so no row can name an offset that a power loss took away.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from lmq_store.api.model import NEVER, LightQueue, Message, Pulled
from lmq_store.api.ports import MetaStore, Popped, Table
from lmq_store.embedded.pop import MAX_DELIVERIES, PopState, decode_row, encode_row

POP_MAX_BYTES = 1 << 20
"""One pop reads at most so much of what waits again, and so much that is new (but at least one message)."""

DEAD_LETTER_PREFIX = b"$dlq/"

DeadLetter = Callable[[bytes, Message], None]
"""Called with the group and the message as it is to be published on (see `dead_letter_message`)."""

_QUEUE_ID = struct.Struct(">Q")


class Pulls(Protocol):
    """The part of MessageStore that lending needs."""

    def pull(
        self, queue: LightQueue, offset: int, max_messages: int, max_bytes: int, done: Callable[[Pulled], None]
    ) -> Pulled | None: ...

    def min_offset(self, queue: LightQueue) -> int: ...


def group_key(queue_id: int, group: bytes) -> bytes:
    """The POP row's key in GROUP. The leading zero byte keeps it apart from rows that begin with a share name."""
    return b"\0" + _QUEUE_ID.pack(queue_id) + group


def parse_group_key(key: bytes) -> tuple[int, bytes] | None:
    """(queue id, group) of a POP row's key; None for the GROUP table's other rows."""
    if len(key) < 9 or key[0]:
        return None
    return _QUEUE_ID.unpack_from(key, 1)[0], key[9:]


def notes_prefix(queue_id: int, group: bytes) -> bytes:
    """What the keys of one group's notes begin with: what was settled since the POP row was written."""
    return b"\1" + _QUEUE_ID.pack(queue_id) + len(group).to_bytes(2, "big") + group


class ConsumerGroups:
    """Lends messages to groups (see MessageStore.pop, ack, change_invisible).

    Without `dead_letter` no message is ever given up: it is lent again and again.
    """

    def __init__(
        self,
        store: Pulls,
        meta: MetaStore,
        dead_letter: DeadLetter | None = None,
        max_deliveries: int = MAX_DELIVERIES,
        offset_commit_ms: int = 1_000,
    ) -> None:
        self.store = store
        self.meta = meta
        self.dead_letter = dead_letter
        self.max_deliveries = max_deliveries
        self.offset_commit_ms = offset_commit_ms
        self.states: dict[tuple[int, bytes], PopState] = {}
        self.dead_lettered = 0
        self.lost_to_retention = 0
        """Messages that were lent, or due, and that retention had taken when they were to be lent."""
        self.expired = 0
        self._saved_ms = 0
        self._settled: dict[tuple[int, bytes], list[int]] = {}
        self._next_note: dict[tuple[int, bytes], int] = {}

    # --- the port ---

    def pop(
        self, queue: LightQueue, group: bytes, max_messages: int, invisible_ms: int, now_ms: int
    ) -> list[Popped]:
        """Lend the group's next messages: those that wait again first, then new ones; each group of offsets in order."""
        state = self.state(queue, group)
        state.revive(now_ms)
        lent = self._lend_again(queue, group, state, max_messages, now_ms, now_ms + invisible_ms)
        if len(lent) < max_messages:
            self._lend_new(queue, state, max_messages - len(lent), now_ms, now_ms + invisible_ms, lent)
        return lent

    def ack(self, queue: LightQueue, group: bytes, handles: list[int]) -> None:
        """The lent messages are done. Handles that are stale (lent again since, or of a group that ended) are passed over."""
        state = self._known(queue, group)
        if state is not None:
            for handle in handles:
                state.ack(handle)

    def change_invisible(
        self, queue: LightQueue, group: bytes, handles: list[int], invisible_ms: int, now_ms: int
    ) -> None:
        """Lend for `invisible_ms` from now, or (0) give back at once."""
        state = self._known(queue, group)
        if state is not None:
            state.change_invisible(handles, now_ms + invisible_ms if invisible_ms else None)

    # --- beyond the port ---

    def start(self, queue: LightQueue, group: bytes, queue_offset: int) -> None:
        """A new group begins at `queue_offset`; one that exists goes on where it is."""
        key = (queue.id, group)
        if key not in self.states and self.meta.get(Table.GROUP, group_key(*key)) is None:
            self.states[key] = PopState(queue_offset)
            self.states[key].changed = True

    def end(self, queue: LightQueue, group: bytes) -> None:
        """The group is gone: its progress is forgotten."""
        self._forget((queue.id, group))

    def end_others(self, held: set[tuple[int, bytes]]) -> bool:
        """Forget every stored group but those of (queue id, group) in `held`; True if there was one."""
        keys = [parse_group_key(key) for key, _ in self.meta.scan(Table.GROUP, b"\0")]
        others = [key for key in keys if key is not None and key not in held]
        for key in others:
            self._forget(key)
        return bool(others)

    def _forget(self, key: tuple[int, bytes]) -> None:
        self.states.pop(key, None)
        self._settled.pop(key, None)
        self._next_note.pop(key, None)
        self.meta.delete(Table.GROUP, group_key(*key))
        self.meta.delete_prefix(Table.GROUP, notes_prefix(*key))

    def settle(self, queue: LightQueue, group: bytes, handle: int) -> None:
        """Like `ack`, and no crash may undo it once the next `write_notes` is durable (a QoS 2 message found its session)."""
        state = self._known(queue, group)
        if state is not None and state.ack(handle):
            self._settled.setdefault((queue.id, group), []).append(handle >> 8)

    def write_notes(self) -> bool:
        """Put what `settle` was called for into the open batch; True if there was anything. The rows follow at their own pace."""
        if not self._settled:
            return False
        for key, offsets in self._settled.items():
            sequence = self._next_note.get(key, 0)
            self._next_note[key] = sequence + 1
            self.meta.put(Table.GROUP, notes_prefix(*key) + _QUEUE_ID.pack(sequence), struct.pack(f"<{len(offsets)}Q", *offsets))
        self._settled = {}
        return True

    def reject(self, queue: LightQueue, group: bytes, message: Message, handle: int, reason: str) -> None:
        """The consumer refused the message (an acknowledgement >= 0x80): to the dead-letter queue, to no other member."""
        state = self._known(queue, group)
        if state is None:
            return
        deliveries = state.unacked.get(handle >> 8, 0)
        if self.dead_letter is not None and state.ack(handle):
            self.dead_lettered += 1
            self.dead_letter(group, dead_letter_message(group, message, handle >> 8, deliveries, reason))

    def refuse_settled(self, group: bytes, message: Message, handle: int, reason: str) -> None:
        """The same for a message that was settled: it is done already, whoever refused it."""
        if self.dead_letter is not None:
            self.dead_lettered += 1
            self.dead_letter(group, dead_letter_message(group, message, handle >> 8, handle & 0xFF, reason))

    def give_back_all(self, queue: LightQueue, group: bytes) -> None:
        """No consumer of the group is left (or the server was restarted): what was lent waits again."""
        self.state(queue, group).give_back_all()

    def committed_offset(self, queue: LightQueue, group: bytes) -> int:
        """The lowest offset that the group has not done."""
        return self.state(queue, group).committed_offset

    def unacked(self, queue: LightQueue, group: bytes) -> int:
        """How many messages are lent or wait to be lent again."""
        return len(self.state(queue, group).unacked)

    def save(self, queue: LightQueue, group: bytes) -> None:
        """Write the group's row into the open batch: what was acknowledged before is done for good once that is durable."""
        state = self.state(queue, group)
        if state.changed:
            self._write(queue.id, group, state)

    def tick(self, now_ms: int) -> bool:
        """Write the rows that changed, at most every `offset_commit_ms`; True if the open batch has something to commit."""
        if 0 <= now_ms - self._saved_ms < self.offset_commit_ms:
            return False
        self._saved_ms = now_ms
        return self.save_all()

    def save_all(self) -> bool:
        """Write every changed row (before a close); True if there was one."""
        wrote = False
        for (queue_id, group), state in self.states.items():
            if state.changed:
                self._write(queue_id, group, state)
                wrote = True
        return wrote

    # --- inside ---

    def state(self, queue: LightQueue, group: bytes) -> PopState:
        """The group's state: from memory, from its row, or new at the queue's lowest offset."""
        key = (queue.id, group)
        state = self.states.get(key)
        if state is None:
            row = self.meta.get(Table.GROUP, group_key(*key))
            state = PopState(self.store.min_offset(queue)) if row is None else decode_row(row)
            self.states[key] = state
            self._read_notes(queue, key, state)
        return state

    def _known(self, queue: LightQueue, group: bytes) -> PopState | None:
        """The state of a group that has one; an answer that comes after the group's end must not begin it anew."""
        key = (queue.id, group)
        state = self.states.get(key)
        if state is None and self.meta.get(Table.GROUP, group_key(*key)) is not None:
            state = self.state(queue, group)
        return state

    def _read_notes(self, queue: LightQueue, key: tuple[int, bytes], state: PopState) -> None:
        """What was settled after the row was written, by a process that died."""
        prefix = notes_prefix(*key)
        for note_key, note in self.meta.scan(Table.GROUP, prefix):
            state.skip_to(self.store.min_offset(queue))
            for (offset,) in struct.iter_unpack("<Q", note):
                state.settle(offset)
            self._next_note[key] = _QUEUE_ID.unpack_from(note_key, len(prefix))[0] + 1
            state.changed = True

    def _write(self, queue_id: int, group: bytes, state: PopState) -> None:
        self.meta.put(Table.GROUP, group_key(queue_id, group), encode_row(state))
        state.changed = False
        key = (queue_id, group)
        self._settled.pop(key, None)
        if self._next_note.pop(key, None) is not None:
            self.meta.delete_prefix(Table.GROUP, notes_prefix(*key))

    def _pull(self, queue: LightQueue, queue_offset: int, max_messages: int) -> Pulled:
        pulled = self.store.pull(queue, queue_offset, max_messages, POP_MAX_BYTES, _no_late_answer)
        if pulled is None:
            raise RuntimeError("POP needs an engine whose pull answers at once")
        return pulled

    def _lend_again(
        self, queue: LightQueue, group: bytes, state: PopState, limit: int, now_ms: int, deadline_ms: int
    ) -> list[Popped]:
        lent: list[Popped] = []
        for first, count in _runs(state.waiting(limit)):
            at, end = first, first + count
            while at < end:
                pulled = self._pull(queue, at, end - at)
                # What retention has taken is passed over by a pull, which then brings messages from beyond the run: others' to lend.
                found = {offset: one for offset, one in zip(pulled.offsets, pulled.messages, strict=True) if offset < end}
                reached = min(pulled.next_offset, end)
                if reached <= at:  # nothing left to read there at all
                    reached = end
                for offset in range(at, reached):
                    if offset not in found:
                        self.lost_to_retention += 1
                        state.done(offset)
                    elif self._given_up(group, state, offset, found[offset], now_ms):
                        del found[offset]
                _lend(state, list(found), list(found.values()), deadline_ms, lent)
                if pulled.next_offset < end and lent:  # POP_MAX_BYTES of messages: the rest comes with the next pop
                    return lent
                at = reached
        return lent

    def _given_up(self, group: bytes, state: PopState, offset: int, message: Message, now_ms: int) -> bool:
        deliveries = state.unacked[offset]
        if message.expires_ms != NEVER and message.expires_ms <= now_ms:
            self.expired += 1
            state.done(offset)
            return True
        if self.dead_letter is None or deliveries < self.max_deliveries:
            return False
        self.dead_lettered += 1
        self.dead_letter(group, dead_letter_message(group, message, offset, deliveries, "max-deliveries"))
        state.done(offset)
        return True

    def _lend_new(
        self, queue: LightQueue, state: PopState, limit: int, now_ms: int, deadline_ms: int, lent: list[Popped]
    ) -> None:
        limit = min(limit, state.room())
        while limit > 0:
            pulled = self._pull(queue, state.next_offset, limit)
            offsets, messages = pulled.offsets, pulled.messages
            if any(message.expires_ms != NEVER and message.expires_ms <= now_ms for message in messages):
                kept = [place for place, message in enumerate(messages) if not NEVER < message.expires_ms <= now_ms]
                self.expired += len(messages) - len(kept)
                offsets, messages = [offsets[place] for place in kept], [messages[place] for place in kept]
            _lend(state, offsets, messages, deadline_ms, lent)
            limit -= len(offsets)
            if pulled.next_offset <= state.next_offset and not pulled.messages:
                return
            state.skip_to(pulled.next_offset)
            if offsets:
                return  # as many as there are, or POP_MAX_BYTES of them


def dead_letter_message(group: bytes, message: Message, queue_offset: int, deliveries: int, reason: str) -> Message:
    """A given-up message as it is published on: topic `$dlq/<group>/<topic>`, why and how often in user properties."""
    letter = Message(DEAD_LETTER_PREFIX + group + b"/" + message.topic, message.payload, max(message.qos, 1))
    letter.client_id = message.client_id
    letter.born_ms = message.born_ms
    letter.properties = message.properties + b"".join(
        _user_property(name, value.encode())
        for name, value in (
            (b"lmq-dead-letter", reason),
            (b"lmq-deliveries", str(deliveries)),
            (b"lmq-queue-offset", str(queue_offset)),
        )
    )
    return letter


def _user_property(name: bytes, value: bytes) -> bytes:
    """MQTT 5.0 §3.3.2.3.7: identifier 0x26 and two length-prefixed UTF-8 strings."""
    return b"\x26" + len(name).to_bytes(2, "big") + name + len(value).to_bytes(2, "big") + value


def _lend(state: PopState, offsets: list[int], messages: list[Message], deadline_ms: int, lent: list[Popped]) -> None:
    for offset, message, deliveries in zip(offsets, messages, state.lend(offsets, deadline_ms), strict=True):
        lent.append(Popped(message, offset, offset << 8 | deliveries & 0xFF, deliveries))


def _runs(offsets: list[int]) -> list[tuple[int, int]]:
    """Ascending offsets as (first, count) of consecutive ones, so that each run is one pull."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][0] + runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset, 1))
    return runs


def _no_late_answer(_: Pulled) -> None:
    raise RuntimeError("POP needs an engine whose pull answers at once")
