"""MessageStore, as every engine keeps it: what is appended is read back, in order, in every queue of its route."""

from __future__ import annotations

import pytest

from lmq_store.api.errors import StoreError
from lmq_store.api.model import LightQueue, Message, Pulled, Route
from lmq_store.api.ports import Table
from tests.lmq_store.contract.engines import Engine, Topics, message

T0 = 1_700_000_000_000


def append(engine: Engine, *messages: Message, now_ms: int = T0) -> None:
    errors: list[StoreError | None] = []
    engine.store.append(list(messages), now_ms, errors.append)
    engine.settle()
    assert errors == [None]


def pull(engine: Engine, queue: LightQueue, offset: int, count: int = 1_000, size: int = 1 << 30) -> Pulled:
    late: list[Pulled] = []
    pulled = engine.store.pull(queue, offset, count, size, late.append)
    if pulled is None:
        engine.settle()
        pulled = late[0]
    return pulled


def read_all(engine: Engine, queue: LightQueue) -> list[Message]:
    found: list[Message] = []
    at = engine.store.min_offset(queue)
    while at < engine.store.max_offset(queue):
        pulled = pull(engine, queue, at, 7)
        assert pulled.next_offset > at
        found += pulled.messages
        at = pulled.next_offset
    return found


def numbered(route: Route, count: int, first: int = 0) -> list[Message]:
    return [message(route, b"%d" % number) for number in range(first, first + count)]


def payloads(messages: list[Message]) -> list[bytes]:
    return [found.payload for found in messages]


def test_every_field_comes_back(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"a/+")
    sent = message(
        topics.route(b"a/b", queue),
        bytes(range(256)) * 3,
        2,
        retain=True,
        will=True,
        client_id=b"publisher \xc3\xa9",
        properties=b"\x01\x01\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01w",
        packet_id=65_535,
        session_id=(1 << 63) + 5,
        born_ms=T0 - 7,
    )
    append(engine, sent)
    for source in (pull(engine, queue, 0).messages, engine.store.scan(0, 1 << 20)[0]):
        (got,) = source
        for field in ("topic", "payload", "qos", "retain", "will", "client_id", "properties", "packet_id", "session_id", "born_ms"):
            assert getattr(got, field) == getattr(sent, field), field
        assert got.stored_ms == T0
        assert got.position == sent.position >= 0


@pytest.mark.parametrize("payload", [b"", b"\0", b"x" * 65_536, b"y" * 1_000_000], ids=len)
def test_payloads_of_any_size(engine: Engine, topics: Topics, payload: bytes) -> None:
    queue = topics.queue(b"#")
    append(engine, message(topics.route(b"t", queue), payload))
    assert payloads(read_all(engine, queue)) == [payload]


def test_a_message_is_in_each_queue_of_its_route_once(engine: Engine, topics: Topics) -> None:
    lights = [topics.queue(b"filter %d" % number) for number in range(20)]
    route = topics.route(b"a", *lights)
    other = topics.route(b"b", lights[3])
    append(engine, message(route, b"1"), message(other, b"2"), message(route, b"3", partition=1))
    for light in lights:
        expected = [b"1", b"2", b"3"] if light is lights[3] else [b"1", b"3"]
        assert payloads(read_all(engine, light)) == expected
    assert payloads(read_all(engine, route.parents[0])) == [b"1"]
    assert payloads(read_all(engine, route.parents[1])) == [b"3"]
    assert payloads(read_all(engine, other.parents[0])) == [b"2"]


def test_order_over_many_batches(engine: Engine, topics: Topics) -> None:
    wide, narrow = topics.queue(b"#"), topics.queue(b"b")
    a, b = topics.route(b"a", wide), topics.route(b"b", wide, narrow)
    sent = []
    for batch in range(30):
        some = [message(b if (batch + place) % 3 else a, b"%d.%d" % (batch, place)) for place in range(batch % 7 + 1)]
        append(engine, *some)
        sent += some
    assert payloads(read_all(engine, wide)) == payloads(sent)
    assert payloads(read_all(engine, narrow)) == payloads([one for one in sent if one.topic == b"b"])
    positions = [one.position for one in read_all(engine, wide)]
    assert positions == sorted(set(positions))


def test_offsets_go_up_and_end_at_max_offset(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"q")
    assert engine.store.max_offset(queue) == engine.store.min_offset(queue) == 0
    append(engine, *numbered(topics.route(b"q", queue), 25))
    pulled = pull(engine, queue, 0)
    assert pulled.offsets == sorted(set(pulled.offsets))
    assert len(pulled.offsets) == len(pulled.messages) == 25
    assert pulled.next_offset == engine.store.max_offset(queue) == pulled.offsets[-1] + 1


