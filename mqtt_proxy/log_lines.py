"""What goes to stderr: one line of text, or one JSON object, for each event; a storm of equal events is counted, not printed.

Code logs with `logging.getLogger(__name__)` and lazy arguments; figures that a machine should find go into
`extra={"client_id": …}` and show as `key=value` or as JSON members.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, TextIO

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
PACKAGES: Final = ("lmq", "mqtt_proxy", "lmq_store", "notify")
STORM_LINES: Final = 20
"""So many lines of one template are printed in STORM_S; the rest is counted."""
STORM_S: Final = 10.0

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def start(level: str, form: str, stream: TextIO | None = None) -> None:
    """Log our packages at `level` to stderr, everything else from warnings on. Calling it again replaces the form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(StormFilter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    set_level(level)


def set_level(level: str) -> None:
    """The level of our packages: debug, info, warning or error. Takes effect at once (SIGHUP)."""
    for package in PACKAGES:
        logging.getLogger(package).setLevel(LEVELS[level])


def _extras(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(record).items() if name not in _STANDARD)


def _timestamp(record: logging.LogRecord) -> str:
    """UTC with milliseconds, RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _printable(text: str) -> str:
    """Clients choose their names: no control character of theirs reaches a terminal or fakes a line."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.123Z warning embedded.recovery: torn tail cut bytes=17`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows on lines of its own."""
        where = record.name.partition(".")[2] or record.name
        line = f"{_timestamp(record)} {record.levelname.lower():<7} {where}: {_printable(record.getMessage())}"
        line += "".join(f" {name}={_printable(str(value))}" for name, value in _extras(record))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the event's own figures, and `traceback` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        members = {"time": _timestamp(record), "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        members.update(_extras(record))
        if record.exc_info:
            members["traceback"] = self.formatException(record.exc_info)
        return json.dumps(members, default=str, ensure_ascii=False)


class StormFilter(logging.Filter):
    """Lets STORM_LINES lines of one template through in STORM_S, then says with the next one how many were left out.

    Hostile clients may cause the same line without end; the log stays readable and the disk stays free. Errors always pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self._since = 0.0
        self._seen: dict[tuple[str, str], int] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True when the line is printed."""
        if record.levelno >= logging.ERROR:
            return True
        if not self._since <= record.created < self._since + STORM_S:
            self._since = record.created
            self._left_out = {key: count - STORM_LINES for key, count in self._seen.items() if count > STORM_LINES}
            self._seen.clear()
        key = (record.name, str(record.msg))
        count = self._seen[key] = self._seen.get(key, 0) + 1
        left_out = self._left_out.pop(key, 0)
        if left_out:
            record.msg = f"{record.msg} [{left_out} more such lines were left out before]"
        return count <= STORM_LINES
