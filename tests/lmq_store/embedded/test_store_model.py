"""The whole store against a naive model: whatever is done to it, in whatever order, and killed at any point."""

from __future__ import annotations

import shutil
import tempfile
from random import Random

import pytest

from lmq_store.api.model import LightQueue, Message, Route
from lmq_store.api.ports import Table
from lmq_store.embedded.store import EmbeddedStore, StoreOptions
from tests.lmq_store.faulty_files import FaultyFiles

T0 = 1_700_000_000_000
QUEUES = 6


class Model:
    """What the store was told, and from which point on it promised to keep it."""

    def __init__(self) -> None:
        self.queues: dict[int, list[bytes]] = {}
        self.rows: dict[tuple[int, bytes], bytes] = {}
        self.appended: list[tuple[bytes, list[tuple[int, int]]]] = []
        """(payload, [(queue id, queue offset)])."""
        self.published: list[tuple[bytes, bool, int, int, int]] = []
        """(topic, retain, QoS, session id, packet id) of each."""
        self.acknowledged = 0
        self.history: list[tuple[str, int, bytes, bytes]] = []
        """Row writes in order, with the acknowledged count."""
        self.acknowledged_rows = 0


    def received(self) -> dict[int, list[int]]:
        """The packet ids of QoS 2, by session."""
        found: dict[int, list[int]] = {}
        for _, _, qos, session_id, packet_id in self.published:
            if qos == 2 and session_id:
                found.setdefault(session_id, []).append(packet_id)
        return found

    def retained(self) -> list[tuple[bytes, bytes]]:
        """The last retained payload of each topic, by topic."""
        last = {}
        for (topic, retain, *_), (payload, _) in zip(self.published, self.appended, strict=True):
            if retain:
                last[topic] = payload
        return sorted(last.items())


