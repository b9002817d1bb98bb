"""Links over real sockets: framing, tails, output bounds, ends."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from typing import Any

import pytest

from mqtt_proxy.net.turn import HIGH_BYTES
from tests.mqtt_proxy.net.echo import FrameLink, Served, frame, links, until

pytestmark = pytest.mark.hot


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    return client


async def exactly(client: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    got = bytearray()
    while len(got) < size:
        more = await asyncio.wait_for(loop.sock_recv(client, min(size - len(got), 1 << 20)), 5)
        if not more:
            break
        got += more
    return bytes(got)


async def to_end(client: socket.socket) -> bytes:
    return await exactly(client, 1 << 40)


def test_frames_are_answered_in_one_send(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            data = b"".join(frame(b"%d" % i) for i in range(1000))
            await asyncio.get_running_loop().sock_sendall(client, data)
            assert await exactly(client, len(data)) == data
            assert links[0].peer == f"127.0.0.1:{client.getsockname()[1]}"

    run(scenario)


def test_byte_by_byte(run: Any) -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        with connected(served.listen().port) as client:
            data = frame(b"") + frame(b"abc") + frame(b"0123456789")
            for i in range(len(data)):
                await loop.sock_sendall(client, data[i : i + 1])
                await asyncio.sleep(0)
            assert await exactly(client, len(data)) == data
            assert links[0].tail is None

    run(scenario)


def test_long_frame_arrives_in_pieces_and_is_presented_once(run: Any) -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        with connected(served.listen().port) as client:
            data = frame(random.Random(1).randbytes(3_000_000)) + frame(b"next")
            await loop.sock_sendall(client, data[:2])
            await until(lambda: links and links[0].tail)
            before = links[0].presented
            sending = asyncio.create_task(loop.sock_sendall(client, data[2:]))
            assert await exactly(client, len(data)) == data
            await sending
            assert links[0].presented <= before + 4
            assert links[0].tail is None

    run(scenario)


def test_claimed_length_allocates_nothing(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            client.send((1 << 31).to_bytes(4, "big") + b"x" * 100)
            await until(lambda: links and links[0].tail)
            assert len(links[0].tail) == 104

    run(scenario)


def test_random_splits(run: Any) -> None:
    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        chance = random.Random(7)
        frames = [frame(chance.randbytes(chance.choice([0, 1, 5, 300, 5_000, 20_000, 300_000]))) for _ in range(60)]
        data = b"".join(frames)
        with connected(served.listen().port) as client:

            async def feed() -> None:
                at = 0
                while at < len(data):
                    step = chance.choice([1, 3, 100, 4_000, 70_000, 500_000])
                    await loop.sock_sendall(client, data[at : at + step])
                    at += step
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)

            feeding = asyncio.create_task(feed())
            assert await exactly(client, len(data)) == data
            await feeding
            assert links[0].frames == frames

    run(scenario)


def test_pause_holds_back_what_was_read_and_resume_presents_it(run: Any) -> None:
    class Pausing(FrameLink):
        def took(self, frame: bytes) -> None:
            super().took(frame)
            self.pause_reading()

    async def scenario(served: Served) -> None:
        with connected(served.listen(new_link=Pausing).port) as client:
            client.send(frame(b"a") + frame(b"b") + frame(b"c") + b"\0\0")
            for n in (1, 2, 3):
                await until(lambda n=n: links and len(links[0].frames) == n)
                await asyncio.sleep(0.01)
                assert len(links[0].frames) == n
                links[0].resume_reading()
            client.send(b"\0\1d")
            await until(lambda: len(links[0].frames) == 4)
            assert await exactly(client, 20) == b"".join(map(frame, (b"a", b"b", b"c", b"d")))

    run(scenario)


def test_slow_reader_is_bounded_and_drains(run: Any) -> None:
    """Output that nobody takes: `congested` says so, reading stops, and `drained` comes when it went."""

    async def scenario(served: Served) -> None:
        loop = asyncio.get_running_loop()
        with connected(served.listen().port) as client, connected(served.listeners[0].port) as other:
            await until(lambda: len(links) == 2)
            slow = links[0] if links[0].peer.endswith(f":{client.getsockname()[1]}") else links[1]
            block = bytes(50_000)
            sent = 0
            for _ in range(2000):
                if slow.congested():
                    break
                slow.send(block)
                sent += len(block)
                await asyncio.sleep(0)
            assert slow.congested()
            assert slow.pending_bytes() <= HIGH_BYTES + len(block)
            await loop.sock_sendall(other, frame(b"quick"))
            assert await exactly(other, 9) == frame(b"quick")
            assert slow.drains == 0
            assert len(await exactly(client, sent)) == sent
            await until(lambda: slow.drains == 1)
            assert slow.pending_bytes() == 0

    run(scenario)


def test_peer_that_reads_no_answers_is_not_read(run: Any) -> None:
    async def scenario(served: Served) -> None:
        served.reactor.turn.stall_bytes = 300_000
        with connected(served.listen().port) as client:
            data = memoryview(frame(bytes(10_000)) * 2_000)
            at = idle = 0
            while at < len(data) and idle < 20:
                try:
                    at += client.send(data[at : at + 100_000])
                    idle = 0
                except BlockingIOError:
                    idle += 1
                    await asyncio.sleep(0.005)
            assert at < len(data)
            assert links[0].paused
            assert links[0].pending_bytes() < 1_000_000
            await exactly(client, at // 10_004 * 10_004)
            await until(lambda: not links[0].paused)

    run(scenario)


def test_same_bytes_object_is_queued_without_a_copy(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            await until(lambda: links)
            joined = b"x" * 1000
            links[0].send(joined)
            assert links[0].out is joined
            links[0].send(b"y")
            assert links[0].out == joined + b"y"
            links[0].out_buffer().extend(b"z")
            assert await exactly(client, 1002) == joined + b"yz"
            assert links[0].out is None

    run(scenario)


def test_partial_send_then_more(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            await until(lambda: links)
            first, second = os.urandom(9_000_000), os.urandom(1000)
            links[0].send(first)
            await asyncio.sleep(0.05)
            assert links[0].blocked
            links[0].send(second)
            assert await exactly(client, 9_001_000) == first + second
            assert not links[0].blocked

    run(scenario)


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_peer_ends(run: Any, how: str) -> None:
    async def scenario(served: Served) -> None:
        client = connected(served.listen().port)
        client.send(frame(b"last"))
        if how == "reset":
            await until(lambda: links and links[0].frames)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            client.shutdown(socket.SHUT_WR)
            assert await to_end(client) == frame(b"last")
        client.close()
        await until(lambda: links and links[0].lost_reasons)
        assert links[0].lost_reasons == ["reset by peer" if how == "reset" else "closed by peer"]
        assert links[0].frames == [frame(b"last")]
        await until(lambda: served.reactor.open_links == 0 and served.listeners[0].open_links == 0)

    run(scenario)


def test_close_sends_the_rest_even_with_unread_input(run: Any) -> None:
    """A refused client must be able to read why, though it goes on sending."""

    class Refusing(FrameLink):
        def took(self, frame: bytes) -> None:
            self.send(b"why" * 100)
            self.close("refused")
            self.send(b"ignored")

    async def scenario(served: Served) -> None:
        with connected(served.listen(new_link=Refusing).port) as client:
            client.send(frame(b"bad") + bytes(100_000))
            await asyncio.sleep(0.05)
            client.send(bytes(100_000))
            assert await to_end(client) == b"why" * 100
        await until(lambda: served.reactor.open_links == 0, 0.9)
        assert links[0].lost_reasons == []

    run(scenario)


def test_close_does_not_wait_for_ever(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            await until(lambda: links)
            links[0].send(bytes(20_000_000))
            links[0].close("slow")
            await asyncio.sleep(0.3)
            assert served.reactor.open_links == 1
            await until(lambda: served.reactor.open_links == 0, 2)
            del client

    run(scenario)


def test_abort_resets(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            await until(lambda: links)
            links[0].abort("enough")
            with pytest.raises(OSError) as caught:
                await exactly(client, 1)
            assert caught.value.errno == errno.ECONNRESET
            assert links[0].lost_reasons == []
            links[0].send(b"x")
            links[0].close()
            links[0].abort()

    run(scenario)


def test_fault_in_one_link_ends_only_that_link(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(FrameLink):
        def took(self, frame: bytes) -> None:
            if b"bug" in frame:
                raise ZeroDivisionError
            super().took(frame)

    async def scenario(served: Served) -> None:
        port = served.listen(new_link=Faulty).port
        with connected(port) as bad, connected(port) as good:
            bad.send(frame(b"bug"))
            assert await to_end(bad) == b""
            good.send(frame(b"fine"))
            assert await exactly(good, 8) == frame(b"fine")
        assert next(link.lost_reasons for link in links if link.lost_reasons) == ["internal error"]

    run(scenario)
    assert "internal error" in caplog.text


def test_many_links(run: Any) -> None:
    async def scenario(served: Served) -> None:
        port = served.listen().port
        clients = [connected(port) for _ in range(300)]
        await until(lambda: len(links) == 300)
        before = served.turns
        for i, client in enumerate(clients):
            client.send(frame(b"%d" % i))
        for i, client in enumerate(clients):
            assert await exactly(client, len(frame(b"%d" % i))) == frame(b"%d" % i)
        assert served.turns - before <= 300
        for client in clients:
            client.close()
        await until(lambda: served.reactor.open_links == 0)

    run(scenario)


def test_output_from_outside_a_turn_leaves_by_itself(run: Any) -> None:
    async def scenario(served: Served) -> None:
        with connected(served.listen().port) as client:
            await until(lambda: links)
            links[0].send(b"hello")
            assert await exactly(client, 5) == b"hello"
            links[0].send(b"again")
            served.reactor.end_turn()
            assert client.recv(5) == b"again"

    run(scenario)


def test_turn_end_may_ask_for_another(run: Any) -> None:
    async def scenario(served: Served) -> None:
        left = [5]

        def work() -> None:
            if left[0]:
                left[0] -= 1
                served.reactor.turn.ask()

        served.at_turn_end = work
        served.reactor.turn.ask()
        await until(lambda: not left[0], 1)
        turns = served.turns
        await asyncio.sleep(0.02)
        assert served.turns - turns <= 1

    run(scenario)


def test_watched_descriptor(run: Any) -> None:
    async def scenario(served: Served) -> None:
        read, write = os.pipe()
        seen: list[bytes] = []
        served.reactor.watch(read, lambda: seen.append(os.read(read, 10)))
        os.write(write, b"sync")
        await until(lambda: seen == [b"sync"])
        served.reactor.unwatch(read)
        os.write(write, b"more")
        await asyncio.sleep(0.02)
        assert seen == [b"sync"]
        os.close(read)
        os.close(write)

    run(scenario)
