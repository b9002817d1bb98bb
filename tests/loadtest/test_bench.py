"""The table of the benchmarks in a document."""

from __future__ import annotations

from pathlib import Path

from loadtest.bench import write_between_marks


def test_only_the_table_between_the_marks_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    write_between_marks(path, "one")
    path.write_text(path.read_text() + "what a person wrote\n")
    write_between_marks(path, "two")
    text = path.read_text()
    assert "two" in text and "one" not in text
    assert text.startswith("# Benchmarks\n") and text.endswith("what a person wrote\n")
