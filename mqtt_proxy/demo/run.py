"""The demo itself: start a server, publish a day of readings, kill the server halfway, start it again, account for everything."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from lmq_store.api.model import Message
from mqtt_proxy.demo.account import Subscriber
from mqtt_proxy.demo.client import Client, Clients
from mqtt_proxy.demo.readings import Reading
from mqtt_proxy.demo.server_process import ServerProcess
from mqtt_proxy.packets.types import V5, V311

STALL_S = 20.0
"""No progress for so long: give up and account for what there is."""
QUIET_S = 1.0
"""After the last message, so long is waited for repeats."""
PROGRESS_S = 1.0
WORKERS = 3


class Stalled(Exception):
    """Nothing moved any more."""


class Demo:
    """One run over some readings. `run` returns the exit status."""

    def __init__(self, readings: list[Reading], folder: Path, rate: int = 0) -> None:
        self.readings = readings
        self.rate = rate
        self.fed = 0
        self.feeding_since = 0.0
        self.server = ServerProcess(folder, ("--log-level", "warning"))
        self.acknowledged = bytearray(len(readings))
        self.acked = 0
        self.kill_at = len(readings) // 2
        self.devices: dict[str, Client] = {}
        self.subscribers = subscribers()
        self.offline: list[Client] = []
        self.began = self.next_line = 0.0
        self.stage = ""
        self.kill_pending = False

    def run(self) -> int:
        """All of it; 0 only where nothing was lost, nothing of QoS 2 came twice and the order held."""
        self.began = time.monotonic()
        self.server.start()
        self.say(f"server ready after {self.server.ready_s:.2f} s on {self.server.address[0]}:{self.server.address[1]}")
        self.clients = Clients(self.server.address)
        try:
            self._subscribe()
            self._publish()
            self._collect()
        except Stalled as stalled:
            self.say(f"gave up: {stalled}; the server's last lines:\n{self.server.last_lines()}")
        finally:
            self.clients.close()
            status = self.server.stop()
        if status:
            self.say(f"the server ended with status {status}:\n{self.server.last_lines()}")
        return max(self._account(), min(abs(status), 1))

    # --- the stages -----------------------------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        self.stage = "subscribing"
        for subscriber in self.subscribers:
            subscriber.expect(len(self.readings))
            offline = subscriber.title.startswith("offline")
            for member in range(WORKERS if "$share" in subscriber.topic_filter else 1):
                client = self.clients.add(f"{subscriber.title.replace(' ', '-')}-{member}", V311 if offline else V5)
                client.on_message = subscriber.took
                client.on_online = lambda client, present, wanted=subscriber: (  # type: ignore[misc]
                    None if present else client.subscribe([(wanted.topic_filter, wanted.qos)])
                )
                subscriber.members.append(client)
                client.go_online()
                if offline:
                    self.offline.append(client)
        everyone = [client for subscriber in self.subscribers for client in subscriber.members]
        self._until(lambda: all(client.connects and client.link and client.next_id and client.idle for client in everyone))
        for client in self.offline:
            client.leave()
        self.say(f"{len(everyone)} subscribers; {len(self.offline)} of them went offline")

    def _publish(self) -> None:
        self.stage = "publishing"
        for number, name in enumerate(dict.fromkeys(reading.device for reading in self.readings)):
            device = self.devices[name] = self.clients.add(name, V5 if number % 3 else V311, window=20)
            device.on_acked = self._acked
            device.go_online()
        self.qos_of = {name: 1 + number % 2 for number, name in enumerate(self.devices)}
        pace = f"at {self.rate:,} a second" if self.rate else "as fast as it goes"
        self.say(f"{len(self.devices)} devices publish {len(self.readings):,} readings {pace}, every other device at QoS 2")
        self.feeding_since = time.monotonic()
        self._until(lambda: self.kill_pending)
        before = self.acked
        self.server.kill()
        self.say(f"SIGKILL after {before:,} acknowledged")
        self.server.start()
        self.say(f"server ready again after {self.server.ready_s:.2f} s")
        self._until(lambda: self.fed == len(self.readings) and all(device.idle for device in self.devices.values()))

    def _feed(self) -> None:
        """Hand out the readings that are due, in the order of their time."""
        count = len(self.readings)
        due = min(count, int((time.monotonic() - self.feeding_since) * self.rate)) if self.rate else count
        for reading in self.readings[self.fed : due]:
            self.devices[reading.device].publish(reading.number, Message(reading.topic, reading.payload, self.qos_of[reading.device]))
        self.fed = due

    def _collect(self) -> None:
        self.stage = "collecting"
        for client in self.offline:
            client.go_online()
        self.say("the offline subscribers come back")
        owed = [sum(map(subscriber.matches, self.readings)) for subscriber in self.subscribers]
        self._until(lambda: all(one.distinct >= count for one, count in zip(self.subscribers, owed, strict=True)))
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + QUIET_S:
            self.clients.turn()

    def _acked(self, client: Client, token: int) -> None:
        if not self.acknowledged[token]:
            self.acknowledged[token] = 1
            self.acked += 1
            self.kill_pending = self.acked >= self.kill_at

    # --- progress -------------------------------------------------------------------------------------------------------

    def _until(self, done: Callable[[], bool]) -> None:
        moved_at = time.monotonic()
        before = -1
        while not done():
            if self.fed < len(self.readings) and self.feeding_since:
                self._feed()
            self.clients.turn(0.01)
            now = time.monotonic()
            progress = self.acked + sum(one.distinct for one in self.subscribers) + sum(client.connects for client in self.clients.all)
            if progress != before:
                before, moved_at = progress, now
            elif now - moved_at > STALL_S:
                raise Stalled(f"nothing moved for {STALL_S:g} s while {self.stage}")
            if now >= self.next_line:
                self.next_line = now + PROGRESS_S
                delivered = sum(one.distinct for one in self.subscribers)
                self.say(f"{self.stage}: {self.acked:,} of {len(self.readings):,} acknowledged, {delivered:,} delivered")

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    # --- the end --------------------------------------------------------------------------------------------------------

    def _account(self) -> int:
        lost = redelivered = faults = 0
        print(f"\n{'subscriber':<22}{'filter':<32}{'QoS':>4}{'received':>10}{'redelivered':>13}  verdict")
        for one in self.subscribers:
            missing = one.lost(self.readings, self.acknowledged)
            wrong = one.faults(len(missing))
            print(f"{one.title:<22}{one.topic_filter:<32}{one.qos:>4}{one.distinct:>10,}{one.redelivered:>13,}  {wrong or 'all there'}")
            for what, numbers in (("lost", missing), ("twice", one.twice), ("out of order", one.out_of_order)):
                if numbers:
                    print(f"    {what}: {str(numbers[:8])[1:-1]}{' …' if len(numbers) > 8 else ''}", file=sys.stderr)
            lost += len(missing)
            redelivered += one.redelivered
            faults += bool(wrong)
        print(f"{len(self.readings)} sent, {self.acked} acknowledged, {lost} lost, {redelivered} redelivered", flush=True)
        return 1 if faults or self.acked < len(self.readings) else 0


def subscribers() -> list[Subscriber]:
    """Wildcard, shared and offline subscribers, on both protocol versions."""
    return [
        Subscriber("wildcard", "sensors/#", 2),
        Subscriber("one box", "sensors/iot-device-01/+/reading", 1, matches=lambda reading: reading.box == "iot-device-01"),
        Subscriber("shared workers", "$share/workers/sensors/#", 1, ordered=False),
        Subscriber("offline", "sensors/+/+/reading", 2),
        Subscriber("offline night", "sensors/+/h03/#", 1, matches=lambda reading: reading.hour == 3),
    ]
