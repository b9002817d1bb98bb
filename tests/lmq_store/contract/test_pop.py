"""POP as every engine keeps it: lent to one at a time, back after the invisible time, done when acknowledged."""

from __future__ import annotations

from lmq_store.api.model import LightQueue
from tests.lmq_store.contract.engines import Engine, Topics, message

GROUP = b"workers"
T0 = 1_700_000_000_000


def filled(engine: Engine, topics: Topics, count: int) -> LightQueue:
    queue = topics.queue(b"jobs")
    route = topics.route(b"jobs", queue)
    engine.store.append([message(route, b"%d" % number) for number in range(count)], T0, lambda _: None)
    engine.settle()
    return queue


def pop(engine: Engine, queue: LightQueue, count: int, at_ms: int, group: bytes = GROUP) -> dict[bytes, int]:
    return {one.message.payload: one.handle for one in engine.store.pop(queue, group, count, 1_000, T0 + at_ms)}


def test_each_message_is_lent_to_one(engine: Engine, topics: Topics) -> None:
    queue = filled(engine, topics, 6)
    assert list(pop(engine, queue, 4, 0)) == [b"0", b"1", b"2", b"3"]
    assert list(pop(engine, queue, 4, 0)) == [b"4", b"5"]
    assert pop(engine, queue, 4, 0) == {}
    assert list(pop(engine, queue, 1, 0, b"other group")) == [b"0"]


def test_acknowledged_is_done_and_the_rest_comes_back(engine: Engine, topics: Topics) -> None:
    queue = filled(engine, topics, 3)
    lent = pop(engine, queue, 3, 0)
    engine.store.ack(queue, GROUP, [lent[b"1"]])
    assert pop(engine, queue, 3, 999) == {}
    assert list(pop(engine, queue, 3, 1_000)) == [b"0", b"2"]


def test_deliveries_are_counted(engine: Engine, topics: Topics) -> None:
    queue = filled(engine, topics, 1)
    counts = [engine.store.pop(queue, GROUP, 1, 10, T0 + 10 * turn)[0].deliveries for turn in range(3)]
    assert counts == [1, 2, 3]


def test_change_invisible_lengthens_and_gives_back(engine: Engine, topics: Topics) -> None:
    queue = filled(engine, topics, 2)
    lent = pop(engine, queue, 2, 0)
    engine.store.change_invisible(queue, GROUP, [lent[b"0"]], 5_000, T0 + 500)
    engine.store.change_invisible(queue, GROUP, [lent[b"1"]], 0, T0 + 500)
    assert list(pop(engine, queue, 2, 501)) == [b"1"]
    assert list(pop(engine, queue, 2, 2_000)) == [b"1"]
    assert list(pop(engine, queue, 2, 5_500)) == [b"0", b"1"]


def test_progress_is_kept_over_opening_again(engine: Engine, topics: Topics) -> None:
    queue = filled(engine, topics, 5)
    lent = pop(engine, queue, 3, 0)
    engine.store.ack(queue, GROUP, [lent[b"0"], lent[b"2"]])
    engine.reopen()
    queue = engine.store.open_queue(queue.id, queue.name)
    assert list(pop(engine, queue, 5, 5_000)) == [b"1", b"3", b"4"]
