"""Collection: a dropped queue's entries go in small steps, for good, and nobody else's."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from lmq_store.embedded.light_queues import run_key
from lmq_store.embedded.meta_tables import OWN
from tests.lmq_store.embedded_guarantees.drive import Driven


def runs_of(driven: Driven, queue_id: int) -> int:
    return sum(1 for _ in driven.store.queues.database.range(run_key(queue_id, 0)[:9]))


def marks(driven: Driven) -> int:
    return sum(1 for _ in driven.store.meta.scan(OWN, b"D"))


def test_entries_go_and_others_stay(tmp_path: Path) -> None:
    driven = Driven(str(tmp_path))
    both = driven.route(b"t", 1, 2)
    for number in range(100):
        driven.publish(both, [b"%d" % number])
        driven.ticks(1, step_ms=2_100)
    assert runs_of(driven, 1) > 64, "enough for a range deletion"
    few, others = driven.route(b"t", 3, 2), driven.route(b"t", 2)
    driven.publish(few, [b"x"])
    driven.ticks(3)
    driven.store.drop_queue(driven.queue(1))
    driven.store.drop_queue(driven.queue(3))
    assert marks(driven) == 2
    driven.ticks(3)
    assert (runs_of(driven, 1), runs_of(driven, 3)) == (0, 0)
    assert len(driven.read(2)) == 101
    driven.publish(others, [b"later"])  # a row goes once the files hold something that is younger than the deletions
    driven.ticks(10)
    driven.store.request_persist()
    driven.ticks(10)
    assert marks(driven) == 0
    driven.store.close()


def test_a_collection_is_taken_up_again_after_a_kill(tmp_path: Path) -> None:
    driven = Driven(str(tmp_path / "a"))
    both = driven.route(b"t", 1, 2)
    driven.publish(both, [b"%d" % number for number in range(50)])
    driven.ticks(3)
    driven.store.drop_queue(driven.queue(1))
    driven.store.wait_durable()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    driven.store.close()
    driven = Driven(str(tmp_path / "b"), now_ms=driven.now_ms)
    assert driven.store.collection.waiting == 1
    driven.ticks(3)
    assert runs_of(driven, 1) == 0
    assert len(driven.read(2)) == 50
    driven.store.close()


def test_entries_do_not_go_before_the_drop_is_durable(tmp_path: Path) -> None:
    driven = Driven(str(tmp_path))
    driven.publish(driven.route(b"t", 1), [b"x"])
    driven.ticks(3)
    driven.store.drop_queue(driven.queue(1))
    driven.store.collection.step()
    assert runs_of(driven, 1) == 1
    driven.store.wait_durable()
    driven.store.collection.step()
    assert runs_of(driven, 1) == 0, "the drop is durable now"
    driven.store.close()


def test_a_step_is_short_however_many_are_dropped(tmp_path: Path) -> None:
    driven = Driven(str(tmp_path), segment_bytes=64 << 20)
    for first in range(1, 20_001, 1_000):
        driven.publish(driven.route(b"t", *range(first, first + 1_000)), [b"x"])
    while driven.store.appender.dirty or driven.store.upkeep.indexing:
        driven.ticks(1)
    steps = []
    for queue_id in range(1, 20_001):
        driven.store.drop_queue(driven.queue(queue_id))
        if queue_id % 500 == 0:  # so many a tick, as the proxy does
            began = time.perf_counter()
            driven.store.collection.step()
            steps.append(time.perf_counter() - began)
            driven.store.wait_durable()
    while driven.store.collection.waiting:
        began = time.perf_counter()
        driven.store.collection.step()
        steps.append(time.perf_counter() - began)
    assert sorted(steps)[len(steps) // 2] < 0.01
    assert sum(runs_of(driven, queue_id) for queue_id in range(1, 20_001, 997)) == 0
    driven.store.close()
