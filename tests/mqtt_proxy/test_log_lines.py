"""The log: one line for each event, whatever clients are called, and no flood."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from mqtt_proxy import log_lines


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for package in log_lines.PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)


def test_a_text_line_shows_figures_and_no_control_characters(stream: io.StringIO) -> None:
    log_lines.start("info", "text", stream)
    logging.getLogger("mqtt_proxy.flows.connect").warning("refused %s", "a\nb\x1b[2J", extra={"limit": "max_sessions"})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.endswith(r"warning flows.connect: refused a\x0ab\x1b[2J limit=max_sessions" + "\n")


def test_a_json_line_is_one_object_with_the_traceback_inside(stream: io.StringIO) -> None:
    log_lines.start("info", "json", stream)
    try:
        raise OSError(28, "No space left")
    except OSError:
        logging.getLogger("lmq_store.embedded").exception("sync failed", extra={"segment": 7})
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["message"], entry["segment"]) == ("error", "sync failed", 7)
    assert "No space left" in entry["traceback"]


def test_levels_are_ours_and_change_at_once(stream: io.StringIO) -> None:
    log_lines.start("warning", "text", stream)
    logging.getLogger("mqtt_proxy").info("unseen")
    log_lines.set_level("debug")
    logging.getLogger("mqtt_proxy").debug("seen")
    logging.getLogger("asyncio").info("foreign")
    assert [line.split(": ")[1] for line in stream.getvalue().splitlines()] == ["seen"]


def test_a_storm_of_one_template_is_counted_not_printed() -> None:
    storm = log_lines.StormFilter()

    def passes(at: float, level: int = logging.WARNING) -> logging.LogRecord | None:
        record = logging.makeLogRecord({"name": "x", "msg": "refused %s", "levelno": level, "created": at})
        return record if storm.filter(record) else None

    assert sum(passes(1000.0 + i / 1000) is not None for i in range(1000)) == log_lines.STORM_LINES
    assert passes(1001.0, logging.ERROR) is not None
    after = passes(1000.0 + log_lines.STORM_S + 1)
    assert after is not None
    assert "980 more" in after.msg
