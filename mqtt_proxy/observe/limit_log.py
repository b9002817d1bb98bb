"""Says which limit was hit, by the name that it has in the settings: a log line (storms are counted) and a counter."""

from __future__ import annotations

import logging

_LOGGER = "lmq.limits."


class LimitLog:
    """Counts hits by the limit's name. Each limit has a logger of its own, so that a storm at one leaves the others' lines."""

    __slots__ = ("hits",)

    def __init__(self) -> None:
        self.hits: dict[str, int] = {}

    def hit(self, limit: str, who: object, what: str) -> None:
        """One more hit of `limit`; `who` is a peer, a client id (bytes) or a user."""
        self.hits[limit] = self.hits.get(limit, 0) + 1
        if isinstance(who, bytes):
            who = who[:64].decode("utf-8", "backslashreplace")
        logging.getLogger(_LOGGER + limit).warning("%s: %s", who, what)
