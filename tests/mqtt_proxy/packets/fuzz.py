"""Damages good packets by the million and decodes them: no other exception, no read past the end, no memory kept.

    python -m tests.mqtt_proxy.packets.fuzz [--inputs 10000000] [--seed 1]

Each input is decoded twice, with different bytes behind its end: a decoder that looks at them answers differently.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

from mqtt_proxy.packets.decoder import decode, frame_length
from mqtt_proxy.packets.reason_codes import ProtocolError, ReasonCode
from mqtt_proxy.packets.types import V5, V31, V311

from .table import CASES, FIRST, plain

BEHIND = (b"\x00" * 16, b"\xff" * 16)
MAX_PACKET = 4_096


def damaged(chance: random.Random, good: bytes) -> bytes:
    """Some bytes replaced, cut out, put in, doubled; lengths are favoured, being what parsers trust."""
    data = bytearray(good)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 | 1:
                data[at : at + 1] = bytes((chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256))),))
            case 2:
                del data[at : at + chance.randint(1, 4)]
            case 3:
                data[at:at] = chance.randbytes(chance.randint(1, 4))
            case 4:
                data[at:at] = data[: chance.randint(0, 8)]
            case _:
                data[1:2] = bytes((max(0, len(data) - 2 + chance.randint(-2, 2)) & 127,))
    return bytes(data)


def answer(data: bytes, behind: bytes, version: int, from_client: bool) -> tuple[Any, ...]:
    """Everything the decoder says about the bytes."""
    buffer = bytearray(data + behind)
    out: list[Any] = []
    try:
        end: Any = decode(buffer, 0, len(data), version, MAX_PACKET, out, from_client)
    except ProtocolError as error:
        end = error.reason
    try:
        length: Any = frame_length(buffer, 0, len(data))
    except ProtocolError as error:
        length = error.reason
    return end, length, [plain(item) for item in out]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def fuzz(inputs: int, seed: int) -> dict[int, int]:
    """How many inputs ended with which reason (0: no error). AssertionError names the first input that went wrong."""
    chance = random.Random(seed)
    ended: dict[int, int] = {}
    for _ in range(inputs):
        case = chance.choice(CASES)
        data = damaged(chance, case.data if chance.random() < 0.8 else case.data + chance.choice(CASES).data)
        version = case.version if chance.random() < 0.8 else chance.choice((FIRST, V31, V311, V5))
        first = answer(data, BEHIND[0], version, case.from_client)
        assert first == answer(data, BEHIND[1], version, case.from_client), (data.hex(), version, case.from_client)
        end = first[0]
        reason = int(end) if isinstance(end, ReasonCode) else 0
        ended[reason] = ended.get(reason, 0) + 1
    return ended


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    done = 0
    step = 250_000
    settled = 0
    while done < options.inputs:
        count = min(step, options.inputs - done)
        ended = fuzz(count, options.seed + done)
        done += count
        settled = settled or resident_bytes()  # the memory of topics and interpreter caches has its size by now
        reasons = " ".join(f"{reason:#x}:{number}" for reason, number in sorted(ended.items()))
        print(f"{done} inputs, {time.monotonic() - started:.0f} s, {resident_bytes() / 1e6:.1f} MB, {reasons}", flush=True)
    grown = resident_bytes() - settled
    print(f"{done} inputs, no crash; resident memory grew by {grown / 1e6:.1f} MB after the first {step}")
    return 0 if grown < 32_000_000 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
