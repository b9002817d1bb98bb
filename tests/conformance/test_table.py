"""docs/conformance.md tells the truth: every statement has its row, and every row what it names."""

from __future__ import annotations

import pytest

from . import table

VERSIONS = pytest.mark.parametrize("version", list(table.VERSIONS))


@VERSIONS
def test_every_statement_has_its_row(version: str) -> None:
    assert list(table.rows()[version]) == table.statements(version)


@VERSIONS
def test_every_row_names_tests_that_cite_it_or_why_not(version: str) -> None:
    tests = table.cited()[version]
    for number, (meaning, shown) in table.rows()[version].items():
        assert meaning.strip(), number
        if shown.startswith(table.CLIENT_ONLY):
            assert len(shown) > len(table.CLIENT_ONLY) + 5, f"{number}: a word why"
            assert not tests.get(number), f"{number} is client only, and cited by {tests[number]}"
        else:
            assert table.tests_in(shown), f"{number} names no test"
            assert table.tests_in(shown) == tests.get(number), f"{number}: run `python -m tests.conformance.table --write`"


@VERSIONS
def test_tests_cite_no_unknown_statement(version: str) -> None:
    assert set(table.cited()[version]) <= set(table.statements(version))


def test_counts_are_those_of_the_specifications() -> None:
    assert [len(table.statements(version)) for version in table.VERSIONS] == [139, 251]
