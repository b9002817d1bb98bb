"""The three ports: MessageStore, MetaStore (here) and Notify (notify/api.py).

Answers come by callback, on the caller's loop, in the order of the calls: an engine that has the answer at hand calls
back (or returns) at once, so that a batch costs no task, future or await. Durability is promised by `done(None)` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from lmq_store.api.errors import StoreError
from lmq_store.api.model import LightQueue, Message, Pulled, Run

Done = Callable[[StoreError | None], None]


class Table(IntEnum):
    """The MetaStore's tables. Keys and rows: docs/formats.md."""

    SESSION = 1  # client id → session row
    SUBSCRIPTION = 2  # session id, filter → subscription row
    SNAPSHOT = 3  # session id → delivery state (packets in flight, QoS 2 ids)
    JOURNAL = 4  # session id, position → event since the snapshot
    FILTER = 5  # filter → queue id, log position at registration
    PARENT = 6  # first topic level → parent id, partitions
    RETAINED = 7  # topic → the retained message's record
    GROUP = 8  # group, filter → shared subscription
    WILL = 9  # session id → will
    COUNTER = 10  # name → next id, marks
    OFFSET = 11  # session id, queue id → the reader's next queue offset


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine can hold in one message or call."""

    queues_per_message: int
    queue_name_bytes: int
    message_bytes: int
    hands_over: bool
    """True when `append` returns the runs it just added, so that caught-up readers need no pull."""


class Popped(NamedTuple):
    """A message lent to a group's consumer until `invisible_ms` pass; `handle` acknowledges it."""

    message: Message
    queue_offset: int
    handle: int
    deliveries: int


class MessageStore(Protocol):
    """The commit log and its light queues."""

    bounds: Bounds

    def append(self, messages: list[Message], now_ms: int, done: Done) -> list[Run]:
        """Append the messages in order, each to its `route`; positions are set on return, `done` says durable or not.

        Raises DiskFull (nothing stored) or StorePoisoned.
        """
        ...

    def open_queue(self, queue_id: int, name: bytes) -> LightQueue:
        """The handle of a registered queue (the same object for the same id)."""
        ...

    def drop_queue(self, queue: LightQueue) -> None:
        """Nobody holds the queue any more: forget it and delete its index entries in small steps."""
        ...

    def pull(
        self, queue: LightQueue, offset: int, max_messages: int, max_bytes: int, done: Callable[[Pulled], None]
    ) -> Pulled | None:
        """Messages from `offset` on: the answer itself where it is at hand, else None and `done(pulled)` later."""
        ...

    def min_offset(self, queue: LightQueue) -> int:
        """The lowest offset that can still be read."""
        ...

    def max_offset(self, queue: LightQueue) -> int:
        """The offset that the next message will get; `queue.next_offset` holds it from then on."""
        ...

    def load_offsets(self, queues: list[LightQueue]) -> None:
        """`max_offset` of all of them will be asked for next: an engine that finds many faster than one by one does so now."""
        ...

    def offset_at_time(self, queue: LightQueue, time_ms: int) -> int:
        """The first offset stored at or after the time."""
        ...

    def offset_at_position(self, queue: LightQueue, position: int) -> int:
        """The first offset whose message lies at or after the log position."""
        ...

    def scan(self, position: int, max_bytes: int) -> tuple[list[Message], int]:
        """Messages of the whole log in order from `position` (bounded step) and the position to go on at."""
        ...

    def read(self, position: int) -> Message | None:
        """The message at a position that an earlier answer gave; None where the log has it no more."""
        ...

    def retained_message(self, row: bytes) -> Message:
        """The message in a row of RETAINED (the engine that derives the rows reads them)."""
        ...

    def format_position(self, position: int) -> str:
        """The position as opaque text, good for any filter and queue: today `<shard>-<epoch>-<physical offset>`."""
        ...

    def parse_position(self, text: str) -> int:
        """The position of a text; one that a cut of the log took away is moved back to the cut. ValueError: no position."""
        ...

    def position_at_time(self, time_ms: int) -> int:
        """The position of the first message stored at or after the time."""
        ...

    def start(self) -> int:
        """The position below which retention has taken everything."""
        ...

    def end(self) -> int:
        """The position that the next append will start at or after."""
        ...

    def durable_end(self) -> int:
        """Every record below this position is durable."""
        ...

    def pop(
        self, queue: LightQueue, group: bytes, max_messages: int, invisible_ms: int, now_ms: int
    ) -> list[Popped]:
        """Lend the group's next messages of the queue (revived ones first)."""
        ...

    def ack(self, queue: LightQueue, group: bytes, handles: list[int]) -> None:
        """The lent messages are done; the group's offset follows the lowest one that is not."""
        ...

    def change_invisible(
        self, queue: LightQueue, group: bytes, handles: list[int], invisible_ms: int, now_ms: int
    ) -> None:
        """Lend for longer, or (0) give back at once."""
        ...


class MetaStore(Protocol):
    """Tables for what outlives a proxy. A read sees every earlier write of this process at once; durability is `done`."""

    def get(self, table: Table, key: bytes) -> bytes | None: ...

    def scan(self, table: Table, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with `prefix`, in key order, from the key `start` on."""
        ...

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Queue a write; it joins the open batch."""
        ...

    def delete(self, table: Table, key: bytes) -> None: ...

    def delete_prefix(self, table: Table, prefix: bytes) -> None: ...

    def commit(self, done: Done | None) -> None:
        """`done(None)` once every write queued so far is durable (with the messages appended before, in the one sync)."""
        ...
