"""A sync that fails ends all promises; a disk that is full ends none, and goes on by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lmq_store.api.errors import StorePoisoned
from lmq_store.api.ports import Table
from lmq_store.embedded.check import check
from tests.lmq_store.faults.workload import Workload
from tests.lmq_store.faulty_files import FaultyFiles

MIN_FREE = 8_000


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_sync_poisons(tmp_path: Path, seed: int) -> None:
    (tmp_path / "disk").mkdir()
    files = FaultyFiles(str(tmp_path / "disk"), seed)
    work = Workload(seed)
    work.open(str(tmp_path / "disk"), files)
    for _ in range(work.random.randrange(10, 80)):
        work.step()
    files.fail_sync = True
    while work.store.poisoned is None:
        try:
            work.step()
        except StorePoisoned:
            break
    acknowledged = work.acknowledged
    assert work.store.poisoned is not None
    with pytest.raises(StorePoisoned):
        work.append()
    answers: list[object] = []
    work.store.meta.put(Table.COUNTER, b"k", bytes(8))
    work.store.meta.commit(answers.append)
    for _ in range(5):
        work.settle()
        work.store.tick(work.now_ms)
    assert [type(answer) for answer in answers] == [StorePoisoned]
    assert work.acknowledged == acknowledged
    with pytest.raises(StorePoisoned):
        work.store.wait_durable()
    files.power_cut(str(tmp_path / "after"))
    work.store.close()
    work.open(str(tmp_path / "after"), None)
    work.verify()
    work.store.close()
    assert check(str(tmp_path / "after")).sound


@pytest.mark.parametrize("seed", range(20))
def test_a_full_disk_refuses_and_goes_on(tmp_path: Path, seed: int) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "disk").mkdir()
    files = FaultyFiles(str(tmp_path / "disk"), seed)
    work = Workload(seed, min_free_bytes=MIN_FREE if seed % 2 else 0)
    work.open(str(tmp_path / "disk"), files)
    for turn in range(4):
        files.space_left = work.random.randrange(40_000)
        for _ in range(80):
            work.step()
        if work.store.disk_full:
            rows = work.acknowledged
            work.write_rows()
            work.settle()
            if files.space_left > 1_000 and not work.store.write_refused:
                assert work.acknowledged > rows, "sessions are still kept and acknowledged"
            assert work.store.pull(work.queue(1), 0, 10, 1_000, lambda _: None) is not None
        files.space_left = None
        for _ in range(4):
            work.now_ms += 100
            work.store.tick(work.now_ms)
            work.settle()
        assert not work.store.disk_full
        assert work.acknowledged == len(work.events), "what waited is acknowledged"
        work.verify()
        if turn == 2:
            files.kill(str(tmp_path / "killed"))
    assert work.refused
    work.store.close()
    assert check(str(tmp_path / "disk")).sound
    work.store = type(work.store).open(str(tmp_path / "killed"))
    work.store.close()
    assert check(str(tmp_path / "killed")).sound
    assert len(os.listdir("/proc/self/fd")) == open_before, "a refused segment does not stay open"
