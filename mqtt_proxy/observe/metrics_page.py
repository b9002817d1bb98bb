"""A page for machines: `/metrics` (Prometheus), `/healthz`, `/readyz`, over plain HTTP on an address of its own.

Each request gets one answer and the connection ends; heads, times and the number of connections are bounded.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from mqtt_proxy.net.listen_url import ListenError
from mqtt_proxy.settings import SettingsError

if TYPE_CHECKING:
    from mqtt_proxy.observe.figures import Figures

log = logging.getLogger("lmq.metrics")

HEAD_BYTES = 8 * 1024
REQUEST_S = 5.0
CONNECTIONS_MAX = 16
TEXT = "text/plain; charset=utf-8"


class MetricsPage:
    """Serves the figures. Raises SettingsError without prometheus-client, ListenError where the address can't be had."""

    def __init__(self, figures: Figures, address: tuple[str, int]) -> None:
        try:
            from mqtt_proxy.observe.metrics import CONTENT_TYPE, BrokerMetrics
        except ImportError as error:
            raise SettingsError(f"metrics_listen is set, but {error.name} is missing: pip install 'lmq-proxy[metrics]'") from None
        self.figures = figures
        self.metrics = BrokerMetrics(figures)
        self.content_type = CONTENT_TYPE
        self.open = 0
        self._server: asyncio.Server | None = None
        host, port = address
        try:
            self._socket = socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=CONNECTIONS_MAX)
        except OSError as error:
            raise ListenError(f"cannot listen on metrics_listen = {host}:{port}: {(error.strerror or str(error)).lower()}") from None
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=HEAD_BYTES)

    def close(self) -> None:
        """Accept no more."""
        self._starting.cancel()
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            if self.open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self.answer(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, slow, or no HTTP client
        finally:
            self.open -= 1
            writer.close()

    def answer(self, head: bytes) -> bytes:
        """The whole response to a request's head."""
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "GET it\n")
        path = words[1].partition(b"?")[0]
        if path == b"/metrics":
            response = _response("200 OK", self.metrics.page(), self.content_type)
        elif path == b"/healthz":
            failed = self.figures.broker.failed
            response = _response("200 OK", "ok\n") if failed is None else _response("503 Service Unavailable", f"{failed}\n")
        elif path == b"/readyz":
            why = self.figures.not_ready()
            response = _response("503 Service Unavailable", f"{why}\n") if why else _response("200 OK", "ready\n")
        else:
            response = _response("404 Not Found", "/metrics, /healthz, /readyz\n")
        return response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if words[0] == b"HEAD" else response


def _response(status: str, body: str | bytes, content_type: str = TEXT) -> bytes:
    if isinstance(body, str):
        body = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
