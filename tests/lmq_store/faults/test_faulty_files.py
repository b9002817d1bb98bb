"""The faulty file layer keeps its own promises: what is synced survives, what isn't may not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.lmq_store.faulty_files import FaultyFiles, flip_bit


def survivors(tmp_path: Path, seed: int) -> bytes | None:
    root = tmp_path / f"disk{seed}"
    root.mkdir()
    files = FaultyFiles(str(root), seed)
    handle = files.open(str(root / "a"), create=True)
    files.fsync_dir(str(root))
    files.pwrite(handle, b"A" * 1000, 0)
    files.fdatasync(handle)
    files.pwrite(handle, b"B" * 2000, 1000)
    assert files.pread(handle, 5000, 0) == b"A" * 1000 + b"B" * 2000
    after = tmp_path / f"after{seed}"
    files.power_cut(str(after))
    files.close(handle)
    return (after / "a").read_bytes()


def test_synced_bytes_survive_and_unsynced_ones_are_torn_in_many_ways(tmp_path: Path) -> None:
    images = {survivors(tmp_path, seed) for seed in range(40)}
    assert all(image is not None and image[:1000] == b"A" * 1000 for image in images)
    assert len({len(image) for image in images if image}) > 3
    assert b"A" * 1000 in images
    assert b"A" * 1000 + b"B" * 2000 in images


def test_an_unsynced_name_may_be_lost(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    files = FaultyFiles(str(root), 1)
    handle = files.open(str(root / "a"), create=True)
    files.pwrite(handle, b"x", 0)
    files.fdatasync(handle)
    kept = 0
    for round_no in range(20):
        files.power_cut(str(tmp_path / f"after{round_no}"))
        kept += (tmp_path / f"after{round_no}" / "a").exists()
    assert 0 < kept < 20
    files.close(handle)


def test_sync_failure_and_full_disk(tmp_path: Path) -> None:
    files = FaultyFiles(str(tmp_path), 3)
    handle = files.open(str(tmp_path / "a"), create=True)
    files.fail_sync = True
    with pytest.raises(OSError, match="Input/output") as failed:
        files.fdatasync(handle)
    assert failed.value.errno == errno.EIO
    files.space_left = 10
    with pytest.raises(OSError, match="No space") as full:
        files.pwrite(handle, b"x" * 11, 0)
    assert full.value.errno == errno.ENOSPC
    assert os.path.getsize(tmp_path / "a") == 10
    files.pwrite(handle, b"y" * 10, 0)  # overwriting needs no new space
    files.close(handle)


def test_flip_bit_changes_one_bit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    at = flip_bit(str(path), FaultyFiles(str(tmp_path), 5).random)
    data = path.read_bytes()
    assert data[at] in {1 << bit for bit in range(8)}
    assert sum(data) == data[at]