def test_pull_keeps_its_bounds(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"q")
    append(engine, *[message(topics.route(b"q", queue), b"z" * 10_000) for _ in range(20)])
    assert len(pull(engine, queue, 0, 5).messages) == 5
    assert 1 <= len(pull(engine, queue, 0, 20, 30_000).messages) <= 4
    assert len(pull(engine, queue, 3, 20, 1).messages) == 1, "one message at least, or a big one would never be read"
    at_end = pull(engine, queue, engine.store.max_offset(queue))
    assert (at_end.messages, at_end.next_offset) == ([], engine.store.max_offset(queue))


def test_answers_come_once_and_in_order(engine: Engine, topics: Topics) -> None:
    route = topics.route(b"q", topics.queue(b"q"))
    got: list[int] = []
    for number in range(10):
        done = lambda error, number=number: got.append(number if error is None else -1)  # noqa: E731
        if number % 3 == 2:
            engine.meta.commit(done)
        else:
            engine.store.append(numbered(route, 2), T0, done)
    engine.settle()
    assert got == list(range(10))
    assert engine.store.durable_end() == engine.store.end()


def test_after_done_the_message_is_below_the_durable_end(engine: Engine, topics: Topics) -> None:
    sent = message(topics.route(b"q"), b"x")
    assert engine.store.durable_end() <= engine.store.end()
    append(engine, sent)
    assert sent.position < engine.store.durable_end() <= engine.store.end()


def test_handing_over_is_what_a_pull_would_give(engine: Engine, topics: Topics) -> None:
    if not engine.store.bounds.hands_over:
        pytest.skip("this engine does not hand over")
    read, unread = topics.queue(b"read"), topics.queue(b"unread")
    route = topics.route(b"q", read, unread)
    append(engine, *numbered(route, 3))
    read.readers.append(object())
    runs = engine.store.append(numbered(route, 4, 3), T0, lambda _: None)
    assert [(run.queue, run.first_offset, payloads(run.messages)) for run in runs] == [(read, 3, [b"3", b"4", b"5", b"6"])]
    engine.settle()
    assert payloads(pull(engine, read, 3).messages) == payloads(runs[0].messages)
    runs = engine.store.append(numbered(route, 1, 7), T0, lambda _: None)
    assert [(run.first_offset, payloads(run.messages)) for run in runs] == [(7, [b"7"])]
    engine.settle()


def test_offsets_and_positions_by_time(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"q")
    route = topics.route(b"q", queue)
    for number in range(10):
        append(engine, *numbered(route, 2, number * 2), now_ms=T0 + number * 100)
    for time_ms, expected in ((0, 0), (T0, 0), (T0 + 1, 2), (T0 + 100, 2), (T0 + 850, 18), (T0 + 900, 18), (T0 + 901, 20)):
        offset = engine.store.offset_at_time(queue, time_ms)
        assert payloads(pull(engine, queue, offset).messages) == [b"%d" % number for number in range(expected, 20)]
    for time_ms, expected in ((0, 0), (T0 + 350, 8), (T0 + 900, 18), (T0 + 901, 20)):
        found = scan_all(engine, engine.store.position_at_time(time_ms))
        assert payloads(found) == [b"%d" % number for number in range(expected, 20)]


def test_store_time_never_goes_down(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"q")
    route = topics.route(b"q", queue)
    append(engine, *numbered(route, 1), now_ms=T0)
    append(engine, *numbered(route, 1), now_ms=T0 - 5_000)
    first, second = read_all(engine, queue)
    assert second.stored_ms >= first.stored_ms


def test_offset_at_position(engine: Engine, topics: Topics) -> None:
    queue, other = topics.queue(b"q"), topics.queue(b"other")
    mine, others = topics.route(b"q", queue), topics.route(b"o", other)
    sent: list[Message] = []
    for number in range(12):
        one = message(mine if number % 3 else others, b"%d" % number)
        append(engine, one)
        sent.append(one)
    for one in sent:
        offset = engine.store.offset_at_position(queue, one.position)
        expected = [later.payload for later in sent if later.position >= one.position and later.topic == b"q"]
        assert payloads(pull(engine, queue, offset).messages) == expected
    assert engine.store.offset_at_position(queue, engine.store.end()) == engine.store.max_offset(queue)


def scan_all(engine: Engine, position: int) -> list[Message]:
    found: list[Message] = []
    while position < engine.store.durable_end():
        some, beyond = engine.store.scan(position, 1_000)
        assert beyond > position
        found += some
        position = beyond
    return found


def test_scan_reads_the_whole_log_in_steps(engine: Engine, topics: Topics) -> None:
    routes = [topics.route(b"t%d" % number, topics.queue(b"t%d" % number)) for number in range(3)]
    sent = [message(routes[number % 3], b"%d" % number) for number in range(60)]
    for start in range(0, 60, 5):
        append(engine, *sent[start : start + 5])
    assert payloads(scan_all(engine, 0)) == payloads(sent)
    assert payloads(scan_all(engine, sent[33].position)) == payloads(sent[33:])


