"""A message in more light queues than one record holds: the rest comes in dispatch records, live and in a replay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lmq_store.api.model import Message
from lmq_store.embedded.check import check
from lmq_store.embedded.log_format import MAX_QUEUES
from tests.lmq_store.embedded_guarantees.drive import Driven


@pytest.mark.parametrize("count", [MAX_QUEUES - 1, MAX_QUEUES, MAX_QUEUES + 1, 2 * MAX_QUEUES + 5])
def test_every_queue_has_it(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "store"
    driven = Driven(str(folder), segment_bytes=1 << 20)
    route = driven.route(b"t", *range(1, count + 1))
    last = route.lights[-1]
    last.readers.append(object())
    message = Message(b"t", b"first", 1)
    message.route = route
    runs = driven.store.append([message], driven.now_ms, lambda _: None)
    assert [(run.queue is last, run.first_offset, run.messages) for run in runs] == [(True, 0, [message])]
    driven.store.wait_durable()
    driven.publish(driven.route(b"t", 1, count), [b"second"])
    for way in ("live", "index rebuilt", "reopened"):
        for queue_id in (1, MAX_QUEUES - 1, count):
            expected = [b"first", b"second"] if queue_id in (1, count) else [b"first"]
            assert driven.read(queue_id) == expected, way
        driven.store.close()
        if way == "live":
            shutil.rmtree(folder / "index")
        driven = Driven(str(folder), segment_bytes=1 << 20)
    assert [found.payload for found in driven.store.scan(0, 1 << 20)[0]] == [b"first", b"second"]
    driven.store.close()
    found = check(str(folder))
    assert found.sound, found.faults
