"""Drives an embedded store without a loop, on a clock of its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lmq_store.api.model import LightQueue, Message, Route
from lmq_store.embedded.files import Files
from lmq_store.embedded.store import EmbeddedStore, StoreOptions

T0 = 1_700_000_000_000
SEGMENT = 64 << 10


class Driven:
    """A store in a folder with small segments; `now_ms` is its clock."""

    def __init__(self, folder: str, files: Files | None = None, now_ms: int = T0, **options: Any) -> None:
        self.folder = folder
        self.files = files
        self.now_ms = now_ms
        self.options = StoreOptions(**{"segment_bytes": SEGMENT, "min_free_bytes": 0, **options})
        self.store = EmbeddedStore.open(folder, self.options, files=files, now_ms=now_ms)

    def reopen(self, **options: Any) -> None:
        """Close in order and open again."""
        self.store.close()
        self.__init__(self.folder, self.files, self.now_ms, **options)  # type: ignore[misc]

    def route(self, topic: bytes, *queue_ids: int, parent_id: int = 0) -> Route:
        """A route with one parent partition and the light queues of these ids."""
        parent = self.store.open_queue((1 << 40) + parent_id * 256, b"parent")
        return Route(topic, parent_id, [parent], [self.queue(queue_id) for queue_id in queue_ids])

    def queue(self, queue_id: int) -> LightQueue:
        return self.store.open_queue(queue_id, b"queue %d" % queue_id)

    def publish(self, route: Route, payloads: Iterable[bytes], qos: int = 1) -> None:
        """Append and make durable."""
        messages = []
        for payload in payloads:
            message = Message(route.topic, payload, qos)
            message.route = route
            messages.append(message)
        self.store.append(messages, self.now_ms, lambda _: None)
        self.store.wait_durable()

    def ticks(self, count: int = 40, step_ms: int = 300) -> None:
        """Let time pass, so that index, retention and collection do their steps."""
        for _ in range(count):
            self.now_ms += step_ms
            self.store.tick(self.now_ms)
            self.store.wait_durable()
            self.store.upkeep.join()

    def read(self, queue_id: int, queue_offset: int = 0) -> list[bytes]:
        """All payloads that are readable from the offset on."""
        queue = self.queue(queue_id)
        found: list[bytes] = []
        while True:
            pulled = self.store.pull(queue, queue_offset, 1_000, 1 << 30, lambda _: None)
            assert pulled is not None
            if not pulled.messages:
                return found
            found += [message.payload for message in pulled.messages]
            queue_offset = pulled.next_offset


def copy_while_running(source: Path, target: Path) -> None:
    """The folder as a kill would leave it now; a file that is being deleted may or may not be there."""

    def copy(name: str, to: str) -> None:
        try:
            shutil.copy2(name, to)
        except FileNotFoundError:
            pass

    shutil.copytree(source, target, copy_function=copy)


def wait_until(condition: object, seconds: float = 5.0) -> None:
    """For the threads beside the store."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)
