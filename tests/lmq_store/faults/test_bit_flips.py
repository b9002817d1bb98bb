"""A bit flips in what was durable: it is named, never passed over; a repair keeps every other record."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from lmq_store.api.errors import CorruptionError
from lmq_store.embedded.check import check
from lmq_store.embedded.files import OsFiles
from lmq_store.embedded.log_format import MESSAGE
from lmq_store.embedded.log_walk import LogWalk, segment_files
from lmq_store.embedded.record import decode_message, record_size, record_type
from tests.lmq_store.faults.workload import PARENT, Workload
from tests.lmq_store.faulty_files import FaultyFiles, flip_bit


@dataclass
class Place:
    """A record of the undamaged log: `payload` None where it is no message."""

    position: int
    size: int
    payload: bytes | None


def filled(folder: Path, seed: int) -> Workload:
    work = Workload(seed)
    folder.mkdir()
    work.open(str(folder), FaultyFiles(str(folder)))  # syncs in the caller: the same frames for the same seed
    for _ in range(120):
        work.step()
    work.store.wait_durable()
    work.verify()
    work.store.close()
    return work


def places(folder: Path) -> tuple[list[Place], int]:
    """All records, and the position up to which the log itself says that it was synced.

    What lies behind it was synced too, but only the acknowledgements and the databases' checkpoints knew.
    """
    found, last = [], 0
    for frame in LogWalk(OsFiles(), str(folder / "log")).frames():
        last = frame.synced_end
        for place, position in frame.records():
            message = decode_message(frame.data, place) if record_type(frame.data, place) == MESSAGE else None
            found.append(Place(position, record_size(frame.data, place), message.payload if message else None))
    return found, last


def flip(folder: Path, random: Random, before: int) -> int:
    """Flip a bit of the log somewhere below the position `before`; returns the position."""
    segments = [one for one in segment_files(OsFiles(), str(folder / "log")) if one.base < before]
    segment = random.choice(segments)
    return segment.base + flip_bit(segment.path, random, 0, min(segment.size, before - segment.base))


@pytest.mark.parametrize("seed", range(25))
def test_refused_and_repaired(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "store"
    work = filled(folder, seed)
    records, last = places(folder)
    shutil.rmtree(folder / "index")
    shutil.rmtree(folder / "meta")  # so that all of the log is read at opening
    at = flip(folder, Random(seed), last)
    hit = [record for record in records if record.position <= at < record.position + record.size]
    frame = max(gap.position for gap in damaged(folder))

    with pytest.raises(CorruptionError) as refused:
        work.open(str(folder), None)
    assert f"(position {frame})" in str(refused.value)
    assert "--repair" in str(refused.value)

    work.open(str(folder), None, repair=True)
    left = payloads(work, PARENT)
    assert left == [record.payload for record in records if record.payload is not None and record not in hit]
    work.append()
    work.store.wait_durable()
    work.store.close()
    found = check(str(folder))
    assert found.sound, found.faults
    assert len(places(folder)[0]) >= len(records) - len(hit)
    work.open(str(folder), None)
    assert payloads(work, PARENT)[: len(left)] == left
    work.store.close()


def damaged(folder: Path) -> list:  # type: ignore[type-arg]
    walk = LogWalk(OsFiles(), str(folder / "log"))
    for _ in walk.frames():
        pass
    assert len(walk.gaps) == 1
    return walk.gaps


def payloads(work: Workload, queue_id: int) -> list[bytes]:
    pulled = work.store.pull(work.queue(queue_id), 0, 1_000_000, 1 << 30, lambda _: None)
    assert pulled is not None
    return [message.payload for message in pulled.messages]


@pytest.mark.parametrize("seed", range(50, 65))
def test_met_later_it_is_reported_counted_and_passed_over(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage that lies further back than what an opening reads."""
    folder = tmp_path / "store"
    monkeypatch.setattr("lmq_store.embedded.store.VERIFY_BYTES", 0)
    work = filled(folder, seed)
    records, last = places(folder)
    at = flip(folder, Random(seed), last)
    hit = [record for record in records if record.position <= at < record.position + record.size and record.payload is not None]
    work.open(str(folder), None)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert payloads(work, PARENT) == [record.payload for record in records if record.payload is not None and record not in hit]
    assert work.store.reader.bad_records == 2 * len(hit)
    assert sum(f"position {record.position}" in line.message for record in hit for line in caplog.records) == len(hit)
    work.append()
    work.store.wait_durable()
    assert work.events[-1].payload == payloads(work, PARENT)[-1]
    work.store.close()
    found = check(str(folder))
    assert not found.sound
    assert any("corrupt bytes at position" in fault for fault in found.faults)
