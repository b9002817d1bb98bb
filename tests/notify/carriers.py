"""The implementations of Notify that the contract tests run against. A new one adds a factory here and changes no test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from notify.api import Notify
from notify.in_process import InProcessNotify


class Carrier(Protocol):
    """One implementation under test."""

    @property
    def notify(self) -> Notify: ...

    def settle(self) -> None:
        """Return when every hint published so far has arrived, or is lost."""
        ...

    def close(self) -> None: ...


class InProcessCarrier:
    """The loop is a list of calls."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.notify = InProcessNotify(self.calls.append)

    def settle(self) -> None:
        while self.calls:
            self.calls.pop(0)()

    def close(self) -> None:
        pass


CARRIERS: dict[str, Callable[[], Carrier]] = {"in_process": InProcessCarrier}
