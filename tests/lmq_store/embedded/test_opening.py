"""Opening a folder after whatever happened to it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmq_store.api.errors import CorruptionError, DiskFull, FormatError, StoreLocked, StorePoisoned
from lmq_store.api.model import Message, Route
from lmq_store.api.ports import Table
from lmq_store.embedded import store_folder
from lmq_store.embedded.record import frame_header_length
from lmq_store.embedded.store import EmbeddedStore
from tests.lmq_store.embedded_guarantees.drive import Driven
from tests.lmq_store.faulty_files import FaultyFiles


def payloads(driven: Driven, queue_id: int = 1) -> list[bytes]:
    return driven.read(queue_id)


def log_file(folder: Path) -> Path:
    return max((folder / "log").iterdir())


def frame_places(data: bytes, base: int = 0) -> list[tuple[int, int]]:
    """(place, length) of every frame of a segment."""
    found, at = [], 0
    while (length := frame_header_length(data, at, len(data), base + at)) > 0:
        found.append((at, length))
        at += length
    return found


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Ten frames with five messages each, in queue 1 and with one row each; closed in order."""
    folder = tmp_path / "filled"
    driven = Driven(str(folder), segment_bytes=1 << 20)
    route = driven.route(b"t", 1)
    for batch in range(10):
        driven.store.meta.put(Table.SESSION, b"%d" % batch, b"row")
        driven.publish(route, [b"%d.%d" % (batch, number) for number in range(5)])
    driven.store.close()
    return folder


ALL = [b"%d.%d" % (batch, number) for batch in range(10) for number in range(5)]


def without_tables(folder: Path, target: Path) -> Path:
    """A copy whose index and tables have to be made from the log."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("index", "meta"))
    return target


def test_all_tables_come_from_the_log(filled: Path, tmp_path: Path) -> None:
    driven = Driven(str(without_tables(filled, tmp_path / "copy")), segment_bytes=1 << 20)
    assert payloads(driven) == ALL
    assert [key for key, _ in driven.store.meta.scan(Table.SESSION, b"")] == [b"%d" % batch for batch in range(10)]
    driven.store.close()


def test_a_tail_torn_at_any_byte_is_cut(filled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = log_file(filled).read_bytes()
    place, length = frame_places(data)[-1]
    assert place + length == len(data)
    step = max(1, length // 40)
    for cut in [*range(place, place + length, step), place + 1, place + length - 1]:
        folder = without_tables(filled, tmp_path / "copy")
        log_file(folder).write_bytes(data[:cut])
        caplog.clear()
        driven = Driven(str(folder), segment_bytes=1 << 20)
        assert payloads(driven) == ALL[:45], cut
        torn = [record for record in caplog.records if "torn tail" in record.message]
        assert len(torn) == (cut > place)
        driven.publish(driven.route(b"t", 1), [b"more"])
        driven.store.close()
        driven = Driven(str(folder), segment_bytes=1 << 20)
        assert payloads(driven) == [*ALL[:45], b"more"]
        driven.store.close()
        shutil.rmtree(folder)


def test_a_flipped_bit_in_the_middle_is_refused_and_repaired(
    filled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = log_file(filled).read_bytes()
    place, length = frame_places(data)[5]
    for at in range(place, place + length, max(1, length // 30)):
        folder = without_tables(filled, tmp_path / "copy")
        changed = bytearray(data)
        changed[at] ^= 16
        log_file(folder).write_bytes(changed)
        with pytest.raises(CorruptionError, match=f"position {place}"):
            Driven(str(folder), segment_bytes=1 << 20)
        driven = Driven(str(folder), segment_bytes=1 << 20, repair=True)
        found = payloads(driven)
        assert len(found) >= 49
        assert [one for one in ALL if one in found] == found
        assert driven.store.repair is not None
        assert (len(driven.store.repair.report) > 0) == (at >= place + 32)
        assert (folder / "repair").exists()
        driven.store.close()
        driven = Driven(str(folder), segment_bytes=1 << 20)  # and then it is sound
        assert payloads(driven) == found
        driven.store.close()
        shutil.rmtree(folder)


def test_bytes_missing_in_the_middle_are_refused_and_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    driven = Driven(str(folder), segment_bytes=20_000)
    route = driven.route(b"t", 1)
    for batch in range(30):
        driven.publish(route, [b"%d" % batch + bytes(3_000)])
    driven.store.close()
    second = sorted((folder / "log").iterdir())[1]
    os.truncate(second, 5_000)
    shutil.rmtree(folder / "index")
    shutil.rmtree(folder / "meta")
    with pytest.raises(CorruptionError):
        Driven(str(folder), segment_bytes=20_000)
    driven = Driven(str(folder), segment_bytes=20_000, repair=True)
    assert 20 < len(payloads(driven)) < 30
    driven.store.close()


def test_what_the_tables_know_beyond_the_end_is_missed(filled: Path) -> None:
    """A tail that was synced (a checkpoint lies beyond it) is no torn tail."""
    path = log_file(filled)
    place, _ = frame_places(path.read_bytes())[-2]
    os.truncate(path, place + 10)
    with pytest.raises(CorruptionError):
        Driven(str(filled), segment_bytes=1 << 20)


def test_a_damaged_index_is_rebuilt(filled: Path) -> None:
    for name in os.listdir(filled / "index"):
        if name.startswith(("CURRENT", "MANIFEST")) or name.endswith(".sst"):
            (filled / "index" / name).write_bytes(b"damaged")
    driven = Driven(str(filled), segment_bytes=1 << 20)
    assert payloads(driven) == ALL
    driven.store.close()


def test_damage_before_the_checkpoint_is_refused_too(filled: Path) -> None:
    path = log_file(filled)
    data = bytearray(path.read_bytes())
    data[frame_places(bytes(data))[3][0] + 132] ^= 255
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"\.log byte \d+ \(position \d+\).*--repair"):
        Driven(str(filled), segment_bytes=1 << 20)


def test_a_log_that_ends_before_what_the_tables_know_is_refused(filled: Path) -> None:
    os.truncate(log_file(filled), 0)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="ends at position 0, although the tables know what came up to"):
            Driven(str(filled), segment_bytes=1 << 20)
    driven = Driven(str(filled), segment_bytes=1 << 20, repair=True)
    assert payloads(driven) == []
    driven.store.close()


def test_a_completed_segment_that_is_too_short_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it lies further back than what an opening reads."""
    monkeypatch.setattr("lmq_store.embedded.store.VERIFY_BYTES", 0)
    driven = Driven(str(tmp_path))
    route = driven.route(b"t", 1)
    for _ in range(20):
        driven.publish(route, [bytes(1_000) for _ in range(10)])
    driven.store.close()
    first, *others = sorted((tmp_path / "log").iterdir())
    assert others
    os.truncate(first, int(others[0].stem) - 37)
    with pytest.raises(CorruptionError, match=r"is cut: it has \d+ of \d+ bytes"):
        Driven(str(tmp_path))
    driven = Driven(str(tmp_path), repair=True)
    assert 100 < len(driven.read(1)) < 200
    driven.store.close()


