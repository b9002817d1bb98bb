"""`python -m tests.scale [NAME…] [--small]`: run the measurements one after the other at full size and print their figures."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.scale import idle_connections, million_queues, offline_backlog, retained_flood, silent_reader, start_up

GIB = 1 << 30

FULL: dict[str, Callable[[Path], object]] = {
    "start": lambda at: start_up.measure(at, GIB),
    "queues": lambda at: million_queues.measure(at, 1000, 1000, persistent=True),
    "queues-clean": lambda at: million_queues.measure(at, 1000, 1000, persistent=False),
    "retained": lambda at: retained_flood.measure(at, 100_000, rounds=10),
    "silent": lambda at: silent_reader.measure(at, 1_000_000_000),
    "offline": lambda at: offline_backlog.measure(at, 10_000_000),
    "idle": lambda at: idle_connections.measure(at, 50_000),
}
SMALL: dict[str, Callable[[Path], object]] = {
    "start": lambda at: start_up.measure(at, GIB >> 4),
    "queues": lambda at: million_queues.measure(at, 20, 500, persistent=True, seconds=1),
    "queues-clean": lambda at: million_queues.measure(at, 20, 500, persistent=False, seconds=1),
    "retained": lambda at: retained_flood.measure(at, 20_000),
    "silent": lambda at: silent_reader.measure(at, 100_000_000),
    "offline": lambda at: offline_backlog.measure(at, 200_000),
    "idle": lambda at: idle_connections.measure(at, 2_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FULL))
    parser.add_argument("--small", action="store_true", help="the sizes of the test suite")
    parser.add_argument("--directory", help="where the data goes (default: a temporary folder); it is removed afterwards")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(FULL)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(FULL)}")
    for name in asked.names or FULL:
        with tempfile.TemporaryDirectory(prefix="lmq-scale-", dir=asked.directory) as directory:
            began = time.monotonic()
            print(f"{name}: {(SMALL if asked.small else FULL)[name](Path(directory))}  ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
