"""What each subscriber was owed, and what it got: lost, redelivered, twice, out of order.

Definitions. Owed: every acknowledged reading that the filter matches. Lost: owed and never seen. Redelivered: a repeat where
the effective QoS (the lower of publish and subscription) is 1, which the specification allows. Twice: a repeat at QoS 2, which
it forbids. Out of order: a first delivery whose number lies below one that this subscriber already has of the same device;
members of a shared group are exempt, since what one member left goes to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lmq_store.api.model import Message
from mqtt_proxy.demo.client import Client
from mqtt_proxy.demo.readings import Reading, number_of


@dataclass
class Subscriber:
    """One subscription, held by one client, or by the members of a shared group."""

    title: str
    topic_filter: str
    qos: int
    ordered: bool = True
    matches: Callable[[Reading], bool] = lambda reading: True
    members: list[Client] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)
    distinct: int = 0
    redelivered: int = 0
    twice: list[int] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    foreign: int = 0
    last: dict[bytes, int] = field(default_factory=dict)

    def expect(self, readings: int) -> None:
        self.seen = bytearray(readings)

    def took(self, client: Client, message: Message) -> None:
        """A message came in."""
        try:
            number = number_of(message.payload)
            known = self.seen[number]
        except (ValueError, IndexError):
            self.foreign += 1
            return
        if known:
            if message.qos == 2:
                self.twice.append(number)
            else:
                self.redelivered += 1
            return
        self.seen[number] = 1
        self.distinct += 1
        if self.ordered:
            before = self.last.get(message.topic, -1)
            if number < before:
                self.out_of_order.append((before, number))
            else:
                self.last[message.topic] = number

    def lost(self, readings: Iterable[Reading], acknowledged: bytearray) -> list[int]:
        return [one.number for one in readings if acknowledged[one.number] and self.matches(one) and not self.seen[one.number]]

    def faults(self, lost: int) -> str:
        """What went wrong, in words; empty where nothing did."""
        named = [(lost, "lost"), (len(self.twice), "twice at QoS 2"), (len(self.out_of_order), "out of order"), (self.foreign, "foreign")]
        return ", ".join(f"{count:,} {what}" for count, what in named if count)
