"""Fuzzing at length: the decoder and whole sessions, each with so many inputs, in as many processes as there are cores.

    python -m tests.fuzz [--inputs 10000000] [--seed 1] [--jobs 2] [--only decoder|session]

Exit code 1, and the seed to repeat it with, when anything went wrong or memory has grown.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from tests.fuzz.session_fuzz import fuzz_sessions
from tests.mqtt_proxy.packets.fuzz import fuzz as fuzz_decoder
from tests.mqtt_proxy.packets.fuzz import resident_bytes

STEP = {"decoder": 250_000, "session": 100_000}
"""Inputs of one seed."""
GROWTH_MAX = 32_000_000
WARM_STEPS = 2
"""After so many steps the caches of topics and of the interpreter have their size."""


def kept_bytes() -> int:
    """Resident memory without what the allocator merely hasn't given back: each store opened and closed leaves it holes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident_bytes()


def session_step(inputs: int, seed: int) -> None:
    fuzz_sessions(inputs, seed)


def decoder_step(inputs: int, seed: int) -> None:
    fuzz_decoder(inputs, seed)


STEPS: dict[str, Callable[[int, int], None]] = {"decoder": decoder_step, "session": session_step}


def work(target: str, inputs: int, seed: int) -> str:
    """One process's share; empty, or what went wrong."""
    done = settled = 0
    began = time.monotonic()
    parent = os.getppid()
    while done < inputs and os.getppid() == parent:  # a worker whose parent was killed does not go on alone
        count = min(STEP[target], inputs - done)
        try:
            STEPS[target](count, seed + done)
        except BaseException as error:
            return f"{target}: seed {seed + done}, {count} inputs: {type(error).__name__}: {error}"
        done += count
        if done <= WARM_STEPS * STEP[target]:
            settled = kept_bytes()
        print(f"{target}: {done} inputs, {time.monotonic() - began:.0f} s, {kept_bytes() / 1e6:.0f} MB", flush=True)
    grown = kept_bytes() - settled
    return f"{target}: seed {seed}: memory grew by {grown / 1e6:.0f} MB" if grown > GROWTH_MAX else ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=list(STEPS))
    options = parser.parse_args(arguments)
    targets = [options.only] if options.only else list(STEPS)
    share = -(-options.inputs // options.jobs)
    shares = [(target, share, options.seed + job * share) for target in targets for job in range(options.jobs)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:  # a process that dies breaks the pool, which is told
        faults = [fault for fault in pool.map(work, *zip(*shares, strict=True)) if fault]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{' and '.join(targets)}: {share * options.jobs} inputs each, {len(faults)} faults")
    return 1 if faults else 0
