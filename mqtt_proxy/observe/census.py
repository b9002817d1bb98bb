"""Figures that need a look at each connected session, counted in small steps, so that no turn waits for a large count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqtt_proxy.session.session import ASKING, BEHIND, CAUGHT_UP, LINK_BUSY, OFFLINE, WINDOW_FULL, Session

if TYPE_CHECKING:
    from mqtt_proxy.broker import Broker

STEP_SESSIONS = 2_000
"""Sessions of one tick, about a millisecond."""

PAUSES = {
    CAUGHT_UP: "caught_up",
    BEHIND: "behind",
    WINDOW_FULL: "window_full",
    LINK_BUSY: "link_busy",
    OFFLINE: "offline",
    ASKING: "asking",
}
"""Why a session's delivery is where it is, by name."""


@dataclass(slots=True)
class Counted:
    """One walk's result."""

    persistent: int = 0
    in_flight: int = 0
    pauses: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PAUSES.values(), 0))


class Census:
    """Walks over the connected sessions again and again, while somebody wants to know; `latest` is the last whole walk."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.latest = Counted()
        self._sessions: list[Session] = []
        self._at = 0
        self._walk = Counted()

    def step(self) -> None:
        """The next sessions."""
        walk = self._walk
        for session in self._sessions[self._at : self._at + STEP_SESSIONS]:
            walk.persistent += session.persistent
            walk.in_flight += len(session.in_flight)
            walk.pauses[PAUSES[session.state]] += 1
        self._at += STEP_SESSIONS
        if self._at >= len(self._sessions):
            self.latest = walk
            self._walk = Counted()
            self._sessions = list(self.broker.sessions.values())
            self._at = 0
