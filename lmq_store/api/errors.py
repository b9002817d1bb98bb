"""What can go wrong in a store, as callers may act on it. `str(error)` is one readable line."""

from __future__ import annotations


class StoreError(Exception):
    """Base of all: the store could not do what was asked."""


class StoreLocked(StoreError):
    """Another process holds the folder."""


class FormatError(StoreError):
    """The folder was written by a newer format, or is no store."""


class CorruptionError(StoreError):
    """Bytes in the middle of the log are not what was written; the text names the place. `--repair` keeps the rest."""


class DiskFull(StoreError):
    """Free space is below `min_free_bytes`: publishes are refused until there is room again."""


class StorePoisoned(StoreError):
    """A sync failed: nothing may be acknowledged any more and the process has to end."""


class Fenced(StoreError):
    """The session was taken over by a newer epoch; this write did not happen."""
