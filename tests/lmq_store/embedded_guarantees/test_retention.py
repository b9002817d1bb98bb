"""Retention: whole segments leave, offsets never go back, nothing else is lost, at whatever point it is interrupted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmq_store.embedded.files import OsFiles
from tests.lmq_store.embedded_guarantees.drive import SEGMENT, Driven, copy_while_running, wait_until

HOUR_MS = 3_600_000


def filled(folder: Path, **options: Any) -> Driven:
    """Six segments; queue 1 gets every message, queue 2 only the first ten, queue 3 only the last ten."""
    driven = Driven(str(folder), **options)
    first, middle, last = driven.route(b"t", 1, 2), driven.route(b"t", 1), driven.route(b"t", 1, 3)
    driven.publish(first, [b"a%d" % number + bytes(1_000) for number in range(10)])
    for batch in range(30):
        driven.now_ms += HOUR_MS
        driven.publish(middle, [b"b%d.%d" % (batch, number) + bytes(1_000) for number in range(10)])
    driven.publish(last, [b"c%d" % number + bytes(1_000) for number in range(10)])
    driven.ticks(4)
    assert len(driven.store.log.segments) >= 5
    return driven


def names(driven: Driven) -> list[str]:
    return [payload.rstrip(b"\0").decode() for payload in driven.read(1)]


def segments_on_disk(driven: Driven) -> list[str]:
    return sorted(os.listdir(f"{driven.folder}/log"))


def test_nothing_leaves_before_its_time(tmp_path: Path) -> None:
    driven = filled(tmp_path, retention_ms=100 * HOUR_MS)
    driven.ticks(60)
    assert len(names(driven)) == 320
    assert driven.store.min_offset(driven.queue(1)) == 0
    driven.store.close()


@pytest.mark.parametrize("limit", [{"retention_bytes": 2 * SEGMENT}, {"retention_ms": 10 * HOUR_MS}], ids=["size", "age"])
def test_old_segments_leave_and_the_rest_stays_exact(tmp_path: Path, limit: dict[str, int]) -> None:
    driven = filled(tmp_path, retention_ms=0)
    everything = names(driven)
    driven.reopen(**({"retention_ms": 0} | limit))
    driven.ticks(80)
    wait_until(lambda: segments_on_disk(driven)[0] == f"{driven.store.log.start:020d}.log")
    left = names(driven)
    assert 30 < len(left) < 250
    assert everything[-len(left) :] == left
    lowest = driven.store.min_offset(driven.queue(1))
    assert lowest == 320 - len(left)
    assert [payload[:2] for payload in driven.read(3)] == [b"c%d" % number for number in range(10)]
    assert driven.read(2) == []
    pulled = driven.store.pull(driven.queue(1), 0, 5, 1 << 20, lambda _: None)
    assert pulled is not None
    assert pulled.offsets[0] == lowest, "a reader that was left behind is moved forward"
    assert driven.store.offset_at_time(driven.queue(1), 0) == lowest
    assert driven.store.scan(0, 1 << 30)[0][0].position >= driven.store.log.start
    driven.store.close()


def test_time_marks_go_with_their_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of times is bounded by retention like everything else, and still answers."""
    monkeypatch.setattr("lmq_store.embedded.light_queues.TIME_MARK_BYTES", 4_096)
    driven = filled(tmp_path, retention_ms=0, retention_bytes=2 * SEGMENT)
    driven.ticks(80)
    store = driven.store
    marks = [int.from_bytes(key[1:], "big") for key, _ in store.queues.database.range(b"T")]
    assert marks and marks[0] >= store.log.start > 0
    assert store.position_at_time(0) == store.scan(store.log.start, 1 << 20)[0][0].position
    last = driven.now_ms - 2 * HOUR_MS
    found = store.scan(store.position_at_time(last), 1 << 20)[0][0]
    assert last <= found.stored_ms < last + HOUR_MS
    store.close()


def test_no_offset_goes_back(tmp_path: Path) -> None:
    """A queue whose records are all gone goes on counting, over reopening and over a rebuild of the index."""
    driven = filled(tmp_path, retention_ms=0, retention_bytes=SEGMENT)
    driven.ticks(80)
    assert driven.read(2) == []
    for rebuild in (False, True):
        driven.store.close()
        if rebuild:
            shutil.rmtree(f"{driven.folder}/index")
        driven = Driven(driven.folder, now_ms=driven.now_ms, retention_ms=0)
        queue = driven.queue(2)
        assert driven.store.max_offset(queue) == 10 + rebuild
        assert driven.store.min_offset(queue) == 10
        driven.publish(driven.route(b"t", 2), [b"more"])
        assert driven.read(2) == [b"more"] * (1 + rebuild)
        assert driven.store.max_offset(driven.queue(1)) == 320
    driven.store.close()


def test_killed_at_every_step_of_it(tmp_path: Path) -> None:
    """The folder as it is after each step opens, has at least what retention keeps, and ends retention itself."""
    driven = filled(tmp_path / "a", retention_ms=0, retention_bytes=2 * SEGMENT)
    everything = [f"a{n}" for n in range(10)] + [f"b{batch}.{n}" for batch in range(30) for n in range(10)] + [f"c{n}" for n in range(10)]
    for step in range(60):
        driven.now_ms += 300
        driven.store.tick(driven.now_ms)
        driven.store.flush()
        if step % 3 == 0:
            copy = tmp_path / f"copy{step}"
            copy_while_running(tmp_path / "a", copy)
            other = Driven(str(copy), now_ms=driven.now_ms, retention_ms=0)
            left = names(other)
            assert everything[-len(left) :] == left
            assert len(left) >= 50
            assert other.store.max_offset(other.queue(2)) == 10
            assert other.store.max_offset(other.queue(1)) == 320
            assert len(other.read(3)) == 10
            other.store.close()
            shutil.rmtree(copy)
        driven.store.sync.wait() if driven.store.commits.in_flight else None
        driven.store.on_sync_ready()
        if step % 2:
            driven.store.upkeep.join()
    assert driven.store.retention.segments_removed >= 2
    driven.store.close()


def test_the_active_segment_stays(tmp_path: Path) -> None:
    driven = filled(tmp_path, retention_ms=1, retention_bytes=1)
    driven.now_ms += 1_000 * HOUR_MS
    driven.ticks(80)
    assert len(driven.store.log.segments) == 1
    driven.publish(driven.route(b"t", 1), [b"on"])
    assert driven.read(1)[-1] == b"on"
    driven.store.close()


def test_a_file_that_cannot_be_deleted_is_tried_again_before_newer_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = filled(tmp_path, retention_ms=0)
    everything = names(driven)
    driven.reopen(retention_ms=0, retention_bytes=2 * SEGMENT)
    refused = [True]

    class Refusing(OsFiles):
        def unlink(self, path: str) -> None:
            if refused[0]:
                raise PermissionError(13, "not allowed", path)
            super().unlink(path)

    driven.store.log.files = Refusing()
    before = segments_on_disk(driven)
    driven.ticks(60)
    assert segments_on_disk(driven)[: len(before)] == before
    wait_until(lambda: "cannot delete a segment" in caplog.text)
    copy_while_running(tmp_path, tmp_path.parent / "copy")
    other = Driven(str(tmp_path.parent / "copy"), now_ms=driven.now_ms, retention_ms=0)
    left = names(other)
    assert everything[-len(left) :] == left
    other.store.close()
    refused[0] = False
    wait_until(lambda: driven.ticks(20) or segments_on_disk(driven)[0] == f"{driven.store.log.start:020d}.log")
    driven.store.close()
