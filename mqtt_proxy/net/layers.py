"""What may lie between a socket and MQTT: PROXY header, TLS, WebSocket, each without I/O of its own, stacked bottom to top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mqtt_proxy.net.link import Link


class LayerEnded(Exception):
    """The layer can't go on: the peer said goodbye, or broke its rules.

    `data` came before that and still counts (a DISCONNECT packet, say); `answers` may hold the layer's last word.
    """

    def __init__(self, reason: str, data: bytes = b"") -> None:
        super().__init__(reason)
        self.data = data


class Layer(Protocol):
    """Turns the bytes below into the bytes above and back. `answers` are bytes that it wants to send by itself."""

    answers: bytearray
    finished: bool
    """It has done its part and passes everything through from now on: the stack drops it."""

    def receive(self, link: Link, data: bytes) -> bytes:
        """The bytes for the layer above, as far as they are complete. Raises LayerEnded."""
        ...

    def send(self, data: bytes) -> bytes:
        """The bytes for the layer below; empty while the layer isn't open."""
        ...

    def goodbye(self) -> bytes:
        """What ends the layer properly; empty where it isn't open or has ended."""
        ...


class LayerStack:
    """The layers of one link. `plain` collects MQTT output until the turn's end; `wire` is ready for the socket.

    `handshaking` is true until the TLS handshake is done, whose steps are dear. `ended` says why a layer can't go on:
    the link ends when it has handed over what came before.
    """

    __slots__ = ("ended", "ending", "handshaking", "layers", "plain", "wire")

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.plain = bytearray()
        self.wire = bytearray()
        self.ending = False
        self.ended: str | None = None
        self.handshaking = False

    def receive(self, link: Link, data: bytes) -> bytes:
        """Bytes from the socket, up through all layers."""
        at = 0
        while at < len(self.layers):
            layer = self.layers[at]
            try:
                data = layer.receive(link, data)
            except LayerEnded as end:
                data = end.data
                if self.ended is None:
                    self.ended = str(end)
            if layer.answers:
                self._answers_of(at)
            if layer.finished:
                del self.layers[at]
            else:
                at += 1
            if not data:
                break
        if not self.layers and not self.plain and not self.wire:
            link.layer = None
        return data

    def wrap_into(self, link: Link) -> None:
        """The turn's output, down through all layers (one frame, one TLS write), into the link's `out`."""
        if self.plain:
            self._down(len(self.layers), bytes(self.plain))
            self.plain.clear()
        if self.ending:
            self.ending = False
            for at in range(len(self.layers) - 1, -1, -1):
                last = self.layers[at].goodbye()
                if last:
                    self._down(at, last)
        if not self.wire:
            return
        if isinstance(link.out, bytearray):
            link.out += self.wire
            self.wire.clear()
        else:
            rest = link.out
            link.out = self.wire if rest is None else bytearray(rest)[link.sent :] + self.wire
            link.sent = 0
            self.wire = bytearray()

    def _answers_of(self, at: int) -> None:
        answers = self.layers[at].answers
        if answers:
            self._down(at, bytes(answers))
            answers.clear()

    def _down(self, at: int, data: bytes) -> None:
        """Through the layers below `at`."""
        while at and data:
            at -= 1
            data = self.layers[at].send(data)
        self.wire += data
