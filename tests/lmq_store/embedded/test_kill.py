"""A real process, real files, the sync thread, and SIGKILL at any moment: what was acknowledged is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from lmq_store.embedded.store import EmbeddedStore, StoreOptions

WRITER = """
import os, select, sys, time
from lmq_store.api.model import Message, Route
from lmq_store.api.ports import Table
from lmq_store.embedded.store import EmbeddedStore, StoreOptions

store = EmbeddedStore.open(sys.argv[1], StoreOptions(segment_bytes=1 << 20, min_free_bytes=0))
queue = store.open_queue(1, b"q")
parents = [store.open_queue((1 << 40) + number, b"p") for number in range(4)]
route = Route(b"t", 0, parents, [queue])
next_number = store.max_offset(queue)
os.write(1, b"ready %d\\n" % next_number)
while True:
    messages = []
    for number in range(next_number, next_number + 1 + next_number % 50):
        message = Message(b"t", b"%d " % number + bytes(200), 1)
        message.route, message.partition = route, number % 4
        messages.append(message)
    next_number += len(messages)
    store.append(messages, int(time.time() * 1000), lambda error, upto=next_number: os.write(1, b"%d\\n" % upto))
    store.meta.put(Table.COUNTER, b"n", b"%d" % next_number)
    store.meta.commit(None)
    store.flush()
    select.select([store.sync_fd], [], [], 0.001)
    store.on_sync_ready()
    store.tick(int(time.time() * 1000))
"""
ROUNDS = 6


def test_acknowledged_messages_survive_sigkill(tmp_path: Path) -> None:
    random = Random(5)
    folder = str(tmp_path / "store")
    for _ in range(ROUNDS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline().startswith(b"ready")
        time.sleep(random.random() * 0.3)
        os.kill(writer.pid, signal.SIGKILL)
        said = writer.communicate()[0].split(b"\n")
        acknowledged = max((int(line) for line in said[:-1]), default=0)
        store = EmbeddedStore.open(folder, StoreOptions(segment_bytes=1 << 20, min_free_bytes=0))
        queue = store.open_queue(1, b"q")
        count = store.max_offset(queue)
        assert count >= acknowledged
        offset = 0
        while offset < count:
            pulled = store.pull(queue, offset, 1_000, 1 << 30, lambda _: None)
            assert pulled is not None
            assert [int(message.payload.split()[0]) for message in pulled.messages] == list(range(offset, pulled.next_offset))
            offset = pulled.next_offset
        store.close()
