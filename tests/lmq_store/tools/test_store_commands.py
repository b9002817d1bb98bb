"""`lmq store check|dump|stat`: what they say of sound, killed, running and damaged folders, and that they change nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from lmq_store.api.ports import Table
from lmq_store.api.rows import SessionRow, SubscriptionRow, filter_row, offset_key, subscription_key, u64_row
from lmq_store.cli import main
from lmq_store.embedded.check import check
from lmq_store.embedded.files import OsFiles
from lmq_store.embedded.light_queues import run_key
from lmq_store.embedded.log_walk import LogWalk
from lmq_store.embedded.rocks import Database, new_batch
from tests.lmq_store.embedded_guarantees.drive import T0, Driven, copy_while_running
from tests.lmq_store.faulty_files import flip_bit

Captured = pytest.CaptureFixture[str]


def fill(folder: Path) -> Driven:
    """A store with two filters, a session that is behind on one of them, a group, and several segments."""
    driven = Driven(str(folder))
    meta = driven.store.meta
    meta.put(Table.COUNTER, b"queue", u64_row(100))
    meta.put(Table.PARENT, b"t", u64_row(0 << 16 | 1))
    for queue_id, name in ((1, b"t/#"), (2, b"t/+")):
        meta.put(Table.FILTER, name, filter_row(queue_id, 0))
    meta.put(Table.SESSION, b"device", SessionRow(7, 1, 5, 3600, True, T0, T0).encode())
    meta.put(Table.SUBSCRIPTION, subscription_key(7, b"t/#"), SubscriptionRow(1, 1).encode())
    meta.put(Table.OFFSET, offset_key(7, 1), u64_row(150))
    meta.commit(None)
    for batch in range(10):
        route = driven.route(b"t/%d" % batch, 1, 2)
        driven.publish(route, [b"payload %d.%d" % (batch, number) + b" " * 500 for number in range(20)])
        driven.now_ms += 1_000
    group = driven.queue(2)
    lent = driven.store.pop(group, b"workers", 5, 1_000, driven.now_ms)
    driven.store.ack(group, b"workers", [lent[0].handle, lent[2].handle])
    driven.store.groups.save(group, b"workers")
    driven.ticks(12)
    return driven


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    driven = fill(tmp_path / "store")
    driven.store.close()
    return tmp_path / "store"


def run(capsys: Captured, *argv: object) -> tuple[int, list[str], str]:
    code = main([str(word) for word in argv])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


def test_a_sound_store(folder: Path, capsys: Captured) -> None:
    before = sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    code, lines, _ = run(capsys, "check", folder)
    assert code == 0, lines
    assert "200 messages, 3 queues, 600 index entries compared" in lines[-1]
    assert lines[-1].endswith("sound")
    run(capsys, "stat", folder)
    run(capsys, "dump", folder)
    assert before == sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_beside_a_running_server_and_after_a_kill(tmp_path: Path, capsys: Captured) -> None:
    driven = fill(tmp_path / "store")
    for number in range(20):
        driven.publish(driven.route(b"t/x", 1, 2), [b"late %d" % number])
        driven.ticks(1)
        code, lines, _ = run(capsys, "check", tmp_path / "store")
        assert code == 0, lines
        assert lines[0].startswith("note: a server is running")
    copy_while_running(tmp_path / "store", tmp_path / "killed")
    code, lines, _ = run(capsys, "check", tmp_path / "killed")
    assert (code, [line for line in lines if "running" in line]) == (0, []), lines
    code, lines, _ = run(capsys, "dump", tmp_path / "store", "--queue", "t/#", "--from", "215")
    assert [line.split()[-1] for line in lines] == ["15", "16", "17", "18", "19"]
    driven.store.close()


def test_flipped_bits_in_the_log_are_named(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    walk = LogWalk(OsFiles(), str(folder / "log"))
    frames = [(frame.position, frame.length) for frame in walk.frames()]
    end = frames[-2][0]
    first = walk.segments[0]
    for seed in range(25):
        copy = tmp_path / f"copy{seed}"
        shutil.copytree(folder, copy)
        at = flip_bit(str(copy / "log" / os.path.basename(first.path)), Random(seed), 0, min(first.size, end))
        hit = max(position for position, _ in frames if position <= at)
        code, lines, _ = run(capsys, "check", copy)
        assert code == 1
        assert any(line.startswith("fault: log:") and f"corrupt bytes at position {hit}:" in line for line in lines), lines


def damage(folder: Path, name: str, key: bytes, value: bytes | None) -> None:
    database = Database(str(folder / name))
    batch = new_batch()
    if value is None:
        batch.delete(key)
    else:
        batch.put(key, value)
    database.write(batch)
    database.flush()
    database.close()


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        ("index", run_key(1, 0), None, "index: queue 1 offset 0 is missing"),
        ("index", run_key(1, 3), bytes(24), "index: queue 1: the runs from 0 and 3 contradict"),
        ("index", run_key(2, 1_000), b"\xff" * 24, "index: queue 2 ends with offset 1000"),
        ("index", run_key(2, 5) + b"x", bytes(24), "is no run"),
        ("meta", bytes((Table.SESSION,)) + b"device", b"\x01", "meta: SESSION row"),
        ("meta", bytes((Table.SESSION,)) + b"device", b"\x09" * 60, "meta: SESSION row"),
        ("meta", bytes((Table.JOURNAL,)) + bytes(16), b"\xee\x01\x02", "meta: JOURNAL row"),
        ("meta", bytes((Table.RETAINED,)) + b"t", bytes(100), "meta: RETAINED row"),
        ("meta", bytes((Table.FILTER,)) + b"twice", filter_row(1, 0), "queue 1 has two filters"),
        ("meta", bytes((Table.FILTER,)) + b"zz", filter_row(100, 0), "beyond the counter 100"),
        ("meta", bytes((Table.GROUP,)) + b"\0" + bytes(8) + b"g", b"\x01", "meta: GROUP row"),
        ("meta", b"\0C", (1 << 60).to_bytes(8, "little"), "lies beyond the log's end"),
        ("meta", b"\0H12", b"", "the store's own row"),
    ],
)
def test_damaged_rows_and_entries_are_named(folder: Path, capsys: Captured, name: str, key: bytes, value: bytes | None, said: str) -> None:
    damage(folder, name, key, value)
    code, lines, _ = run(capsys, "check", folder)
    assert code == 1, lines
    assert any(said in line for line in lines if line.startswith("fault: ")), lines


def test_a_missing_or_broken_database_is_no_fault_of_the_log(folder: Path, capsys: Captured) -> None:
    shutil.rmtree(folder / "index")
    code, lines, _ = run(capsys, "check", folder)
    assert code == 0
    assert any("index: there is no database: the next start rebuilds it" in line for line in lines)
    (folder / "meta" / "CURRENT").write_text("nonsense\n")
    code, lines, _ = run(capsys, "check", folder)
    assert any("meta: cannot be opened" in line for line in lines)
    assert not (folder / "index").exists()
    assert len(run(capsys, "dump", folder, "--queue", "id:1")[1]) == 200


def test_dump_of_the_log(folder: Path, capsys: Captured) -> None:
    _, lines, _ = run(capsys, "dump", folder)
    assert sum("payload" in line for line in lines) == 200
    assert any("put SUBSCRIPTION" in line for line in lines)
    assert any(line.endswith("epoch 1") for line in lines)
    position = int(lines[-5].split()[0])
    assert run(capsys, "dump", folder, "--from", position)[1] == lines[-5:]
    assert run(capsys, "dump", folder, "--from", f"0-1-{position}")[1] == lines[-5:]
    _, late, _ = run(capsys, "dump", folder, "--from", "2023-11-14T22:13:29Z", "--format", "jsonl")
    shown = [json.loads(line) for line in late]
    assert {one["topic"] for one in shown if "topic" in one} == {"t/9"}
    assert shown[0]["stored_at"] == "2023-11-14T22:13:29.000Z"


def test_dump_of_a_queue(folder: Path, capsys: Captured) -> None:
    _, lines, _ = run(capsys, "dump", folder, "--queue", "t/+", "--from", "190", "--format", "jsonl")
    assert [json.loads(line)["queue_offset"] for line in lines] == list(range(190, 200))
    assert json.loads(lines[0])["payload"].startswith("payload 9.10")
    assert len(run(capsys, "dump", folder, "--queue", "parent:t")[1]) == 200
    assert len(run(capsys, "dump", folder, "--queue", "t/#", "--from", "2023-11-14T22:13:29+00:00")[1]) == 20


def test_dump_shows_any_bytes(tmp_path: Path, capsys: Captured) -> None:
    driven = Driven(str(tmp_path / "store"))
    driven.publish(driven.route(b"t\xc3\xa9\n", 1), [bytes(range(256)), b"\xff" * 1_000])
    driven.store.close()
    _, lines, _ = run(capsys, "dump", tmp_path / "store")
    assert any("té\\n" in line for line in lines)
    assert any(line.endswith("… (1000 bytes)") for line in lines)
    _, lines, _ = run(capsys, "dump", tmp_path / "store", "--queue", "id:1", "--format", "jsonl")
    assert json.loads(lines[0])["payload_base64"].startswith("AAECAw")


def test_stat(folder: Path, capsys: Captured) -> None:
    code, lines, _ = run(capsys, "stat", folder)
    assert code == 0
    text = "\n".join(lines)
    assert "200 messages, offsets 0 to 200  t/#" in text
    assert "parent:t:0" in text
    assert "50 behind  device  t/#" in text
    assert "198 behind  group workers (3 unacknowledged)  t/+" in text
    _, lines, _ = run(capsys, "stat", folder, "--format", "json")
    found = json.loads("\n".join(lines))
    assert found["queues"][0]["max_offset"] == 200
    assert found["segments"][0]["base"] == 0
    assert found["rows"]["FILTER"] == 2


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["check"],
        ["check", "/nowhere/at/all"],
        ["check", "{tmp}"],
        ["stat", "{tmp}"],
        ["dump", "{tmp}"],
        ["dump", "{store}", "--queue", "not/registered"],
        ["dump", "{store}", "--from", "yesterday"],
        ["dump", "{store}", "--format", "xml"],
        ["repair", "{store}"],
    ],
)
def test_wrong_use_is_one_line_and_exit_2(folder: Path, tmp_path: Path, capsys: Captured, argv: list[str]) -> None:
    code, lines, said = run(capsys, *(word.format(tmp=tmp_path, store=folder) for word in argv))
    assert (code, lines) == (2, [])
    assert len(said.splitlines()) == 1
    assert said.startswith("lmq store")


def test_a_newer_format_is_refused(folder: Path, capsys: Captured) -> None:
    (folder / "FORMAT").write_text("lmq-store 9\n")
    code, _, said = run(capsys, "check", folder)
    assert code == 2
    assert "newer format (9)" in said


def test_check_while_a_server_writes_and_retention_works(tmp_path: Path) -> None:
    """A writer in another process, small segments, retention by size: no check says that anything is wrong."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "store")], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        faults: list[str] = []
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            faults += check(str(tmp_path / "store")).faults
        assert writer.poll() is None
        assert not faults
    finally:
        writer.kill()
        writer.wait()
    assert check(str(tmp_path / "store")).sound


WRITER = """
import sys
from tests.lmq_store.embedded_guarantees.drive import Driven
driven = Driven(sys.argv[1], segment_bytes=1 << 18, retention_ms=0, retention_bytes=1 << 20)
print("ready", flush=True)
for number in range(1_000_000):
    driven.publish(driven.route(b"t", 1, number // 20 + 2), [b"x" * 300] * 40)
    driven.ticks(1, 2_500)
    if number % 20 == 19:
        driven.store.drop_queue(driven.queue(number // 20 + 2))
"""
