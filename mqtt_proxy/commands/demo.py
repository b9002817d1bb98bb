"""`lmq demo`: a day of real sensor readings as a fleet of devices, a SIGKILL halfway, and the account of every message."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ALL = 50_270
RATE = 5_000


def main(argv: list[str]) -> int:
    """A fleet of sensors, a crash in the middle, and the account of every message."""
    parser = argparse.ArgumentParser(prog="lmq demo", description=main.__doc__)
    parser.add_argument("--readings", type=_count, default=ALL, metavar="N", help=f"publish the first N of the {ALL:,} readings")
    parser.add_argument("--rate", type=int, default=RATE, metavar="N", help=f"readings a second; 0: as fast as it goes ({RATE:,})")
    parser.add_argument("--keep", action="store_true", help="leave the server's data and log, and say where they are")
    options = parser.parse_args(argv)
    from mqtt_proxy.demo import readings
    from mqtt_proxy.demo.run import Demo
    from mqtt_proxy.demo.server_process import ServerFailed

    with tempfile.TemporaryDirectory(prefix="lmq-demo-", ignore_cleanup_errors=True) as temporary:
        folder = Path(tempfile.mkdtemp(prefix="lmq-demo-")) if options.keep else Path(temporary)
        try:
            status = Demo(readings.load(options.readings), folder, options.rate).run()
        except ServerFailed as failure:
            print(f"lmq demo: {failure}", file=sys.stderr)
            status = 1
        if options.keep:
            print(f"data and log are in {folder}", file=sys.stderr)
    return status


def _count(text: str) -> int:
    if not text.isdigit() or not 10 <= int(text) <= ALL:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 10 to {ALL}")
    return int(text)
