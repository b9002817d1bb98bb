"""`lmq store check|dump|stat DIR`: looks into a store's folder without changing it.

Exit 0: sound, or shown; 1: faults found; 2: wrong use, or no store (one line on standard error).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import NoReturn

from lmq_store.api.errors import StoreError

WRONG_USE = 2
DESCRIPTION = """\
Look into a store's folder (the DIR of lmq serve --data DIR). Nothing is written.

Beside a running server all three work: the log is read up to its last intact frame. The newest index entries and
offsets of sessions are in that server's memory, so lags can be some seconds old."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(WRONG_USE)


def main(argv: list[str]) -> int:
    """Check, dump or measure a store's folder."""
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stopped:
        return int(stopped.code or 0)
    try:
        return int(options.run(options))
    except StoreError as error:
        print(f"lmq store: {error}", file=sys.stderr)
        return WRONG_USE
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="lmq store", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="check|dump|stat")
    check = commands.add_parser("check", help="name every fault; exit 1 if there is one")
    check.add_argument("directory", metavar="DIR")
    check.add_argument("--quiet", action="store_true", help="print faults only")
    check.set_defaults(run=_check)
    dump = commands.add_parser("dump", help="print the records of the log, or the messages of one queue")
    dump.add_argument("directory", metavar="DIR")
    dump.add_argument("--queue", metavar="NAME", help="a topic filter, parent:LEVEL[:PARTITION] or id:NUMBER")
    dump.add_argument(
        "--from", dest="start", metavar="OFFSET|TIME", default="0",
        help="a queue offset (without --queue: a log position), an lmq-offset, or an RFC 3339 time",
    )
    dump.add_argument("--format", choices=("text", "jsonl"), default="text")
    dump.set_defaults(run=_dump)
    stat = commands.add_parser("stat", help="print segments, queues and the lag of subscriptions")
    stat.add_argument("directory", metavar="DIR")
    stat.add_argument("--top", type=int, default=20, metavar="N", help="longest queues and lags that are listed (20)")
    stat.add_argument("--format", choices=("text", "json"), default="text")
    stat.set_defaults(run=_stat)
    return parser


def _check(options: argparse.Namespace) -> int:
    from lmq_store.embedded.check import check

    found = check(options.directory)
    if not options.quiet:
        for note in found.notes:
            print(f"note: {note}")
    for fault in found.faults:
        print(f"fault: {fault}")
    if found.more_faults:
        print(f"fault: and {found.more_faults} more")
    if not options.quiet:
        print(
            f"{found.segments} segments, {found.frames} frames, {found.records} records, {found.messages} messages, "
            f"{found.queues} queues, {found.entries} index entries compared, {found.rows} rows: "
            + ("sound" if found.sound else f"{len(found.faults) + found.more_faults} faults")
        )
    return 0 if found.sound else 1


def _dump(options: argparse.Namespace) -> int:
    from lmq_store.embedded import dump
    from lmq_store.embedded.read_only import ReadOnlyStore

    try:
        start = dump.parse_start(options.start)
    except ValueError:
        print(f"lmq store dump: --from {options.start}: neither an offset, nor an lmq-offset, nor an RFC 3339 time", file=sys.stderr)
        return WRONG_USE
    store = ReadOnlyStore(options.directory)
    try:
        show = dump.as_json if options.format == "jsonl" else dump.as_text
        if options.queue is None:
            lines = dump.log_lines(store, start)
        else:
            lines = dump.queue_lines(store, dump.find_queue(store, options.queue), start)
        for line in lines:
            print(show(line))
        for gap in store.log.gaps:
            if not gap.torn:
                print(f"lmq store dump: {gap}", file=sys.stderr)
    finally:
        store.close()
    return 0


def _stat(options: argparse.Namespace) -> int:
    from lmq_store.embedded.stat import as_text, stat

    found = stat(options.directory)
    if options.format == "json":
        print(json.dumps(found.as_dict(), indent=1))
    else:
        print("\n".join(as_text(found, options.top)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
