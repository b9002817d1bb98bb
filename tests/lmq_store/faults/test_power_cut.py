"""The power goes at any call: nothing acknowledged is lost, nothing half is kept, and the store opens by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmq_store.embedded.check import check
from tests.lmq_store.faults.workload import SEGMENT, Workload
from tests.lmq_store.faulty_files import FaultyFiles, PowerCut

ROUNDS = 4


def run_rounds(tmp_path: Path, seed: int, **options: int | str) -> Workload:
    """Work, cut, look at what is left, go on from there: several times with one model."""
    work = Workload(seed, **options)
    root = tmp_path / "disk0"
    root.mkdir()
    for round_no in range(ROUNDS):
        files = FaultyFiles(str(root), seed * 1_000 + round_no)
        files.cut_after = work.random.randrange(1, 120)
        opened = False
        try:
            work.open(str(root), files)
            opened = True
            work.verify()
            for _ in range(400):
                work.step()
        except PowerCut:
            pass
        after = tmp_path / f"disk{round_no + 1}"
        after.mkdir()
        files.power_cut(str(after))
        files.cut_after = None
        if opened:
            work.store.abandon()
        root = after
    found = check(str(root)) if (root / "FORMAT").exists() else None
    assert found is None or found.sound, found.faults
    work.open(str(root), None)
    work.verify()
    work.append()
    work.store.wait_durable()
    work.verify()
    work.store.close()
    found = check(str(root))
    assert found.sound, found.faults
    assert not any("torn" in note for note in found.notes)
    return work


@pytest.mark.parametrize("seed", range(40))
def test_flush_sync(tmp_path: Path, seed: int) -> None:
    run_rounds(tmp_path, seed)


@pytest.mark.parametrize("seed", range(100, 125))
def test_with_retention(tmp_path: Path, seed: int) -> None:
    run_rounds(tmp_path, seed, retention_bytes=3 * SEGMENT)


@pytest.mark.parametrize("seed", range(200, 215))
def test_flush_async_loses_only_a_tail(tmp_path: Path, seed: int) -> None:
    """Under `async` an acknowledgement promises what was written; what is left is still a prefix."""
    work = AsyncWorkload(seed, flush="async", flush_interval_ms=50)
    root = tmp_path / "disk"
    root.mkdir()
    files = FaultyFiles(str(root), seed)
    files.cut_after = work.random.randrange(20, 200)
    try:
        work.open(str(root), files)
        for _ in range(400):
            work.step()
    except PowerCut:
        pass
    files.power_cut(str(tmp_path / "after"))
    files.cut_after = None
    work.store.abandon()
    work.open(str(tmp_path / "after"), None)
    work.acknowledged = 0
    work.verify()
    work.store.close()
    assert check(str(tmp_path / "after")).sound


class AsyncWorkload(Workload):
    """Nothing is sure but order."""
