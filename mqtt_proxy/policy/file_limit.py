"""Raises the process's own soft limit on open files, so that `max_connections` fits without a ulimit by hand."""

from __future__ import annotations

import resource
from typing import Final

OTHER_FILES: Final = 1_024
"""Descriptors that are no connection: segments, the index's tables, listeners, logs."""


def raise_file_limit(max_connections: int) -> int:
    """Raise the soft RLIMIT_NOFILE as far as the connections need and the hard limit lets; the limit now in force.

    A process that may raise its hard limit (root) does so. Never lowers anything; never raises an exception.
    """
    wanted = max_connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    attempts = [(wanted, hard)] if hard == resource.RLIM_INFINITY or hard >= wanted else [(wanted, wanted), (hard, hard)]
    for attempt in attempts:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, attempt)
        except (ValueError, OSError):
            continue
        return attempt[0]
    return soft


def connections_that_fit(file_limit: int) -> int:
    """The connections that a limit on open files leaves room for."""
    return max(1, file_limit - OTHER_FILES)
