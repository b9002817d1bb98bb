"""Prometheus metrics of a run, served while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.units import UsageError

if TYPE_CHECKING:
    from loadtest.conductor import Conductor

COUNTERS = {
    "sent": "Messages sent for the first time",
    "acked": "Messages acknowledged",
    "rejected": "Messages refused",
    "delivered": "Deliveries of different messages",
    "connect_failed": "Attempts to connect that came to nothing",
}


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT. Raises UsageError; also where prometheus-client is missing."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--prometheus {text!r}: write HOST:PORT")
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise UsageError("--prometheus needs prometheus-client: pip install 'lmq-proxy[load]'") from None
    return host or "127.0.0.1", int(port)


class Metrics:
    """The endpoint and its figures; `update` is called a few times a second."""

    def __init__(self, address: str) -> None:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server

        host, port = parse_address(address)
        registry = CollectorRegistry()
        # Gauges, since the totals are kept by the workers and only shown here.
        self.totals = {name: Gauge(f"lmq_load_{name}_total", text, registry=registry) for name, text in COUNTERS.items()}
        self.connected = Gauge("lmq_load_connected", "Connections that are up", registry=registry)
        self.latency = Gauge("lmq_load_e2e_seconds", "End to end latency of the last whole second", ["quantile"], registry=registry)
        self.phase = Gauge("lmq_load_phase", "1 for the phase that runs", ["phase"], registry=registry)
        self.in_fault = Gauge("lmq_load_fault", "1 while a fault is on or not recovered from", registry=registry)
        try:
            self.server, self.thread = start_http_server(port, addr=host, registry=registry)
        except OSError as failure:
            raise UsageError(f"--prometheus {address}: {failure.strerror or failure}") from None

    def update(self, run: Conductor) -> None:
        for name, gauge in self.totals.items():
            gauge.set(run.total(name))
        self.connected.set(run.total("connected"))
        self.in_fault.set(1 if run.faults.busy() else 0)
        self.phase.clear()
        self.phase.labels(run.phase).set(1)
        rows = run.timeline.rows[-1:]
        for quantile, name in (("0.5", "e2e_p50"), ("0.99", "e2e_p99")):
            if rows and rows[0][name] is not None:
                self.latency.labels(quantile).set(rows[0][name] / 1e6)

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(2)
