"""Groups that pop from a store: lending, revival, dead letters, holes, expiry, restart."""

from __future__ import annotations

from random import Random

from lmq_store.api.model import LightQueue, Message, Route
from lmq_store.api.ports import Table
from lmq_store.embedded.consumer_groups import (
    ConsumerGroups,
    dead_letter_message,
    group_key,
    parse_group_key,
)
from tests.lmq_store.memory_store import MemoryStore, ignore

GROUP = b"workers"


def filled(count: int, expires_ms: int = 0) -> tuple[MemoryStore, LightQueue]:
    store = MemoryStore()
    parent, queue = store.open_queue(1 << 40, b"parent"), store.open_queue(1, b"jobs")
    route = Route(b"jobs", 0, [parent], [queue])
    messages = [Message(b"jobs", b"%d" % number, 1) for number in range(count)]
    for message in messages:
        message.route = route
        message.expires_ms = expires_ms
    if messages:
        store.append(messages, 1_000, ignore)
    return store, queue


def test_lends_in_order_and_each_only_once() -> None:
    store, queue = filled(10)
    first = store.pop(queue, GROUP, 4, 100, 0)
    second = store.pop(queue, GROUP, 100, 100, 0)
    assert [popped.queue_offset for popped in first + second] == list(range(10))
    assert [popped.message.payload for popped in first] == [b"0", b"1", b"2", b"3"]
    assert store.pop(queue, GROUP, 10, 100, 99) == []
    assert [popped.queue_offset for popped in store.pop(queue, b"others", 2, 100, 0)] == [0, 1]


def test_revives_by_time_and_by_giving_back() -> None:
    store, queue = filled(3)
    lent = store.pop(queue, GROUP, 3, 100, 0)
    store.ack(queue, GROUP, [lent[1].handle])
    store.change_invisible(queue, GROUP, [lent[2].handle], 0, 10)
    again = store.pop(queue, GROUP, 3, 100, 10)
    assert [(popped.queue_offset, popped.deliveries) for popped in again] == [(2, 2)]
    store.ack(queue, GROUP, [lent[2].handle])  # stale: it is lent to another now
    assert store.groups.committed_offset(queue, GROUP) == 0
    late = store.pop(queue, GROUP, 3, 100, 100)
    assert [(popped.queue_offset, popped.deliveries) for popped in late] == [(0, 2)]
    store.ack(queue, GROUP, [late[0].handle, again[0].handle])
    assert store.groups.committed_offset(queue, GROUP) == 3


def test_max_deliveries_sends_to_the_dead_letter_topic() -> None:
    store, queue = filled(2)
    letters: list[tuple[bytes, Message]] = []
    store.groups = ConsumerGroups(
        store, store.meta, lambda group, letter: letters.append((group, letter)), max_deliveries=3
    )
    for round_no in range(3):
        assert len(store.pop(queue, GROUP, 2, 10, round_no * 10)) == 2
    assert store.pop(queue, GROUP, 2, 10, 30) == []
    assert [(group, letter.topic, letter.payload) for group, letter in letters] == [
        (GROUP, b"$dlq/workers/jobs", b"0"),
        (GROUP, b"$dlq/workers/jobs", b"1"),
    ]
    assert b"max-deliveries" in letters[0][1].properties
    assert store.groups.committed_offset(queue, GROUP) == 2
    assert store.groups.dead_lettered == 2


def test_a_rejected_message_goes_to_the_dead_letter_topic_at_once() -> None:
    store, queue = filled(1)
    letters: list[Message] = []
    store.groups.dead_letter = lambda _, letter: letters.append(letter)
    lent = store.pop(queue, GROUP, 1, 10, 0)[0]
    store.groups.reject(queue, GROUP, lent.message, lent.handle, "reason 0x80")
    store.groups.reject(queue, GROUP, lent.message, lent.handle, "reason 0x80")
    assert len(letters) == 1
    assert store.groups.committed_offset(queue, GROUP) == 1


def test_without_a_dead_letter_topic_nothing_is_given_up() -> None:
    store, queue = filled(1)
    for round_no in range(40):
        assert store.pop(queue, GROUP, 1, 10, round_no * 10)[0].deliveries == round_no + 1


def test_what_retention_took_counts_as_done() -> None:
    store, queue = filled(10)
    store.pop(queue, GROUP, 3, 10, 0)
    store.retain_from(store.log[6].position)
    again = store.pop(queue, GROUP, 10, 10, 20)
    assert [popped.queue_offset for popped in again] == [6, 7, 8, 9]
    assert store.groups.lost_to_retention == 3
    assert store.groups.committed_offset(queue, GROUP) == 6


def test_what_is_lent_behind_a_hole_stays_lent() -> None:
    """A pull at an offset that retention has taken brings what comes behind the hole, and that is another's."""
    store, queue = filled(10)
    store.pop(queue, GROUP, 3, 10, 0)
    lent = store.pop(queue, GROUP, 3, 1_000, 0)
    store.retain_from(store.log[3].position)
    again = store.pop(queue, GROUP, 10, 1_000, 20)
    assert [popped.queue_offset for popped in again] == [6, 7, 8, 9]
    assert store.groups.lost_to_retention == 3
    store.groups.ack(queue, GROUP, [popped.handle for popped in lent])
    assert store.groups.committed_offset(queue, GROUP) == 6


