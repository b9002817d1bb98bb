"""The broker's figures in Prometheus' text format. Imported only where `metrics_listen` is set: prometheus-client is an extra."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from mqtt_proxy.observe.figures import Figures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BrokerMetrics(Collector):
    """Reads the figures when asked; nothing is counted twice for it."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def page(self) -> bytes:
        """The whole page."""
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        """Nothing needs to be collected to be registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        figures = self.figures
        broker = figures.broker
        clients = figures.clients()
        yield _gauge("lmq_up", "1 while acknowledgements can be given", not figures.not_ready())
        yield _gauge("lmq_connections", "Open sockets, those before their CONNECT included", len(broker.connections))
        yield _counter("lmq_connections_accepted", "Sockets accepted", broker.admission.accepted)
        yield _gauge("lmq_clients_connected", "Clients connected", clients["connected"])
        yield _gauge("lmq_sessions_away", "Sessions whose client is away", clients["disconnected"])
        yield _counter("lmq_sessions_expired", "Sessions ended because their expiry interval was over", clients["expired"])
        yield _gauge("lmq_subscriptions", "Subscriptions of all sessions", broker.routes.held)
        yield _gauge("lmq_queues", "Light queues that are registered", len(broker.routes.trie))
        yield _gauge("lmq_retained_messages", "Retained messages", figures.retained()[0])
        yield _gauge("lmq_retained_bytes", "Size of the retained messages", figures.retained()[1])
        yield _counter("lmq_bytes_received", "Bytes from sockets", figures.turn.bytes_received)
        yield _counter("lmq_bytes_sent", "Bytes to sockets", figures.turn.bytes_sent)
        yield _counter("lmq_packets_received", "MQTT packets received", figures.packets_received())
        yield _counter("lmq_messages_received", "Messages taken into the log", broker.inbound.received)
        yield _counter("lmq_messages_sent", "Messages sent to subscribers", broker.deliverer.sent)
        yield _counter("lmq_acknowledgements_sent", "PUBACK, PUBREC and PUBCOMP sent", broker.inbound.answered)
        yield _gauge("lmq_messages_in_flight", "QoS 1 and 2 sent to clients and not acknowledged", figures.census.latest.in_flight)
        yield _labelled(CounterMetricFamily, "lmq_messages_dropped", "Messages left out, by reason", "reason", figures.drops())
        pauses = figures.census.latest.pauses
        yield _labelled(GaugeMetricFamily, "lmq_sessions", "Connected sessions by what they wait for", "state", pauses)
        yield _labelled(CounterMetricFamily, "lmq_limit_hits", "Times that a limit was hit", "limit", broker.limit_log.hits)
        yield from self._store()

    def _store(self) -> Iterator[Metric]:
        store = self.figures.store()
        gauges = {
            "log_bytes": ("lmq_log_bytes", "Size of the log"),
            "segments": ("lmq_log_segments", "Files of the log"),
            "unsynced_bytes": ("lmq_log_unsynced_bytes", "Appended and not durable yet"),
            "index_lag_bytes": ("lmq_index_lag_bytes", "Log bytes that the index does not have yet"),
            "free_bytes": ("lmq_disk_free_bytes", "Free on the disk"),
            "disk_full": ("lmq_disk_full", "1 while publishes are refused for want of room"),
        }
        for name, (metric, text) in gauges.items():
            if name in store:
                yield _gauge(metric, text, store[name])
        if "sync_us" in store:
            times = self.figures.sync_times()
            bounds = [2**n / 1e6 for n in range(len(times))]
            yield _histogram("lmq_sync_seconds", "Time of a sync of the log", times, bounds, store["sync_us"] / 1e6)
        sizes = self.figures.broker.batch_sizes
        bounds = [2**n - 1 for n in range(len(sizes))]
        yield _histogram("lmq_batch_messages", "Messages of one append", sizes, bounds, self.figures.broker.inbound.received)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _labelled(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, text: str, label: str, values: dict[str, int]
) -> Metric:
    family = kind(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, text: str, counts: Sequence[int], bounds: Sequence[float], total: float) -> Metric:
    """`counts[n]` are those up to `bounds[n]` and above the bound before. Buckets beyond the last used one say nothing: left out."""
    cumulative = list(accumulate(counts))
    most = cumulative[-1] if cumulative else 0
    buckets = []
    for bound, count in zip(bounds, cumulative, strict=True):
        buckets.append((f"{bound:g}", count))
        if count == most:
            break
    return HistogramMetricFamily(name, text, buckets=[*buckets, ("+Inf", most)], sum_value=total)
