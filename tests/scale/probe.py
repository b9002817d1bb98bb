"""A pair of clients beside the load: one message each few milliseconds, by the clock; what the subscriber's waiting time was.

Runs as a process of its own (`start`), so that the load's Python does not show in the figures.
"""

from __future__ import annotations

import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.scale.raw_client import Client, publish_frame

ROOT = Path(__file__).parents[2]
_SENT = struct.Struct(">d")


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the instant a message was due to its receipt."""

    count: int
    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, max {self.longest:.1f} ms of {self.count}"


class Probe:
    """A running probe; `result` ends it."""

    def __init__(self, port: int, rate: int = 500, qos: int = 1) -> None:
        command = [sys.executable, "-m", "tests.scale.probe", str(port), str(rate), str(qos)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "running\n"

    def result(self) -> Latency:
        out, _ = self._process.communicate("", timeout=60)
        count, p50, p99, longest = out.split()
        return Latency(int(count), float(p50), float(p99), float(longest))


def measure(port: int, rate: int, qos: int) -> Latency:
    """Publish by the clock until standard input ends."""
    topic = b"probe/latency"
    subscriber = Client(port, b"probe-subscriber")
    subscriber.subscribe([topic], qos)
    publisher = Client(port, b"probe-publisher")
    subscriber.socket.setblocking(False)
    publisher.socket.setblocking(False)
    sample = publish_frame(topic, _SENT.pack(0.0), qos)
    id_at = len(sample) - 10
    print("running", flush=True)
    poll = select.epoll()
    for fd in (subscriber.socket.fileno(), publisher.socket.fileno(), 0):
        poll.register(fd, select.EPOLLIN)
    waits: list[float] = []
    due = time.monotonic()
    rest = b""
    packet_id = 0
    stop_at = 0.0
    sent = 0
    while not stop_at or (time.monotonic() < stop_at and len(waits) < sent):
        now = time.monotonic()
        while not stop_at and now >= due:
            packet_id = packet_id % 60_000 + 1
            publisher.socket.send(publish_frame(topic, _SENT.pack(due), qos, packet_id))
            sent += 1
            due += 1 / rate
        for fd, _ in poll.poll(max(0.0, due - time.monotonic()) if not stop_at else 0.05):
            if fd == 0:
                stop_at = time.monotonic() + 5
                poll.unregister(0)
            elif fd == publisher.socket.fileno():
                publisher.socket.recv(65536)
            else:
                data = rest + subscriber.socket.recv(65536)
                now = time.monotonic()
                whole = len(data) - len(data) % len(sample)
                rest = data[whole:]
                answers = bytearray()
                for at in range(0, whole, len(sample)):
                    waits.append(now - _SENT.unpack_from(data, at + len(sample) - 8)[0])
                    if qos:
                        answers += b"\x40\x02" + data[at + id_at : at + id_at + 2]
                if answers:
                    subscriber.socket.send(answers)
    assert len(waits) == sent, f"{sent} sent, {len(waits)} received"
    waits.sort()
    return Latency(len(waits), 1e3 * waits[len(waits) // 2], 1e3 * waits[int(len(waits) * 0.99)], 1e3 * waits[-1])


if __name__ == "__main__":
    found = measure(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(found.count, found.p50, found.p99, found.longest)
