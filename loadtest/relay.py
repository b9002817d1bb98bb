"""A TCP relay on loopback between the clients and the broker: passes everything on, later or slower when told to.

It runs in a process of its own, so that it takes nothing from the workers.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from multiprocessing.connection import Connection
from typing import Any

CHUNK = 65536
HELD_MAX = 4 << 20
"""Bytes that one direction of one connection may hold back before it stops reading."""


class Relay:
    """The conductor's handle of the relay process."""

    def __init__(self, target: tuple[int, Any]) -> None:
        self.target = target
        self.process: Any = None

    def start(self) -> tuple[int, Any]:
        """Socket family and address that clients connect to."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        where = listener.getsockname()
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(listener, self.target, theirs), daemon=True)
        self.process.start()
        listener.close()
        theirs.close()
        return int(socket.AF_INET), where

    def delay(self, seconds: float) -> None:
        self.pipe.send(("delay", seconds))

    def throttle(self, bytes_per_s: float) -> None:
        self.pipe.send(("rate", bytes_per_s))

    def clear(self) -> None:
        self.pipe.send(("clear", 0.0))

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class _State:
    def __init__(self) -> None:
        self.delay = 0.0
        self.rate = 0.0
        self.fault = 0
        """Counts the changes: what was held back for a fault goes on as soon as the fault is over."""
        self.free_at = 0.0
        """Throttled: when the line is free for the next bytes."""

    def told(self, pipe: Connection) -> None:
        try:
            what, value = pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().stop()
            return
        self.fault += 1
        self.free_at = 0.0
        if what == "clear":
            self.delay = self.rate = 0.0
        else:
            setattr(self, what, value)

    def due(self, size: int) -> float:
        """When these bytes may go on."""
        now = time.monotonic()
        if self.rate:
            self.free_at = max(self.free_at, now) + size / self.rate
            return self.free_at
        return now + self.delay


def _serve(listener: socket.socket, target: tuple[int, Any], pipe: Connection) -> None:
    import signal

    from loadtest.server_process import _die_with_parent

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent()
    state = _State()

    async def main() -> None:
        asyncio.get_running_loop().add_reader(pipe.fileno(), state.told, pipe)
        server = await asyncio.start_server(lambda r, w: _link(r, w, target, state), sock=listener, limit=HELD_MAX)
        await server.serve_forever()

    try:
        asyncio.run(main())
    except RuntimeError:
        return  # the loop was stopped: the conductor is gone


async def _link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[int, Any], state: _State) -> None:
    try:
        there, onward = await asyncio.open_connection(target[1][0], target[1][1], limit=HELD_MAX)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(_pass_on(reader, onward, state), _pass_on(there, writer, state))


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, state: _State) -> None:
    """One direction: what was read first goes out first, each piece not before its time."""
    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=HELD_MAX // CHUNK)

    async def take() -> None:
        while True:
            try:
                piece = await source.read(CHUNK)
            except OSError:
                piece = b""
            await held.put((state.due(len(piece)), piece))
            if not piece:
                return

    taking = asyncio.create_task(take())
    try:
        while True:
            due, piece = await held.get()
            fault = state.fault
            while (wait := due - time.monotonic()) > 0 and state.fault == fault:
                await asyncio.sleep(min(wait, 0.01))
            if not piece:
                break
            sink.write(piece)
            await sink.drain()
    except OSError:
        pass
    finally:
        taking.cancel()
        sink.close()
