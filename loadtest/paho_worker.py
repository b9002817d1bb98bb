"""`--client paho`: the same plan, the same ledger, but every packet goes through paho-mqtt. An independent check, not a fast one.

Each client is a paho client with its own network thread; its callbacks only put notes into a queue, and this worker's loop
does the accounting, so that the books are kept in one place as with the fast client.
"""

from __future__ import annotations

import dataclasses
import queue
import time
from multiprocessing.connection import Connection
from typing import Any

from loadtest import frames
from loadtest.client import IDLE, UP, Client
from loadtest.pacing import Schedule
from loadtest.publisher import Publisher
from loadtest.roster import Assignment
from loadtest.worker import Worker


class PahoWorker(Worker):
    """A worker whose connections are paho's."""

    def __init__(self, given: Assignment, pipe: Connection) -> None:
        super().__init__(given, pipe)
        self.notes: queue.SimpleQueue[tuple[str, Client, Any, int]] = queue.SimpleQueue()
        self.pahos: dict[Client, Any] = {}
        self.slots: dict[tuple[Client, int], int] = {}
        """(client, paho's message id) → slot of the message in flight."""
        self.early: set[tuple[Client, int]] = set()
        """Acknowledged before publish() had returned its id."""
        self.fences: set[Client] = set()

    # ------------------------------------------------------------- the loop
    def _turn(self) -> None:
        now = time.monotonic_ns()
        wake = min(self.next_chores, self.next_status, *(schedule.next_due for schedule in self.schedules), now + 1_000_000)
        try:
            self._note(*self.notes.get(timeout=max(0.0, (wake - now) / 1e9)))
            while True:
                self._note(*self.notes.get_nowait())
        except queue.Empty:
            pass
        if self.pipe.poll(0):
            self._commands()
        now = time.monotonic_ns()
        self.turn += 1
        self.tally.now = now
        for schedule in self.schedules:
            if schedule.next_due <= now:
                for client in schedule.advance(now, self.turn):
                    self._send(client)
        if self.tally.running:
            for client in self.pumped:
                self._send(client)
        if now >= self.next_chores:
            self._chores(now)
        self.tally.publish_totals()

    def _keep_alive(self, now: int) -> None:
        """Paho does its own."""

    def _note(self, what: str, client: Client, detail: Any, now: int) -> None:
        self.tally.now = now
        getattr(self, f"_on_{what}")(client, detail)

    def _on_connected(self, client: Client, detail: tuple[int, bool]) -> None:
        reason, present = detail
        life, work = self.life, client.work
        if reason:
            life.connect_failed += 1
            life.reasons[f"connect {frames.reason_text(reason, 5)}"] += 1
            return
        group = self.layout.groups[client.group]
        client.state = UP
        life.connected += 1
        life.connects += 1
        life.last_connected = self.tally.now
        self.tally.connect.record(self.tally.now - work.opened)
        if work.had_session and not present:
            life.sessions_lost += 1
        if not present:
            work.subscribed = False
        work.had_session = group.persistent
        if group.subscribe is not None and not work.subscribed:
            work.subscribe_sent = self.tally.now
            wanted = [(topic_filter, group.subscribe.qos) for topic_filter in group.subscribe.filters_of(work.place)]
            self.pahos[client].subscribe(wanted)
            return
        self._arrived(client)

    def _on_subscribed(self, client: Client, codes: list[int]) -> None:
        refused = [code for code in codes if code >= 0x80]
        self.life.subscribe_refused += len(refused)
        client.work.refused = bool(refused)
        client.work.subscribed = True
        self.tally.subscribe.record(self.tally.now - client.work.subscribe_sent)
        self._arrived(client)

    def _arrived(self, client: Client) -> None:
        self.life.progressing.pop(client, None)
        work = client.work
        if self.tally.track_epochs and client.row is not None and work.absent_from is not None and work.subscribed:
            work.absences.append((work.absent_from, self.tally.next_epoch()))
            work.absent_from = None
        self._send(client)

    def _on_lost(self, client: Client, wanted: bool) -> None:
        if client.state != UP:
            return
        client.state = IDLE
        self.life.connected -= 1
        self.life._absent(client)
        if client.work.wanted:
            self.life.disconnects += 1
            self.life.progressing[client] = time.monotonic_ns() + self.life.timeout_ns
            publisher = client.publisher
            if publisher is not None:
                # Paho sends what is unacknowledged again by itself, as soon as it is back.
                for slot in range(publisher.slots):
                    if publisher.slot_state[slot]:
                        self.tally.resent.add((publisher.number, publisher.slot_number[slot]))
        else:
            self.life.leaving.pop(client, None)

    def _on_message(self, client: Client, detail: tuple[bytes, int]) -> None:
        payload, flags = detail
        if client.row is None:
            self.tally.misrouted += 1
        else:
            self.tally.deliver(client.row, client.tops, bytearray(payload), 0, len(payload), flags)

    def _on_published(self, client: Client, detail: tuple[int, int]) -> None:
        message_id, reason = detail
        publisher = client.publisher
        assert publisher is not None
        if publisher.qos == 0:
            return
        slot = self.slots.pop((client, message_id), None)
        if slot is None:
            self.early.add((client, message_id))
            return
        publisher.finish(slot, reason >= 0x80)
        self._send(client)

    # ------------------------------------------------------------- sending
    def _send(self, client: Client) -> None:
        """What may go out now, as `Publisher.pump` decides it."""
        publisher = client.publisher
        if publisher is None or client.state != UP:
            return
        tally = self.tally
        burst = 0
        while publisher.next_number < publisher.limit and burst < 100:
            if publisher.open_loop:
                if publisher.next_number >= publisher.scheduled:
                    return
            elif not tally.running:
                return
            if publisher.qos and publisher.in_flight >= publisher.window:
                return
            if tally.credit and not tally.credit_left():
                return
            burst += 1
            self._send_one(client, publisher)

    def _send_one(self, client: Client, publisher: Publisher) -> None:
        tally = self.tally
        tally.now = now = time.monotonic_ns()
        number = publisher.next_number
        due = publisher.due_of(number) if publisher.open_loop else now
        measured = tally.measured_from <= due < tally.measured_until
        if publisher.open_loop and measured:
            tally.send_late.record(now - due)
        slot = publisher.take_slot(number, due) - 1 if publisher.qos else -1
        tally.board[publisher.number] = number + 1
        publisher.next_number = number + 1
        tally.sent += 1
        tally.measured_sent += 1 if tally.measured_from <= now < tally.measured_until else 0
        tally.last_sent = now
        size = publisher.payload.size_of(publisher.number, number)
        payload = bytearray(size)
        publisher.payload.write(payload, 0, size, publisher.number, number, due)
        info = self.pahos[client].publish(self._topic(publisher, number), payload, publisher.qos, publisher.retain, self._properties())
        if publisher.qos:
            key = (client, info.mid)
            if key in self.early:
                self.early.discard(key)
                publisher.finish(slot, False)
            else:
                self.slots[key] = slot

    def _topic(self, publisher: Publisher, number: int) -> str:
        from loadtest.tally import topic_index

        middle = ""
        if publisher.topics:
            middle = str(number if publisher.topics < 0 else topic_index(publisher.number, number, publisher.topics))
        return (publisher.topic_prefix + middle.encode() + publisher.topic_suffix).decode()

    def _properties(self) -> Any:
        if not self.plan.user_property:
            return None
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        made.UserProperty = list(self.plan.user_property)
        return made

    # ------------------------------------------------------------- commands that touch connections
    def do_connect(self, which: str, rate: float | None) -> None:
        self.ramp_started = time.monotonic_ns()
        for number, group in enumerate(self.layout.groups):
            kind = "late" if group.late else "subscribers" if group.subscribe else "others"
            if kind == which or (which == "offline" and group.offline):
                for client in self.by_group[number]:
                    self._start(client)
                    if rate:
                        time.sleep(self.given.workers / rate)

    def _start(self, client: Client) -> None:
        work = client.work
        work.wanted = True
        work.opened = time.monotonic_ns()
        self.life.progressing[client] = work.opened + self.life.timeout_ns
        client.state = IDLE
        made = self.pahos.get(client) or self._make(client)
        self.pahos[client] = made
        keep_alive = self.plan.keepalive
        try:
            if self.plan.mqtt == "5":
                made.connect(self.given.target[1][0], self.given.target[1][1], keep_alive, **self._connect_properties(client))
            else:
                made.connect(self.given.target[1][0], self.given.target[1][1], keep_alive)
        except OSError as failure:
            self.life.connect_failed += 1
            self.life.reasons[f"connect: {failure.strerror or failure}"] += 1
        made.loop_start()

    def _connect_properties(self, client: Client) -> dict[str, Any]:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        options = self.life.options[client.group]
        made = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if options.session_expiry:
            made.SessionExpiryInterval = options.session_expiry
        if options.receive_maximum:
            made.ReceiveMaximum = options.receive_maximum
        return {"properties": made, "clean_start": options.clean}

    def _make(self, client: Client) -> Any:
        from paho.mqtt import client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        options = self.life.options[client.group]
        version = {"3.1": mqtt.MQTTv31, "3.1.1": mqtt.MQTTv311, "5": mqtt.MQTTv5}[self.plan.mqtt]
        clean = {} if version == mqtt.MQTTv5 else {"clean_session": options.clean}
        transport = "websockets" if self.given.address.websocket else "tcp"
        client_id = f"{self.life.prefix}{client.group}-{client.work.place}"
        made = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **clean)  # type: ignore[arg-type]
        if self.given.address.tls:
            made.tls_set_context(self.life.context)
        if self.given.address.websocket:
            made.ws_set_options(path=self.given.address.path)
        if options.username is not None:
            made.username_pw_set(options.username.decode(), options.password.decode() if options.password is not None else None)
        made.max_inflight_messages_set(65535)
        made.max_queued_messages_set(0)
        made.reconnect_delay_set(1, 2)
        put, clock = self.notes.put, time.monotonic_ns
        made.on_connect = lambda _c, _u, flags, reason, _p: put(("connected", client, (reason.value, flags.session_present), clock()))
        made.on_disconnect = lambda *_: put(("lost", client, None, clock()))
        made.on_subscribe = lambda _c, _u, _m, reasons, _p: put(("subscribed", client, [reason.value for reason in reasons], clock()))
        made.on_publish = lambda _c, _u, mid, reason, _p: put(("published", client, (mid, reason.value), clock()))
        made.on_message = lambda _c, _u, message: put((
            "message", client,
            (message.payload, 0x30 | (8 if message.dup else 0) | message.qos << 1 | (1 if message.retain else 0)), clock(),
        ))  # fmt: skip
        return made

    def _stop(self, client: Client) -> None:
        client.work.wanted = False
        made = self.pahos.get(client)
        if made is not None and client.state == UP:
            self.life.leaving[client] = time.monotonic_ns() + 2_000_000_000
            made.disconnect()

    def do_leave(self) -> None:
        for number, group in enumerate(self.layout.groups):
            if group.offline:
                for client in self.by_group[number]:
                    self._stop(client)

    def do_go(self, t0: int, measured_from: int, measured_until: int, until: int) -> None:
        for number, group in enumerate(self.layout.groups):
            if group.publish and not group.publish.rate:
                self.pumped += self.by_group[number]
        tally = self.tally
        tally.measured_from, tally.measured_until, self.started_at = measured_from, measured_until, t0
        for number, group in enumerate(self.layout.groups):
            publish, clients = group.publish, self.by_group[number]
            if publish and publish.rate and clients:
                schedule = Schedule(clients)
                stop = until
                if publish.count is not None:
                    stop = min(until, t0 + int(publish.count * group.clients * 1e9 / publish.rate))
                schedule.start(t0, stop, publish.rate, group.clients, [client.work.place for client in clients])
                self.schedules.append(schedule)
        time.sleep(max(0.0, (t0 - time.monotonic_ns()) / 1e9))
        tally.running = True

    def do_fence(self) -> None:
        """Paho keeps its PINGREQ to itself: no fence, and processed_per_s stays unmeasured."""

    def do_cut(self, share: float, seed: int) -> None:
        for client in self._chosen(share, seed):
            sock = self.pahos[client].socket()
            if sock is not None:
                sock.shutdown(2)

    def do_cleanup(self) -> None:
        self.tally.running = False
        for clients in self.by_group:
            for client in clients:
                publisher = client.publisher
                if publisher is not None and publisher.retain and client.state == UP and not self.plan.keep:
                    for topic in self._retained_topics(publisher):
                        self.pahos[client].publish(topic.decode(), b"", 0, True)
                self._stop(client)

    def do_forget_sessions(self) -> None:
        """A clean start of each persistent session, through the fast codec: one CONNECT each."""
        from loadtest.probe import NoAnswer, probe

        for number, group in enumerate(self.layout.groups):
            for client in self.by_group[number] if group.persistent else []:
                client_id = f"{self.life.prefix}{client.group}-{client.work.place}".encode()
                try:
                    options = dataclasses.replace(self.life.options[number], session_expiry=0)
                    probe(self.given.address, self.given.target, options, client_id, self.life.context, 2.0)
                except NoAnswer:
                    return

    def do_quit(self) -> None:
        for made in self.pahos.values():
            made.loop_stop()
        self.quit = True


def work_with_paho(given: Assignment, pipe: Connection) -> None:
    """A paho worker process from its start to its end."""
    PahoWorker(given, pipe).run()


