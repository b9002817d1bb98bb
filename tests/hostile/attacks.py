"""`python -m tests.hostile.attacks NAME PORT SECONDS`: one attack, as fast as it can; prints what it did as JSON."""

from __future__ import annotations

import contextlib
import json
import random
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator

from tests.conformance import wire
from tests.conformance.properties import varint

Attack = Callable[[int, float], dict[str, int]]


def dial(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=2)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def joined(port: int, name: str, version: int = 5, **more: object) -> socket.socket:
    """A connection with its CONNACK read."""
    link = dial(port)
    link.sendall(wire.connect(name, version, **more))  # type: ignore[arg-type]
    link.recv(65_536)
    return link


def until(seconds: float) -> Iterator[int]:
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        yield count
        count += 1


def drained(link: socket.socket) -> bool:
    """Read what there is without waiting. False: the server has closed."""
    link.setblocking(False)
    try:
        while data := link.recv(262_144):
            if len(data) < 262_144:
                return True
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        link.settimeout(2)


def slowloris(port: int, seconds: float) -> dict[str, int]:
    """Three hundred connections that send their CONNECT byte by byte."""
    packet = wire.connect("slow" * 10)
    links: dict[socket.socket, int] = {}
    closed = 0
    for turn in until(seconds):
        while len(links) < 300:
            links[dial(port)] = 0
        for link in random.Random(turn).sample(list(links), 100):
            at = links[link]
            try:
                link.sendall(packet[at : at + 1])
            except OSError:
                closed += 1
                del links[link]
                link.close()
                continue
            links[link] = min(at + 1, len(packet) - 1)
            if not drained(link):
                closed += 1
                del links[link]
                link.close()
        time.sleep(0.02)
    return {"closed": closed}


def half_open(port: int, seconds: float) -> dict[str, int]:
    """Thirty subscribers that never read, of a topic that is flooded."""
    deaf = []
    for number in range(30):
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", port))
        link.sendall(wire.connect(f"deaf-{number}") + wire.subscribe(1, [("flood/#", 1)]))
        deaf.append(link)
    publisher = joined(port, "flooder")
    packet = wire.publish("flood/x", bytes(20_000))
    sent = 0
    for _ in until(seconds):
        publisher.sendall(packet)
        sent += 1
        time.sleep(0.005)
    return {"sent": sent, "closed": 0}


def packet_claims(port: int, seconds: float) -> dict[str, int]:
    """Headers that promise 64 MiB, before and after CONNECT, and as many bytes of them as the server takes."""
    closed = 0
    for turn in until(seconds):
        with contextlib.suppress(OSError), (dial(port) if turn % 2 else joined(port, f"claim-{turn}")) as link:
            link.sendall(bytes([0x10 if turn % 2 else 0x32]) + varint(64 << 20))
            for _ in range(4):
                link.sendall(bytes(65_536))
            while link.recv(65_536):
                pass
        closed += 1
        time.sleep(0.002)
    return {"closed": closed}


def topic_bombs(port: int, seconds: float) -> dict[str, int]:
    """Names of 65,535 bytes, names with 10,000 levels, all different, published and subscribed to."""
    link = joined(port, "bomber", 4)
    sent = refused = 0
    for turn in until(seconds):
        long = b"%08d" % turn + b"x" * 65_527
        deep = b"%08d" % turn + b"/" * 9_999
        topic = deep if turn % 50 == 49 else long
        with contextlib.suppress(OSError):
            link.sendall(wire.publish(topic, b"", version=4, qos=0))
            if turn % 10 == 0:
                link.sendall(wire.subscribe(1, [(long[:-2] + b"/#", 0), (deep[:-1] + b"#", 0)], version=4))
        sent += 1
        if not drained(link):
            refused += 1
            link.close()
            link = joined(port, "bomber", 4)
    return {"sent": sent, "closed": refused}


def subscription_flood(port: int, seconds: float) -> dict[str, int]:
    """Clients that subscribe to a thousand filters a packet, wildcards among them, up to their limit, then go and come again."""
    packets = refused = 0
    for turn in until(seconds):
        with joined(port, f"collector-{turn % 4}") as link:
            for part in range(6):
                filters = [(f"f/{turn}/{part}/{number}/{'+/#' if number % 2 else 'x'}", 1) for number in range(1_000)]
                link.sendall(wire.subscribe(part + 1, filters))
                packets += 1
                answer = b""
                while len(answer) < 1_000 and (more := link.recv(65_536)):
                    answer += more
                refused += answer.count(b"\x97")
    return {"packets": packets, "refused": refused}


def publish_flood(port: int, seconds: float) -> dict[str, int]:
    """Four publishers that write as fast as the socket takes it, QoS 0 and QoS 1, acknowledgements unread but for a few."""
    links = [joined(port, f"flood-{number}", 4 if number % 2 else 5) for number in range(4)]
    chunks = [
        b"".join(wire.publish(f"flood/{number}", b"x" * 100, version=4 if number % 2 else 5, qos=0) for _ in range(200))
        for number in range(4)
    ]  # fmt: skip
    selector = selectors.DefaultSelector()
    for link, chunk in zip(links, chunks, strict=True):
        link.setblocking(False)
        selector.register(link, selectors.EVENT_WRITE, chunk)
    sent = 0
    for turn in until(seconds):
        for key, _ in selector.select(0.1):
            link = key.fileobj
            assert isinstance(link, socket.socket)
            with contextlib.suppress(BlockingIOError):
                sent += link.send(key.data)  # cut packets go on where they were cut, by chance: so some links are closed
        if turn % 50 == 0:
            impatient = joined(port, f"impatient-{turn}")
            packets = b"".join(wire.publish("flood/q1", b"", qos=1, packet_id=number) for number in range(1, 2_000))
            with contextlib.suppress(OSError):
                impatient.sendall(packets)
                impatient.close()
    return {"bytes": sent}


def password_guessing(port: int, seconds: float) -> dict[str, int]:
    """Wrong passwords as fast as connections can be made, twenty at a time."""
    tried = banned = 0
    for turn in until(seconds):
        links = [dial(port) for _ in range(20)]
        for number, link in enumerate(links):
            link.sendall(wire.connect(f"g{turn}-{number}", username=f"user-{number % 3}", password=b"%d" % turn))
        for link in links:
            with contextlib.suppress(OSError):
                answer = link.recv(1_024)
                banned += len(answer) > 3 and answer[3] == 0x8A
            tried += 1
            link.close()
    return {"tried": tried, "banned": banned}


def takeover_storm(port: int, seconds: float) -> dict[str, int]:
    """The same three persistent sessions, taken over again and again."""
    links: list[socket.socket] = []
    count = 0
    for turn in until(seconds):
        packets = wire.connect(f"storm-{turn % 3}", clean=turn % 7 == 0, properties=[("session_expiry", 60)])
        with contextlib.suppress(OSError):
            link = dial(port)
            links.append(link)
            link.sendall(packets + wire.subscribe(1, [("storm/#", 1)]))
            count += 1
        if len(links) > 30:
            links.pop(0).close()
    return {"takeovers": count}


def connection_flood(port: int, seconds: float) -> dict[str, int]:
    """Connections by the thousand, held open and silent."""
    links: list[socket.socket] = []
    for _ in until(seconds):
        with contextlib.suppress(OSError):
            links.append(dial(port))
        if len(links) > 800:
            for link in links[:400]:
                link.close()
            del links[:400]
    return {"opened": len(links)}


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        slowloris, half_open, packet_claims, topic_bombs, subscription_flood, publish_flood, password_guessing, takeover_storm,
        connection_flood,
    )
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(ATTACKS[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3]))))
