"""A link that answers what it gets, and a reactor that runs in the test's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from mqtt_proxy.net.link import Link
from mqtt_proxy.net.listen_url import parse_listen_url
from mqtt_proxy.net.listener import Listener
from mqtt_proxy.net.reactor import Reactor


class FrameLink(Link):
    """Frames of a 4-byte length and that many bytes, each answered as it came."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.frames: list[bytes] = []
        self.presented = 0
        self.lost_reasons: list[str] = []
        self.drains = 0
        self.answering = True
        links.append(self)

    def received(self, buffer: bytearray, start: int, end: int) -> int:
        self.presented += 1
        at = start
        while end - at >= 4:
            size = 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end - at < size or self.paused:
                break
            frame = bytes(buffer[at : at + size])
            at += size
            self.took(frame)
        return at

    def took(self, frame: bytes) -> None:
        self.frames.append(frame)
        if self.answering:
            self.send(frame)

    def needed(self, buffer: bytearray, start: int, end: int) -> int:
        return 4 + int.from_bytes(buffer[start : start + 4], "big") if end - start >= 4 else 0

    def lost(self, reason: str) -> None:
        self.lost_reasons.append(reason)

    def drained(self) -> None:
        self.drains += 1


links: list[Any] = []


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


class Served:
    """A reactor with listeners for one test; `turns` counts ends of turns."""

    def __init__(self) -> None:
        self.turns = 0
        self.at_turn_end: Callable[[], None] = lambda: None
        self.reactor = Reactor(asyncio.get_running_loop(), self._turn_end)
        self.listeners: list[Listener] = []
        links.clear()

    def _turn_end(self) -> None:
        self.turns += 1
        self.at_turn_end()

    def listen(self, url: str = "mqtt://127.0.0.1:0", new_link: Any = FrameLink, **more: Any) -> Listener:
        listener = Listener(self.reactor, parse_listen_url(url, more), new_link)
        listener.open()
        self.listeners.append(listener)
        return listener

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        self.reactor.close()


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.002)