class Walk:
    """One random walk."""

    def __init__(self, seed: int, folder: str) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.generation = 0
        self.model = Model()
        self.now_ms = T0
        self.open(f"{folder}/0")

    def open(self, path: str) -> None:
        self.path = path
        self.files = FaultyFiles(path, self.random.randrange(1 << 30))
        options = StoreOptions(segment_bytes=self.random.choice((20_000, 200_000)), min_free_bytes=0, retention_ms=0)
        self.store = EmbeddedStore.open(path, options, files=self.files, now_ms=self.now_ms)

    def queue(self, queue_id: int) -> LightQueue:
        return self.store.open_queue(queue_id, b"q%d" % queue_id)

    def append(self) -> None:
        parents = [self.queue((1 << 40) + 256 + partition) for partition in range(2)]
        messages = []
        model = self.model
        for _ in range(self.random.choice((1, 1, 5, 30))):
            lights = [self.queue(queue_id) for queue_id in self.random.sample(range(1, QUEUES), self.random.randrange(3))]
            payload = b"%d:" % len(model.appended) + bytes(self.random.choice((10, 100, 3_000)))
            message = Message(b"t/%d" % self.random.randrange(5), payload, self.random.randrange(3), self.random.random() < 0.1)
            message.route = Route(message.topic, 1, parents, lights)
            message.partition = self.random.randrange(2)
            message.session_id = self.random.randrange(3)
            message.packet_id = self.random.randrange(1, 100)
            messages.append(message)
            places = []
            for queue in [parents[message.partition], *lights]:
                held = model.queues.setdefault(queue.id, [])
                places.append((queue.id, len(held)))
                held.append(payload)
            model.appended.append((payload, places))
            model.published.append((message.topic, message.retain, message.qos, message.session_id, message.packet_id))
        count = len(model.appended)

        def done(error: object) -> None:
            assert error is None
            assert count >= model.acknowledged
            model.acknowledged = count

        self.store.append(messages, self.now_ms, done)

    def write_rows(self) -> None:
        model = self.model
        for _ in range(self.random.randrange(1, 5)):
            kind = self.random.choice(("put", "put", "delete", "prefix"))
            key = b"k%d" % self.random.randrange(30)
            table = self.random.choice((Table.SESSION, Table.SUBSCRIPTION))
            if kind == "put":
                value = b"v%d" % self.random.randrange(1_000)
                self.store.meta.put(table, key, value)
            elif kind == "delete":
                value = b""
                self.store.meta.delete(table, key)
            else:
                value, key = b"", key[:2]
                self.store.meta.delete_prefix(table, key)
            model.history.append((kind, table, key, value))
            apply_row(model.rows, kind, table, key, value)
        count = len(model.history)

        def done(error: object) -> None:
            assert error is None
            model.acknowledged_rows = max(model.acknowledged_rows, count)

        self.store.meta.commit(done)

    def step(self) -> None:
        self.now_ms += self.random.choice((0, 1, 50, 3_000))
        doing = self.random.randrange(20)
        if doing < 6:
            self.append()
        elif doing < 9:
            self.write_rows()
        elif doing < 12:
            self.store.flush()
        elif doing < 15:
            self.store.on_sync_ready()
        elif doing < 17:
            self.store.tick(self.now_ms)
        elif doing == 17:
            self.check_reads()
        elif self.random.random() < 0.5:
            self.crash()

    def check_reads(self) -> None:
        for queue_id, held in self.model.queues.items():
            queue = self.queue(queue_id)
            assert self.store.max_offset(queue) == len(held)
            at = self.random.randrange(len(held) + 1)
            pulled = self.store.pull(queue, at, self.random.choice((1, 7, 1_000)), self.random.choice((1, 5_000, 1 << 20)), lambda _: None)
            assert pulled is not None
            assert [message.payload for message in pulled.messages] == held[at : at + len(pulled.messages)]
            assert pulled.offsets == list(range(at, at + len(pulled.messages)))
            assert at == len(held) or pulled.messages
        for table in (Table.SESSION, Table.SUBSCRIPTION):
            mine = sorted((key, value) for (one, key), value in self.model.rows.items() if one == table)
            assert list(self.store.meta.scan(table, b"")) == mine
            part = [row for row in mine if row[0].startswith(b"k1") and row[0] >= b"k15"]
            assert list(self.store.meta.scan(table, b"k1", b"k15")) == part
            self.check_received()
        for key in (b"k1", b"k17"):
                assert self.store.meta.get(table, key) == self.model.rows.get((table, key))

    def check_received(self) -> None:
        """The journal has the packet ids of the QoS 2 messages of each session, in the order of the log."""
        found: dict[int, list[int]] = {}
        for key, row in self.store.meta.scan(Table.JOURNAL, b""):
            ids = [int.from_bytes(row[at + 1 : at + 3], "little") for at in range(0, len(row), 3)]
            found.setdefault(int.from_bytes(key[:8], "big"), []).extend(ids)
        assert found == self.model.received()
        retained = {topic: self.store.retained_message(row).payload for topic, row in self.store.meta.scan(Table.RETAINED, b"")}
        assert sorted(retained.items()) == self.model.retained()

    def crash(self) -> None:
        """Close in order, SIGKILL, or cut the power; then everything acknowledged has to be there, and nothing else comes."""
        self.generation += 1
        way = self.random.choice(("close", "kill", "power"))
        path = f"{self.folder}/{self.generation}"
        if way == "close":
            self.store.close()
            path = self.path
        else:
            self.store.upkeep.join()
            getattr(self.files, "kill" if way == "kill" else "power_cut")(path)
            self.store.abandon()
        self.open(path)
        self.settle_model()
        self.check_reads()
        self.check_scan()

    def settle_model(self) -> None:
        """The survivors are a prefix of what was appended, at least as long as what was acknowledged."""
        model = self.model
        survived = len(self.everything())
        assert model.acknowledged <= survived <= len(model.appended)
        del model.appended[survived:]
        del model.published[survived:]
        model.acknowledged = survived
        for queue_id in model.queues:
            model.queues[queue_id] = []
        for payload, places in model.appended:
            for queue_id, queue_offset in places:
                assert queue_offset == len(model.queues[queue_id])
                model.queues[queue_id].append(payload)
        for count in range(model.acknowledged_rows, len(model.history) + 1):
            rows: dict[tuple[int, bytes], bytes] = {}
            for write in model.history[:count]:
                apply_row(rows, *write)
            tables = (Table.SESSION, Table.SUBSCRIPTION)
            found = {(table, key): value for table in tables for key, value in self.store.meta.scan(table, b"")}
            if found == rows:
                model.rows = rows
                del model.history[count:]
                model.acknowledged_rows = count
                return
        raise AssertionError("the rows are in no state that was ever acknowledged, or written after it")

    def everything(self) -> list[bytes]:
        found: list[bytes] = []
        position = 0
        while True:
            messages, after = self.store.scan(position, 50_000)
            found += [message.payload for message in messages]
            if after == position:
                return found
            position = after

    def check_scan(self) -> None:
        assert self.everything() == [payload for payload, _ in self.model.appended]


def apply_row(rows: dict[tuple[int, bytes], bytes], kind: str, table: int, key: bytes, value: bytes) -> None:
    if kind == "put":
        rows[table, key] = value
    elif kind == "delete":
        rows.pop((table, key), None)
    else:
        for one in [one for one in rows if one[0] == table and one[1].startswith(key)]:
            del rows[one]


@pytest.mark.parametrize("seed", range(12))
def test_random_walks(seed: int) -> None:
    folder = tempfile.mkdtemp(prefix="lmq-walk-")
    try:
        walk = Walk(seed, folder)
        for _ in range(150):
            walk.step()
        walk.store.wait_durable()
        walk.check_reads()
        walk.crash()
        walk.store.close()
    finally:
        shutil.rmtree(folder)