def test_damage_met_while_reading_is_passed_over(filled: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far before the checkpoint nothing is checked at opening: readers go on after what is bad, and say where it was."""
    monkeypatch.setattr("lmq_store.embedded.store.VERIFY_BYTES", 0)
    path = log_file(filled)
    data = bytearray(path.read_bytes())
    places = frame_places(bytes(data))
    for number, at in ((3, 32 + 100), (5, 3), (7, 32), (8, 32 + 1)):
        data[places[number][0] + at] ^= 255
    path.write_bytes(data)
    driven = Driven(str(filled), segment_bytes=1 << 20)
    found = [message.payload for message in driven.store.scan(0, 1 << 20)[0]]
    assert [one for one in ALL if one in found] == found
    assert 38 <= len(found) < 50
    assert found[-5:] == ALL[-5:]
    by_index = payloads(driven)
    assert set(found) <= set(by_index)
    assert driven.store.reader.bad_records > 0
    assert any("passed over" in record.message for record in caplog.records)
    driven.store.close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("lmq-store 2\n")
    with pytest.raises(FormatError, match="newer"):
        Driven(str(tmp_path))
    (tmp_path / "FORMAT").write_text("something else\n")
    with pytest.raises(FormatError):
        Driven(str(tmp_path))


def test_a_log_without_a_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    driven = Driven(str(tmp_path))
    driven.store.close()
    (tmp_path / "FORMAT").unlink()
    with pytest.raises(FormatError, match="it has a log, but no file FORMAT"):
        Driven(str(tmp_path))
    assert not (tmp_path / "FORMAT").exists()
    (tmp_path / "FORMAT").write_text("lmq-store 1\n")
    Driven(str(tmp_path)).store.close()


def test_a_start_that_ended_before_the_log_began_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "FORMAT.new").write_text("lmq-store 1, and more of what was to be written\n")
    Driven(str(tmp_path)).store.close()
    assert (tmp_path / "FORMAT").read_text() == "lmq-store 1\n"
    assert not (tmp_path / "FORMAT.new").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_folder, "LOCK_WAIT_S", 0.1)
    driven = Driven(str(tmp_path))
    code = (
        "import sys; from lmq_store.embedded import store_folder; store_folder.LOCK_WAIT_S = 0.1\n"
        "from lmq_store.embedded.store import EmbeddedStore\n"
        "from lmq_store.api.errors import StoreLocked\n"
        "try: EmbeddedStore.open(sys.argv[1])\n"
        "except StoreLocked as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert "in use" in said
    with pytest.raises(StoreLocked):
        EmbeddedStore.open(str(tmp_path))
    driven.store.close()
    Driven(str(tmp_path)).store.close()


def test_epochs_tell_positions_that_were_cut(tmp_path: Path) -> None:
    """A position given out for bytes that a power loss took away is moved back; others mean what they meant."""
    files = FaultyFiles(str(tmp_path / "a"), 3)
    driven = Driven(str(tmp_path / "a"), files=files, flush="async", flush_interval_ms=10_000)
    route = driven.route(b"t", 1)
    driven.publish(route, [b"kept"])
    kept_position = driven.store.scan(0, 1 << 20)[0][0].position
    kept = driven.store.format_position(kept_position)
    end = driven.store.end()
    files.power_cut(str(tmp_path / "b"), tear=False)
    driven.publish(route, [b"lost"])
    lost_position = driven.store.scan(end, 1 << 20)[0][0].position
    lost = driven.store.format_position(lost_position)
    driven.store.abandon()
    after = Driven(str(tmp_path / "b"))
    after.publish(after.route(b"t", 1), [b"other" + bytes(500)])
    assert after.store.parse_position(kept) == kept_position
    assert after.store.positions.moved == 0
    assert after.store.parse_position(lost) <= end < lost_position
    assert after.store.positions.moved == 1
    assert payloads(after) == [b"kept", b"other" + bytes(500)]
    for text in ("", "x", "0-1", "0-99-1", "1-1-1", "0-1--5", "0-1-1-1", "0-1-99999999999999999999999"):
        with pytest.raises(ValueError, match="not a position"):
            after.store.parse_position(text)
    after.store.close()


def test_a_failed_sync_poisons(tmp_path: Path) -> None:
    files = FaultyFiles(str(tmp_path), 1)
    driven = Driven(str(tmp_path), files=files)
    route = driven.route(b"t", 1)
    driven.publish(route, [b"good"])
    files.fail_sync = True
    answers: list[object] = []
    driven.store.append([message_on(route)], driven.now_ms, answers.append)
    driven.store.flush()
    driven.store.on_sync_ready()
    assert isinstance(answers[0], StorePoisoned)
    with pytest.raises(StorePoisoned):
        driven.store.append([message_on(route)], driven.now_ms, answers.append)
    driven.store.meta.put(Table.SESSION, b"k", b"v")
    driven.store.meta.commit(answers.append)
    assert isinstance(answers[1], StorePoisoned)
    driven.store.close()


def test_a_full_disk_waits_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    files = FaultyFiles(str(tmp_path), 1)
    driven = Driven(str(tmp_path), files=files, segment_bytes=10_000)
    route = driven.route(b"t", 1)
    driven.publish(route, [b"first"])
    files.space_left = 100
    answers: list[object] = []
    driven.store.append([message_on(route, bytes(9_000)) for _ in range(3)], driven.now_ms, answers.append)
    driven.store.flush()
    driven.store.on_sync_ready()
    assert answers == []
    was_full = driven.store.disk_full
    assert was_full
    assert driven.store.poisoned is None
    with pytest.raises(DiskFull):
        driven.store.append([message_on(route)], driven.now_ms, answers.append)
    driven.store.meta.put(Table.SESSION, b"k", b"v")
    driven.store.meta.commit(answers.append)
    driven.store.tick(driven.now_ms)
    assert answers == []
    files.space_left = None
    for _ in range(3):
        driven.ticks(1)
    assert answers == [None, None]
    assert not driven.store.disk_full
    driven.publish(route, [b"last"])
    assert len(payloads(driven)) == 5
    driven.reopen(segment_bytes=10_000)
    assert len(payloads(driven)) == 5
    driven.store.close()


def message_on(route: Route, payload: bytes = b"x") -> Message:
    message = Message(b"t", payload, 1)
    message.route = route
    return message
