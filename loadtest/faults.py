"""What goes wrong, and when: `KIND@T[,for=D][,every=D][,share=F][,restart=D]`, T from the first due send.

kill         SIGKILL to the whole process group, a new start after `restart` (default 1s)
stop         SIGSTOP, SIGCONT after `for` (2s)
cut          a share of the connections is dropped by us (default 20%)
slow-reader  a share of the subscribers stops reading for `for` (2s)
half-open    a share of the clients vanish without a word, and come back over new connections
delay        everything takes `by` (default 100ms) longer each way, for `for` (2s): through a relay on loopback
throttle     all connections together get `rate` bytes a second each way (default 100k), for `for` (2s)
"""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.units import UsageError, duration, number, share

KINDS = ("kill", "stop", "cut", "slow-reader", "half-open", "delay", "throttle")
LASTING = ("stop", "slow-reader", "half-open", "delay", "throttle")
SHARING = ("cut", "slow-reader", "half-open")
RELAYED = ("delay", "throttle")


@dataclass(frozen=True, slots=True)
class Fault:
    """One specification; times in seconds."""

    kind: str
    at: float
    lasts: float = 2.0
    every: float | None = None
    share: float = 0.2
    restart: float = 1.0
    by: float = 0.1
    rate: float = 100_000.0


def parse(text: str) -> Fault:
    """Raises UsageError with what is allowed."""
    head, *rest = text.split(",")
    kind, at_sign, when = head.partition("@")
    if kind not in KINDS or not at_sign:
        raise UsageError(f"--fault {text!r}: write KIND@T, KIND one of {', '.join(KINDS)}")
    values: dict[str, float] = {}
    for part in rest:
        name, equals, value = part.partition("=")
        allowed = _allowed(kind)
        if name not in allowed or not equals:
            raise UsageError(f"--fault {text!r}: {name!r} does not belong to {kind}; it takes {', '.join(allowed)}")
        read = {"share": share, "rate": number}.get(name, duration)
        values["lasts" if name == "for" else name] = read(value)
    if values.get("every") == 0 or values.get("rate") == 0:
        raise UsageError(f"--fault {text!r}: every and rate must be above 0")
    return Fault(kind, duration(when), **values)


def _allowed(kind: str) -> list[str]:
    names = ["every"]
    if kind in LASTING:
        names.append("for")
    if kind in SHARING:
        names.append("share")
    return names + {"kill": ["restart"], "delay": ["by"], "throttle": ["rate"]}.get(kind, [])


@dataclass(slots=True)
class Occurrence:
    """One firing of a fault, from due to recovered; times in seconds from the first due send."""

    fault: Fault
    at: float
    seed: int
    state: str = "due"
    """due → on → answering (the broker is awaited) → returning (the clients are) → over."""
    fired: float | None = None
    ended: float | None = None
    answered: float | None = None
    recovered: float | None = None
    connects_before: int = 0
    detail: str = ""

    def row(self) -> dict[str, object]:
        """As the report shows it; None: it did not come to that."""
        down = None
        if self.answered is not None and self.fired is not None:
            down = round(self.answered - self.fired, 3)
        recovered = round(self.recovered - self.fired, 3) if self.recovered is not None and self.fired is not None else None
        at = round(self.fired, 3) if self.fired is not None else None
        return {"kind": self.fault.kind, "at_s": at, "down_s": down, "recovered_s": recovered, "detail": self.detail}


def occurrences(faults: list[Fault], until: float | None, seed: int) -> list[Occurrence]:
    """All firings before `until` (None: each once, and again as long as messages are sent)."""
    made = []
    for place, fault in enumerate(faults):
        at, turn = fault.at, 0
        while turn == 0 or (fault.every is not None and until is not None and at < until):
            made.append(Occurrence(fault, at, seed * 1_000_003 + place * 1009 + turn))
            turn += 1
            at += fault.every or 0.0
    return sorted(made, key=lambda one: one.at)
