"""Durations, counts and ranges as people write them. Every function raises UsageError with one sentence."""

from __future__ import annotations

import re


class UsageError(Exception):
    """Wrong use of the command: one line for the user, exit status 2."""


_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|µs|ms|s|m|h|d)")


def duration(text: str) -> float:
    """Seconds of `500ms`, `10s`, `5m`, `1m30s`; a bare 0 is allowed."""
    text = text.strip()
    if text == "0":
        return 0.0
    if not text or _DURATION.sub("", text):
        raise UsageError(f"{text!r} is not a duration: write it like 500ms, 10s or 5m")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def count(text: str) -> int:
    """A whole number from 0; 10k and 2M are allowed."""
    match = re.fullmatch(r"(\d+(?:[\d_,]*\d)?)([kM]?)", text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a whole number")
    return int(re.sub("[_,]", "", match[1])) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]]


def positive(text: str) -> int:
    number = count(text)
    if number < 1:
        raise UsageError(f"{text!r} must be at least 1")
    return number


def number(text: str) -> float:
    """A number from 0, with k or M."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)", text.strip().replace(",", "").replace("_", ""))
    if not match:
        raise UsageError(f"{text!r} is not a number")
    return float(match[1]) * {"": 1, "k": 1e3, "M": 1e6}[match[2]]


def size_range(text: str) -> tuple[int, int]:
    """`256` or `100-400`, bytes."""
    smallest, dash, largest = text.partition("-")
    low = count(smallest)
    high = count(largest) if dash else low
    if high < low:
        raise UsageError(f"size {text!r}: the second number must not be the smaller one")
    return low, high


def share(text: str) -> float:
    """A share: `0.2` or `20%`, above 0 and at most 1."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{text!r} is not a share: write it like 0.2 or 20%")
    return value


def written(seconds: float) -> str:
    """A duration for people: 0.5 → 500ms, 90 → 90s."""
    if seconds and seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"
