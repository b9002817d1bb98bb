"""The measurements at small sizes: that they run and account for everything, with bounds that a busy machine keeps too.

The bounds of the full sizes are in the modules; `make scale` prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scale import idle_connections, million_queues, offline_backlog, retained_flood, silent_reader, start_up

MIB = 1 << 20
BUSY_MS = 250.0
"""What a machine that runs other things as well may add to a percentile."""


def test_ready_after_empty_folder_and_after_sigkill(tmp_path: Path) -> None:
    found = start_up.measure(tmp_path, 48 * MIB)
    print(found)
    assert found.empty_s < 3
    assert found.killed_s < 5


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "clean"])
def test_many_queues(tmp_path: Path, persistent: bool) -> None:
    found = million_queues.measure(tmp_path, clients=20, filters=500, persistent=persistent, seconds=0.5)
    print(found)
    assert found.peak < 300 * MIB
    assert found.killed_s < 8
    assert found.stopped_s < 8
    assert min(found.rates.values()) > 5_000


def test_all_retained_messages_reach_a_new_subscriber(tmp_path: Path) -> None:
    found = retained_flood.measure(tmp_path, 20_000)
    print(found)
    assert found.beside.p99 < BUSY_MS


def test_a_subscriber_that_reads_nothing(tmp_path: Path) -> None:
    found = silent_reader.measure(tmp_path, 60_000_000)
    print(found)
    assert found.cost < 20 * MIB
    assert found.beside.p99 < BUSY_MS


def test_an_offline_backlog_is_drained_in_order(tmp_path: Path) -> None:
    found = offline_backlog.measure(tmp_path, 200_000)
    print(found)
    assert found.first_s < 1
    assert found.probe.p99 < BUSY_MS


def test_idle_connections(tmp_path: Path) -> None:
    found = idle_connections.measure(tmp_path, 1_000)
    print(found)
    assert found.bytes_each < 6_000