def test_expired_messages_are_skipped() -> None:
    store, queue = filled(3, expires_ms=2_000)
    assert len(store.pop(queue, GROUP, 1, 10, 1_500)) == 1
    assert store.pop(queue, GROUP, 3, 10, 2_000) == []
    assert store.groups.expired == 3
    assert store.groups.committed_offset(queue, GROUP) == 3


def test_progress_survives_in_the_row() -> None:
    store, queue = filled(5)
    lent = store.pop(queue, GROUP, 4, 1_000, 0)
    store.ack(queue, GROUP, [lent[0].handle, lent[2].handle])
    assert store.groups.tick(5_000)
    assert not store.groups.tick(5_500)
    store.groups = ConsumerGroups(store, store.meta)
    assert [popped.queue_offset for popped in store.pop(queue, GROUP, 9, 1_000, 10)] == [4]
    store.ack(queue, GROUP, [lent[1].handle])  # a handle outlives the restart
    assert store.groups.committed_offset(queue, GROUP) == 3
    store.groups.give_back_all(queue, GROUP)
    assert [popped.queue_offset for popped in store.pop(queue, GROUP, 9, 1_000, 20)] == [3, 4]
    store.groups.end(queue, GROUP)
    assert store.meta.get(Table.GROUP, group_key(queue.id, GROUP)) is None


def test_start_places_a_new_group_only() -> None:
    store, queue = filled(5)
    store.groups.start(queue, GROUP, 3)
    store.groups.start(queue, GROUP, 0)
    assert [popped.queue_offset for popped in store.pop(queue, GROUP, 9, 1_000, 0)] == [3, 4]


def test_keys_are_apart_from_share_names() -> None:
    assert parse_group_key(group_key(77, b"g/x")) == (77, b"g/x")
    assert parse_group_key(b"workers/jobs/#") is None


def test_dead_letter_keeps_what_the_message_said() -> None:
    message = Message(b"a/b", b"payload", 2)
    message.properties = b"\x01\x01"
    letter = dead_letter_message(b"g", message, 9, 16, "why")
    assert (letter.topic, letter.payload, letter.qos) == (b"$dlq/g/a/b", b"payload", 2)
    assert letter.properties.startswith(b"\x01\x01\x26\x00\x0flmq-dead-letter\x00\x03why")


def test_members_that_come_and_go_lose_nothing() -> None:
    """Seeded: random members pop, ack, forget; in the end every message was acknowledged, in bounded deliveries."""
    random, now_ms = Random(7), 0
    store, queue = filled(500)
    held: list[int] = []
    acknowledged: set[int] = set()
    offsets: dict[int, int] = {}
    while len(acknowledged) < 500:
        now_ms += random.randrange(20)
        for popped in store.pop(queue, GROUP, random.randrange(1, 30), 100, now_ms):
            assert popped.queue_offset not in acknowledged
            offsets[popped.handle] = popped.queue_offset
            held.append(popped.handle)
        random.shuffle(held)
        for handle in [held.pop() for _ in range(min(len(held), random.randrange(20)))]:
            if random.random() < 0.7:
                state = store.groups.state(queue, GROUP)
                before = len(state.unacked)
                store.ack(queue, GROUP, [handle])
                if len(state.unacked) < before:
                    acknowledged.add(offsets[handle])
    assert store.groups.committed_offset(queue, GROUP) == 500


def test_an_answer_after_the_groups_end_does_not_begin_it_anew() -> None:
    store, queue = filled(4)
    groups = store.groups
    lent = store.pop(queue, GROUP, 4, 100, 0)
    groups.save(queue, GROUP)
    groups.end(queue, GROUP)
    store.ack(queue, GROUP, [lent[0].handle])
    store.change_invisible(queue, GROUP, [lent[1].handle], 0, 10)
    groups.settle(queue, GROUP, lent[2].handle)
    groups.reject(queue, GROUP, lent[3].message, lent[3].handle, "refused")
    groups.save_all()
    assert list(store.meta.scan(Table.GROUP, b"")) == []
    groups.start(queue, GROUP, store.max_offset(queue))
    assert store.pop(queue, GROUP, 4, 100, 200) == []


def test_groups_that_nobody_holds_are_forgotten() -> None:
    store, queue = filled(2)
    groups = store.groups
    for group in (GROUP, b"others"):
        store.pop(queue, group, 1, 100, 0)
        groups.save(queue, group)
    assert groups.end_others({(queue.id, GROUP)})
    assert [parse_group_key(key) for key, _ in store.meta.scan(Table.GROUP, b"")] == [(queue.id, GROUP)]
    assert not groups.end_others({(queue.id, GROUP)})
