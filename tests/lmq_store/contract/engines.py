"""The engines that the contract suite runs against. A new engine adds a factory here and changes no test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from lmq_store.api.model import LightQueue, Message, Route
from lmq_store.api.ports import MessageStore, MetaStore
from lmq_store.embedded.store import EmbeddedStore, StoreOptions
from tests.lmq_store.memory_store import MemoryStore

PARTITIONS = 2
CLOCK_MS = 1_699_999_999_000
"""When engines that are told the time are opened: just before the times that the tests use."""


class Engine(Protocol):
    """One engine under test, with what a test must be able to do to it from outside."""

    @property
    def store(self) -> MessageStore: ...

    @property
    def meta(self) -> MetaStore: ...

    def settle(self) -> None:
        """Return when everything asked for is durable (or refused), its callbacks have run, and it is readable."""
        ...

    def reopen(self) -> None:
        """Close in order and open again: `store` and `meta` are new objects over the same data."""
        ...

    def close(self) -> None: ...


class MemoryEngine:
    """The naive engine keeps the suite itself honest."""

    def __init__(self, _: Path) -> None:
        self.store = MemoryStore()
        self.meta = self.store.meta

    def settle(self) -> None:
        self.store.sync()

    def reopen(self) -> None:
        self.store.groups.save_all()
        self.settle()
        before, self.store = self.store, MemoryStore()
        self.store.log, self.store.entries, self.store.durable = before.log, before.entries, before.durable
        self.store.meta.tables = before.meta.tables
        self.meta = self.store.meta

    def close(self) -> None:
        pass


class EmbeddedEngine:
    """The embedded store, without fault or limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "store")
        self.options = StoreOptions(segment_bytes=4 << 20, min_free_bytes=0)
        self.store = EmbeddedStore.open(self.folder, self.options, now_ms=CLOCK_MS)

    @property
    def meta(self) -> MetaStore:
        return self.store.meta

    def settle(self) -> None:
        self.store.wait_durable()
        self.store.tick(CLOCK_MS)

    def reopen(self) -> None:
        self.store.close()
        self.store = EmbeddedStore.open(self.folder, self.options, now_ms=CLOCK_MS)

    def close(self) -> None:
        self.store.close()


ENGINES: dict[str, Callable[[Path], Engine]] = {"memory": MemoryEngine, "embedded": EmbeddedEngine}


class Topics:
    """Queue ids and routes as a proxy would give them: light queues count up, parents lie above 1 << 40."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.next_id = 1
        self.parent_ids = 0

    def queue(self, name: bytes) -> LightQueue:
        queue = self.engine.store.open_queue(self.next_id, name)
        self.next_id += 1
        return queue

    def parent(self, name: bytes) -> tuple[int, list[LightQueue]]:
        parent_id = self.parent_ids
        self.parent_ids += 1
        first = (1 << 40) + parent_id * 256
        return parent_id, [
            self.engine.store.open_queue(first + partition, name + b" %d" % partition)
            for partition in range(PARTITIONS)
        ]

    def route(self, topic: bytes, *lights: LightQueue) -> Route:
        parent_id, parents = self.parent(topic)
        return Route(topic, parent_id, parents, list(lights))


def message(route: Route, payload: bytes, qos: int = 1, **fields: Any) -> Message:
    """A message on the route, as a decoder makes it."""
    made = Message(route.topic, payload, qos)
    made.route = route
    for name, value in fields.items():
        setattr(made, name, value)
    return made