def test_read_by_position(engine: Engine, topics: Topics) -> None:
    route = topics.route(b"q")
    sent = numbered(route, 5)
    append(engine, *sent)
    for one in sent:
        got = engine.store.read(one.position)
        assert got is not None
        assert got.payload == one.payload
    assert engine.store.read(sent[2].position + 1) is None
    assert engine.store.read(engine.store.end() + 1_000) is None


def test_positions_as_text(engine: Engine, topics: Topics) -> None:
    sent = numbered(topics.route(b"q"), 5)
    append(engine, *sent)
    texts = [engine.store.format_position(one.position) for one in sent]
    assert [engine.store.parse_position(text) for text in texts] == [one.position for one in sent]
    engine.reopen()
    assert [engine.store.parse_position(text) for text in texts] == [one.position for one in sent]
    for text in ("", "x", "1-2-x", "--"):
        with pytest.raises(ValueError):
            engine.store.parse_position(text)


def test_retained_messages_are_rows_by_topic(engine: Engine, topics: Topics) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-6]: the latest one is kept, an empty one clears it."""
    one, other = topics.route(b"one"), topics.route(b"other")
    append(engine, message(one, b"old", retain=True), message(other, b"kept", 2, retain=True, properties=b"\x01\x01"))
    append(engine, message(one, b"new", retain=True), message(one, b"not retained"))
    for _ in range(2):
        rows = dict(engine.meta.scan(Table.RETAINED, b""))
        kept = {topic: engine.store.retained_message(row) for topic, row in rows.items()}
        assert {topic: found.payload for topic, found in kept.items()} == {b"one": b"new", b"other": b"kept"}
        assert (kept[b"other"].qos, kept[b"other"].properties) == (2, b"\x01\x01")
        engine.reopen()
    one = Route(b"one", one.parent_id, [engine.store.open_queue(queue.id, queue.name) for queue in one.parents], [])
    append(engine, message(one, b"", retain=True))
    assert [topic for topic, _ in engine.meta.scan(Table.RETAINED, b"")] == [b"other"]


def test_expiry_is_kept_as_an_instant(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"q")
    append(engine, message(topics.route(b"q", queue), b"x", expires_ms=T0 + 60_000), now_ms=T0)
    assert pull(engine, queue, 0).messages[0].expires_ms == T0 + 60_000


def test_the_same_id_is_the_same_queue(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"q")
    assert engine.store.open_queue(queue.id, queue.name) is queue


def test_a_dropped_queue_is_gone_and_its_name_can_begin_anew(engine: Engine, topics: Topics) -> None:
    old, other = topics.queue(b"q"), topics.queue(b"other")
    append(engine, *numbered(topics.route(b"q", old, other), 5))
    engine.store.drop_queue(old)
    engine.settle()
    new = topics.queue(b"q")
    append(engine, *numbered(topics.route(b"q2", new), 2))
    assert payloads(read_all(engine, new)) == [b"0", b"1"]
    assert len(read_all(engine, other)) == 5


def test_everything_is_there_after_opening_again(engine: Engine, topics: Topics) -> None:
    queue, idle = topics.queue(b"q"), topics.queue(b"idle")
    route = topics.route(b"q", queue)
    sent = numbered(route, 50)
    append(engine, *sent[:30], now_ms=T0)
    append(engine, *sent[30:], now_ms=T0 + 5)
    engine.reopen()
    again = engine.store.open_queue(queue.id, queue.name)
    assert payloads(read_all(engine, again)) == payloads(sent)
    assert [one.position for one in read_all(engine, again)] == [one.position for one in sent]
    assert engine.store.max_offset(engine.store.open_queue(idle.id, idle.name)) == 0
    assert engine.store.offset_at_time(again, T0 + 1) == 30
    route = Route(b"q", route.parent_id, [engine.store.open_queue(one.id, one.name) for one in route.parents], [again])
    append(engine, *numbered(route, 10, 50), now_ms=T0 + 9)
    assert payloads(read_all(engine, again)) == [b"%d" % number for number in range(60)]
    assert len(read_all(engine, route.parents[0])) == 60


def test_bounds_are_declared(engine: Engine) -> None:
    bounds = engine.store.bounds
    assert bounds.queues_per_message >= 1
    assert bounds.queue_name_bytes >= 64, "a wire name has up to 64 characters"
    assert bounds.message_bytes >= 1 << 20


def test_asking_for_the_max_offset_tells_the_handle(engine: Engine, topics: Topics) -> None:
    queue = topics.queue(b"a")
    append(engine, *numbered(topics.route(b"a", queue), 3))
    assert engine.store.max_offset(queue) == queue.next_offset == 3
    engine.reopen()
    again = engine.store.open_queue(queue.id, queue.name)
    assert engine.store.max_offset(again) == again.next_offset == 3
