"""`python -m tests.hostile.probe PORT SECONDS [USER PASSWORD]`: a well-behaved pair of clients; prints its latencies (ms) as JSON.

A hundred QoS 1 messages a second, each with its send time, from one connection to another. Beside it stands how late the
operating system wakes this very process: what a probe cannot see sharper than.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from tests.conformance import wire
from tests.conformance.client import Client

INTERVAL_S = 0.01
GRACE_S = 2.0
"""How long the last messages may take."""


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def connected(port: int, name: str, login: list[str]) -> Client:
    client = Client.dial(("127.0.0.1", port))
    user, password = (login[0], login[1].encode()) if login else (None, None)
    assert client.connect(name, username=user, password=password).reason == 0
    client.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def arrived(client: Client) -> list[wire.Packet]:
    """The packets of one read, and the end of the one it cut."""
    packets = [client.read(1.0)]
    while client.buffer:
        packets.append(client.read(1.0))
    return packets


def run(port: int, seconds: float, login: list[str]) -> dict[str, float]:
    subscriber, publisher = connected(port, "probe-s", login), connected(port, "probe-p", login)
    subscriber.subscribe("probe/x", qos=1)
    print("connected", flush=True)
    time.sleep(0.2)  # the attack begins
    latencies: list[float] = []
    lateness: list[float] = []
    begin = due = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) < begin + seconds + GRACE_S and (now < begin + seconds or len(latencies) < sent):
        if now >= due and now < begin + seconds:
            lateness.append((now - due) * 1000)
            sent += 1
            publisher.send(wire.publish("probe/x", repr(time.perf_counter()).encode(), qos=1, packet_id=sent % 65_535 + 1))
            due += INTERVAL_S
        ready, _, _ = select.select([subscriber.stream, publisher.stream], [], [], max(0.001, due - time.perf_counter()))
        if publisher.stream in ready:
            arrived(publisher)
        if subscriber.stream in ready:
            for packet in arrived(subscriber):
                latencies.append((time.perf_counter() - float(packet.payload)) * 1000)
                subscriber.send(wire.ack(wire.Type.PUBACK, packet.packet_id))
    return {
        "sent": sent,
        "received": len(latencies),
        "p50": quantile(latencies, 0.5),
        "p99": quantile(latencies, 0.99),
        "max": max(latencies, default=0.0),
        "late_p99": quantile(lateness, 0.99),
    }


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
