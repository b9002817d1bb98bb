"""Runs slow password checks in threads beside the loop: bounded, in order of arrival, the loop's own work first."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

NICENESS: Final = 10
"""The threads run at this niceness, so that on one core a storm of logins doesn't take the loop's time."""

Check = Callable[[], bool | None]
"""Right, wrong, or None: not looked at."""
Answer = Callable[[bool | None], None]


class PasswordChecks:
    """A bounded queue of checks and the threads that run them.

    `call_soon` runs a callable on the loop and may be called from any thread (`loop.call_soon_threadsafe`, wrapped so
    that a turn ends after it). Answers come there, one call for all that are ready. Threads start with the first check.
    """

    __slots__ = ("_answers", "_call_soon", "_closed", "_ready", "_running", "_threads", "_threads_max", "_waiting", "_waiting_max")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], threads_max: int, waiting_max: int) -> None:
        self._call_soon = call_soon
        self._threads_max = threads_max
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[Check, Answer]] = deque()
        self._answers: deque[tuple[Answer, bool | None]] = deque()
        self._ready = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._closed = False

    def __len__(self) -> int:
        """Checks that wait or run."""
        return len(self._waiting) + self._running

    def submit(self, check: Check, answer: Answer) -> bool:
        """Run `check` in a thread and give its result to `answer` on the loop; False if the queue is full."""
        with self._ready:
            if self._closed or len(self._waiting) >= self._waiting_max:
                return False
            self._waiting.append((check, answer))
            if len(self) > len(self._threads) < self._threads_max:
                thread = threading.Thread(target=self._run, name="lmq-password-checks", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._ready.notify()
        return True

    def bound(self, threads_max: int, waiting_max: int) -> None:
        """Other limits from now on; threads that are there already stay."""
        with self._ready:
            self._threads_max = threads_max
            self._waiting_max = waiting_max

    def close(self) -> None:
        """Drop what waits and let the threads end."""
        with self._ready:
            self._closed = True
            self._waiting.clear()
            self._ready.notify_all()
        for thread in self._threads:
            thread.join(timeout=1)

    def _run(self) -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except OSError:
            pass  # a niceness is a kindness, not a need
        while True:
            with self._ready:
                while not self._waiting and not self._closed:
                    self._ready.wait()
                if self._closed:
                    return
                check, answer = self._waiting.popleft()
                self._running += 1
            right: bool | None
            try:
                right = check()
            except Exception:
                right = False  # a hash that cannot be computed lets nobody in
            with self._ready:
                self._running -= 1
                first = not self._answers
                self._answers.append((answer, right))
            if first:
                self._wake()

    def _wake(self) -> None:
        try:
            self._call_soon(self._deliver)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    def _deliver(self) -> None:
        with self._ready:
            ready = list(self._answers)
            self._answers.clear()
        for answer, right in ready:
            answer(right)
