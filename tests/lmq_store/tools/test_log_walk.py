"""Walking a log that is whole, torn, holed or flipped: every intact frame is found, every other byte accounted for."""

from __future__ import annotations

from pathlib import Path
from random import Random

from lmq_store.api.model import Message
from lmq_store.embedded.files import OsFiles
from lmq_store.embedded.log_format import FRAME_HEADER
from lmq_store.embedded.log_walk import LogWalk
from lmq_store.embedded.record import decode_message, encode_message, put_frame_header
from tests.lmq_store.faulty_files import flip_bit


def frame(position: int, payloads: list[bytes], synced_end: int) -> bytes:
    """A frame as the store writes it, messages without light queues."""
    buf = bytearray(FRAME_HEADER)
    for payload in payloads:
        message = Message(b"t", payload)
        message.position, message.stored_ms = position + len(buf), 1
        buf += encode_message(message, 0)
    put_frame_header(buf, 0, len(buf), synced_end, position, len(payloads))
    return bytes(buf)


def write_log(folder: Path, frames_per_segment: list[int], reserved: int = 10_000) -> list[int]:
    """Segments with so many frames of three messages each, space reserved behind them; returns the frames' positions."""
    positions = []
    base = 0
    for count in frames_per_segment:
        data = b""
        for _ in range(count):
            position = base + len(data)
            positions.append(position)
            data += frame(position, [b"%d-%d" % (position, place) for place in range(3)], position)
        (folder / f"{base:020d}.log").write_bytes(data + bytes(reserved))
        base += len(data)
    return positions


def walk(folder: Path, position: int = 0) -> tuple[list[int], LogWalk]:
    log = LogWalk(OsFiles(), str(folder))
    return [one.position for one in log.frames(position)], log


def test_whole_log(tmp_path: Path) -> None:
    positions = write_log(tmp_path, [5, 7, 3])
    found, log = walk(tmp_path)
    assert (found, log.gaps) == (positions, [])
    assert walk(tmp_path, positions[6])[0] == positions[6:]
    assert walk(tmp_path, positions[6] + 1)[0] == positions[6:]
    payloads = [
        decode_message(one.data, place).payload for one in log.frames() for place, _ in one.records()
    ]
    assert payloads == [b"%d-%d" % (position, place) for position in positions for place in range(3)]


def test_a_tail_torn_at_any_byte_is_no_corruption(tmp_path: Path) -> None:
    positions = write_log(tmp_path, [2, 3])
    path = tmp_path / f"{positions[2]:020d}.log"
    data = path.read_bytes()
    last = positions[-1] - positions[2]
    length = len(frame(positions[-1], [b"%d-%d" % (positions[-1], place) for place in range(3)], 0))
    for cut in range(last, last + length):
        path.write_bytes(data[:cut])
        found, log = walk(tmp_path)
        assert found == positions[:-1]
        assert all(gap.torn for gap in log.gaps)
        assert sum(gap.length for gap in log.gaps) in {cut - last, 0}
        path.write_bytes(data[:cut] + bytes(500))
        assert walk(tmp_path)[0] == positions[:-1] or not any(data[cut : last + length])


def test_flipped_bits_are_found_wherever_they_are(tmp_path: Path) -> None:
    random = Random(1)
    for round_no in range(60):
        folder = tmp_path / str(round_no)
        folder.mkdir()
        positions = write_log(folder, [4, 4])
        at = flip_bit(str(folder / f"{0:020d}.log"), random, 0, positions[3])
        hit = max(position for position in positions[:4] if position <= at)
        found, log = walk(folder)
        assert found == [position for position in positions if position != hit]
        assert [gap.position for gap in log.gaps] == [hit]
        assert not log.gaps[0].torn


def test_a_hole_of_zeros_between_segments(tmp_path: Path) -> None:
    positions = write_log(tmp_path, [3, 2])
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: positions[2]] + bytes(20_000))
    found, log = walk(tmp_path)
    assert found == positions[:2] + positions[3:]
    assert [(gap.position, gap.length, gap.torn) for gap in log.gaps] == [(positions[2], positions[3] - positions[2], False)]
    path.write_bytes(path.read_bytes()[: positions[2] + 5])
    found, log = walk(tmp_path)
    assert found == positions[:2] + positions[3:]
    assert sum(gap.length for gap in log.gaps) == positions[3] - positions[2]


def test_a_frame_that_is_longer_than_the_window(tmp_path: Path) -> None:
    big = frame(0, [bytes(700_000)] * 4, 0)
    (tmp_path / f"{0:020d}.log").write_bytes(big + frame(len(big), [b"x"], 0))
    found, log = walk(tmp_path)
    assert (found, log.gaps) == ([0, len(big)], [])


def test_a_hole_that_crosses_windows(tmp_path: Path) -> None:
    first, hole = frame(0, [b"x"], 0), b"\x01" * 2_500_001
    position = len(first) + len(hole)
    (tmp_path / f"{0:020d}.log").write_bytes(first + hole + frame(position, [b"y"], position))
    found, log = walk(tmp_path)
    assert found == [0, position]
    assert [(gap.position, gap.length, gap.torn) for gap in log.gaps] == [(len(first), len(hole), False)]


def test_no_log(tmp_path: Path) -> None:
    assert walk(tmp_path)[0] == []
