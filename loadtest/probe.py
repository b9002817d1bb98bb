"""One CONNECT from the outside: does the broker answer, and what does it say?"""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from loadtest import frames, links
from loadtest.address import Address
from loadtest.socket_io import AGAIN


class NoAnswer(Exception):
    """No CONNACK; the text says why. `final`: it answers, but waiting will not make it acceptable (its certificate)."""

    final = False


def probe(address: Address, target: tuple[int, Any], options: frames.ConnectOptions, client_id: bytes, context: Any,
          timeout: float) -> frames.Connack:  # fmt: skip
    """The broker's CONNACK within `timeout` seconds. Raises NoAnswer."""
    deadline = time.monotonic() + timeout
    family, where = target
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        try:
            sock.connect(where)
        except OSError as failure:
            raise NoAnswer(str(failure.strerror or failure).lower()) from None
        sock.setblocking(False)
        link = links.link_for(sock, address, context) or links.Plain(sock)
        try:
            _handshake(link, sock, deadline)
            return _connack(link, sock, frames.connect(options, client_id, True), options.version, deadline)
        finally:
            link.close()
    finally:
        sock.close()


def _handshake(link: links.Link, sock: socket.socket, deadline: float) -> None:
    while True:
        try:
            wanted = link.handshake()
        except links.LinkError as failure:
            refusal = NoAnswer(str(failure))
            refusal.final = str(failure).startswith("certificate")
            raise refusal from None
        if wanted == links.DONE:
            return
        _wait(link, sock, deadline, wanted == links.WANT_WRITE)


def _wait(link: links.Link, sock: socket.socket, deadline: float, write: bool = False) -> None:
    left = deadline - time.monotonic()
    fd = getattr(getattr(link, "below", link), "sock", sock)
    ready = select.select([] if write else [fd], [fd] if write else [], [], max(0.0, left))
    if left <= 0 or not (ready[0] or ready[1]):
        raise NoAnswer("it accepts the connection but does not answer")


def _connack(link: links.Link, sock: socket.socket, hello: bytes, version: int, deadline: float) -> frames.Connack:
    link.transmit(bytearray(hello), 0, len(hello))
    got = bytearray()
    buffer = bytearray(4096)
    while True:
        size = link.receive(buffer, 0, len(buffer))
        if size > 0:
            got += buffer[:size]
        elif size != AGAIN:
            raise NoAnswer("it closes the connection without a CONNACK")
        if len(got) >= 2:
            if got[0] != 0x20 or got[1] > 127:
                raise NoAnswer("its answer to CONNECT is not MQTT")
            if len(got) >= 2 + got[1]:
                break
        if size <= 0:
            _wait(link, sock, deadline)
    try:
        answer = frames.connack(bytes(got[2 : 2 + got[1]]), version)
    except (frames.BadFrame, IndexError):
        raise NoAnswer("its CONNACK is malformed") from None
    link.transmit(bytearray(frames.DISCONNECT), 0, 2)
    return answer
