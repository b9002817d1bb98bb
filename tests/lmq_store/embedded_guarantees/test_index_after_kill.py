"""What a killed process had written of the index beyond its checkpoint, and what the replay writes there anew, make one whole."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lmq_store.embedded.check import check
from lmq_store.embedded.light_queues import run_key
from lmq_store.embedded.rocks import new_batch
from tests.lmq_store.embedded_guarantees.drive import Driven, copy_while_running


@pytest.mark.parametrize("seed", range(12))
def test_runs_of_before_the_kill_hide_nothing(tmp_path: Path, seed: int) -> None:
    """Runs that begin elsewhere than those of the replay, and end before them or after."""
    random = Random(seed)
    driven = Driven(str(tmp_path / "first"))
    route = driven.route(b"t", 1)
    payloads = [b"%d" % number for number in range(random.randrange(700, 1_500))]
    known = random.randrange(1, 400)
    driven.publish(route, payloads[:known])
    driven.ticks(3)
    for start in range(known, len(payloads), 97):
        driven.publish(route, payloads[start : start + 97])
    queue = driven.store.queues.open[1]
    assert queue.tail_first == known
    batch = new_batch()
    at = 0
    while at < queue.tail_count:  # the flush of a process that is killed before its checkpoint
        stop = min(queue.tail_count, at + random.choice([1, 20, 86, 256]))
        if random.random() < 0.7:
            batch.put(run_key(1, known + at), queue.entries(at, stop))
        at = stop
    driven.store.queues.database.write(batch)
    driven.store.queues.database.flush()
    copy_while_running(tmp_path / "first", tmp_path / "killed")
    driven.store.close()

    again = Driven(str(tmp_path / "killed"))
    assert again.read(1) == payloads
    for tick in range(4):
        again.ticks(1)
        for offset in range(0, len(payloads), 7):
            assert again.read(1, offset)[:1] == [payloads[offset]], (tick, offset)
    assert again.read(1) == payloads
    assert again.store.max_offset(again.queue(1)) == len(payloads)
    again.reopen()
    assert again.store.max_offset(again.queue(1)) == len(payloads)
    assert again.read(1) == payloads
    again.store.close()
    assert check(str(tmp_path / "killed")).sound
