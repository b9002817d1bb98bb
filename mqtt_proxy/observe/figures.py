"""Where each figure of the running broker is found: the one place that `$SYS` and the metrics page read from."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqtt_proxy.observe.census import Census

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker
    from mqtt_proxy.net.turn import Turn

PAGE_BYTES = resource.getpagesize()


class Figures:
    """Counters since the start and present states, by name. Cheap: nothing here is proportional to clients or messages."""

    def __init__(self, broker: Broker, turn: Turn) -> None:
        self.broker = broker
        self.turn = turn
        self.started_s = time.monotonic()
        self.census = Census(broker)
        self.most_clients = 0

    def step(self) -> None:
        """Every tick."""
        self.census.step()
        self.most_clients = max(self.most_clients, len(self.broker.sessions))

    def uptime_s(self) -> int:
        return int(time.monotonic() - self.started_s)

    def clients(self) -> dict[str, int]:
        """connected, stored (disconnected ones whose session lives), total, expired since the start, and the most at once."""
        connected = len(self.broker.sessions)
        self.most_clients = max(self.most_clients, connected)
        sessions = self.broker.stored_sessions
        away = max(0, sessions.stored - self.census.latest.persistent)
        return {
            "connected": connected,
            "disconnected": away,
            "total": connected + away,
            "expired": sessions.expired,
            "maximum": self.most_clients,
        }

    def packets_received(self) -> int:
        return int(self.broker.inbound.packets)

    def packets_sent(self) -> int:
        """PUBLISH and the acknowledgements of PUBLISH and PUBREL."""
        return int(self.broker.deliverer.sent + self.broker.inbound.answered)

    def drops(self) -> dict[str, int]:
        """Messages left out, by reason."""
        broker = self.broker
        groups = broker.shared.groups
        return {
            "expired": broker.deliverer.dropped_expired,
            "too_large": broker.deliverer.dropped_too_large,
            "qos0_behind": broker.catch_up.skipped_qos0,
            "qos0_refused": broker.publishing.refused_qos0,
            "retention": broker.left_behind_messages,
            "dead_letter": groups.dead_lettered if groups is not None else 0,
        }

    def retained(self) -> tuple[int, int]:
        """(messages, bytes)."""
        quota = self.broker.retained_quota
        return quota.count, quota.bytes

    def store(self) -> dict[str, int]:
        """What the embedded store tells of itself; an engine without these is left out."""
        store: Any = self.broker.store
        sources: dict[str, Callable[[], int]] = {
            "log_bytes": lambda: store.log.end - store.log.start,
            "segments": lambda: len(store.log.segments),
            "unsynced_bytes": lambda: max(0, store.end() - store.durable_end()),
            "index_lag_bytes": lambda: max(0, store.durable_end() - store.queues.flushed_position),
            "free_bytes": lambda: store.files.free_bytes(store.directory),
            "syncs": lambda: store.commits.syncs,
            "sync_us": lambda: store.commits.sync_us_total,
            "disk_full": lambda: int(store.disk_full),
        }
        found = {}
        for name, source in sources.items():
            try:
                found[name] = source()
            except (AttributeError, OSError):
                continue
        return found

    def sync_times(self) -> list[int]:
        """Counts of syncs by power of two of microseconds (GroupCommit.sync_us)."""
        return list(getattr(getattr(self.broker.store, "commits", None), "sync_us", []))

    @staticmethod
    def memory_bytes() -> tuple[int, int]:
        """(resident now, most ever)."""
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        try:
            with open("/proc/self/statm", "rb") as file:
                return int(file.read().split()[1]) * PAGE_BYTES, most
        except (OSError, IndexError, ValueError):
            return most, most

    def not_ready(self) -> str:
        """Why nothing should be sent here; "" where all is well."""
        broker = self.broker
        if broker.failed is not None:
            return "the store failed"
        if broker.stopping:
            return "stopping"
        return "no room on the disk" if broker.store.disk_full else ""
