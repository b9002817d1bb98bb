"""Rate limiters: token buckets over a monotonic clock in milliseconds that the caller passes in. No I/O, bounded memory."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

NO_PAUSE: Final = 0


class TokenBucket:
    """Lets `rate` units a second pass, up to `burst` at once, and says how long to wait for the rest.

    The units have arrived when they are taken, so `take` always takes: it goes into debt and answers with the
    milliseconds for which the caller should not read on. So nothing is dropped, and the rate holds on average.
    """

    __slots__ = ("_burst", "_rate", "_stamp_ms", "_tokens")

    def __init__(self, rate: int, burst: int, now_ms: int) -> None:
        self._rate = rate
        # Counted in thousandths of a unit: then the refill of one millisecond is `rate`, a whole number.
        self._burst = (burst or rate) * 1_000
        self._tokens = self._burst
        self._stamp_ms = now_ms

    def take(self, units: int, now_ms: int) -> int:
        """Take `units`; the pause in ms until the bucket is out of debt again (0: go on)."""
        tokens = self._tokens
        if now_ms > self._stamp_ms:
            tokens = min(self._burst, tokens + (now_ms - self._stamp_ms) * self._rate)
            self._stamp_ms = now_ms
        tokens -= units * 1_000
        self._tokens = tokens
        return NO_PAUSE if tokens >= 0 else -(tokens // self._rate)


def address_key(address: str) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 /64 network, which one customer has to himself.

    IPv4 addresses mapped into IPv6 count as IPv4. Anything else (`unix`, "") is its own key.
    """
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"


class AddressRate:
    """Admits `rate` connections a second from each address, with bursts of `rate`; remembers `max_addresses` of them.

    One number an address: the time at which its bucket is full again. Addresses seen longest ago are forgotten first,
    so a flood from more addresses than that is the business of `max_connections`.
    """

    __slots__ = ("_full_at", "_max_addresses", "_rate")

    def __init__(self, rate: int, max_addresses: int) -> None:
        self._rate = rate
        self._max_addresses = max_addresses
        self._full_at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def admit(self, address: str, now_ms: int) -> bool:
        """True if one more connection from the address may go on now."""
        if not self._rate:
            return True
        key = address_key(address)
        # In microseconds: the interval between two connections is then a whole number up to a rate of 100,000/s.
        now_us = now_ms * 1_000
        full_at = max(self._full_at.pop(key, 0), now_us)
        interval = 1_000_000 // self._rate
        admitted = full_at + interval - now_us <= max(1_000_000, interval)
        self._full_at[key] = full_at + interval if admitted else full_at
        if len(self._full_at) > self._max_addresses:
            del self._full_at[next(iter(self._full_at))]
        return admitted


class AddressCount:
    """Counts the open connections of each address; an address without one costs nothing."""

    __slots__ = ("_open", "max_each")

    def __init__(self, max_each: int) -> None:
        self.max_each = max_each
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, address: str) -> bool:
        """Count one more if it is within the limit; False (and nothing counted) if not. Each True needs one `leave`."""
        key = address_key(address)
        count = self._open.get(key, 0)
        if self.max_each and count >= self.max_each:
            return False
        self._open[key] = count + 1
        return True

    def leave(self, address: str) -> None:
        key = address_key(address)
        count = self._open.get(key, 0)
        if count > 1:
            self._open[key] = count - 1
        elif count:
            del self._open[key]


class FailureBan:
    """Bans a key for `ban_ms` after `failures_max` failures within `window_ms`; off when `failures_max` is 0.

    Password guessing is held to about `failures_max` tries in each `window + ban` this way, whatever the number of
    connections. Remembers `max_keys`; those that failed longest ago are forgotten first.
    """

    __slots__ = ("_ban_ms", "_failures_max", "_max_keys", "_seen", "_window_ms")

    def __init__(self, failures_max: int, window_ms: int, ban_ms: int, max_keys: int) -> None:
        self._failures_max = failures_max
        self._window_ms = window_ms
        self._ban_ms = ban_ms
        self._max_keys = max_keys
        self._seen: dict[str, tuple[int, int, int]] = {}  # failures, window's start, banned until

    def __len__(self) -> int:
        return len(self._seen)

    def banned_ms(self, key: str, now_ms: int) -> int:
        """How long the key is still banned, in ms; 0 if it is not."""
        seen = self._seen.get(key)
        return max(0, seen[2] - now_ms) if seen is not None else 0

    def failed(self, key: str, now_ms: int) -> bool:
        """Count a failure; True if it is the one that bans the key (worth one log line)."""
        if not self._failures_max:
            return False
        failures, start_ms, banned_until_ms = self._seen.pop(key, (0, now_ms, 0))
        if now_ms - start_ms >= self._window_ms:
            failures, start_ms = 0, now_ms
        failures += 1
        bans = failures >= self._failures_max and banned_until_ms <= now_ms
        if bans:
            failures, start_ms, banned_until_ms = 0, now_ms, now_ms + self._ban_ms
        self._seen[key] = (failures, start_ms, banned_until_ms)
        if len(self._seen) > self._max_keys:
            del self._seen[next(iter(self._seen))]
        return bans
