"""`lmq sub`: subscribe and print, with mosquitto_sub's options, and `--from` to read history."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field, replace

from lmq_store.api.model import Message
from mqtt_proxy.commands import print_formats
from mqtt_proxy.commands.client import Client, ClientError, ConnectionLost, Target, reason_text
from mqtt_proxy.commands.client_options import WrongUse, complain, join_values, number, parser, take_properties, target
from mqtt_proxy.packets.properties import Properties
from mqtt_proxy.packets.types import V5, Suback, SubscriptionRequest
from mqtt_proxy.topics.rules import filter_fault, matches

PROG = "lmq sub"
TIMED_OUT = 27
"""mosquitto_sub's exit code when `-W` has passed."""
RETRY_S = 1.0
FROM_PROPERTY, OFFSET_PROPERTY = b"lmq-from", b"lmq-offset"
EPILOG = """examples:
  lmq sub -v -t 'demo/#'                                everything under demo, with its topic
  lmq sub -v -t 'demo/#' --from earliest                from the beginning of the log, then live
  lmq sub -t 'plant/+/temperature' --from -PT10M --json the last ten minutes, then live, as JSON lines
  lmq sub -L mqtt://user@broker.example/state/# -C 1    one message, then exit

A lost connection is tried again; with --from nothing is lost or repeated by that.
exit code: 0 done, 1 refused, 2 wrong use, 27 -W has passed, 130 interrupted"""


@dataclass
class Wanted:
    """What to subscribe to, and when to stop."""

    filters: list[str]
    options: argparse.Namespace
    properties: Properties
    show: print_formats.Printer
    deadline: float
    printed: int = 0
    start: str = ""
    """Where history begins; after a lost connection, the position that was printed last."""
    skip: bytes = field(default=b"")
    """The position printed last, which the server sends again then."""

    @property
    def done(self) -> bool:
        """True when the count is reached."""
        return bool(self.options.count) and self.printed >= self.options.count


def main(argv: list[str]) -> int:
    """Subscribe and print, also from history (mosquitto_sub's options and --from)."""
    try:
        wanted, at = read_options(argv)
    except WrongUse as error:
        complain(PROG, error)
        return 2
    connected_before = False
    while True:
        client = None
        try:
            client = Client(at)
            connected_before = True
            return follow(client, wanted)
        except ConnectionLost as error:
            if not connected_before or at.timeout_s <= 0:
                complain(PROG, error)
                return 1
            if not wanted.options.quiet:
                complain(PROG, f"{error}; trying again")
            if time.monotonic() + RETRY_S > wanted.deadline:
                return TIMED_OUT
            time.sleep(RETRY_S)
        except ClientError as error:
            complain(PROG, error)
            return 1
        finally:
            if client is not None:
                client.close()


def read_options(argv: list[str]) -> tuple[Wanted, Target]:
    """What to subscribe to and where. Raises WrongUse."""
    rest, properties = take_properties(join_values(argv, ("--from",)), ("subscribe", "unsubscribe"))
    reader = parser(PROG, "Subscribe and print messages.", EPILOG)
    what = reader.add_argument_group("what")
    what.add_argument("-t", "--topic", action="append", default=[], metavar="FILTER", help="topic filter; repeatable")
    what.add_argument("-T", "--filter-out", action="append", default=[], metavar="FILTER", help="don't print what this matches; repeatable")
    what.add_argument("-U", "--unsubscribe", action="append", default=[], metavar="FILTER", help="unsubscribe first; repeatable")
    what.add_argument("-q", "--qos", type=number("qos", 0, 2), default=0, metavar="QOS", help="0, 1 or 2 (0)")
    what.add_argument("--from", dest="start", metavar="WHEN", help="read history: earliest, latest, offset:P, 2026-01-31T12:00:00Z, -PT10M")
    what.add_argument("-R", "--no-retained", action="store_true", help="don't print retained messages")
    what.add_argument("--retained-only", action="store_true", help="print retained messages, exit at the first other one")
    what.add_argument("--no-local", action="store_true", help="not what this client id publishes (MQTT 5)")
    what.add_argument("--retain-as-published", action="store_true", help="keep the retain flag of live messages (MQTT 5)")
    what.add_argument("-C", "--count", type=number("count", 1, 10**15), default=0, metavar="N", help="exit after N messages")
    what.add_argument("-W", "--timeout", type=number("timeout", 0, 10**9, False), metavar="SECONDS", help="exit after this time, with 27")
    what.add_argument("-E", "--exit-after-subscribe", action="store_true", help="exit once subscribed (with -c: makes the session)")
    show = reader.add_argument_group("printing")
    show.add_argument("-v", "--verbose", action="store_true", help="the topic before the payload")
    show.add_argument("-F", "--format", metavar="FORMAT", help=r"%%t topic, %%p payload, %%x hex, %%q %%r %%l %%m %%I %%U %%j %%P …, \n \t")
    show.add_argument("--json", action="store_true", help="one JSON object for each message")
    show.add_argument("-N", "--no-newline", action="store_true", help="no newline after each message")
    options = reader.parse_args(rest)
    at, url_topic = target(options, properties)
    filters = options.topic + ([url_topic] if url_topic else [])
    if not filters and not options.unsubscribe:
        raise WrongUse("a topic filter is needed: -t FILTER")
    for name, given in (("-t", filters), ("-T", options.filter_out), ("-U", options.unsubscribe)):
        for text in given:
            fault = filter_fault(text.encode(errors="surrogateescape"))
            if fault is not None:
                raise WrongUse(f"{name} {text!r} {fault}")
    if options.start and "/" in options.start:
        raise WrongUse(f"--from {options.start}: earliest, latest, offset:P, a time like 2026-01-31T12:00:00Z, or -PT10M")
    deadline = time.monotonic() + options.timeout if options.timeout is not None else float("inf")
    wanted = Wanted(filters, options, properties["subscribe"], printer(options), deadline, start=options.start or "")
    return wanted, at


def printer(options: argparse.Namespace) -> print_formats.Printer:
    """How a message is printed."""
    if options.json:
        return print_formats.as_json
    if options.format is not None:
        try:
            return print_formats.formatted(options.format)
        except ValueError as error:
            raise WrongUse(f"-F: {error}") from None
    return print_formats.verbose if options.verbose else print_formats.plain


def subscribe(client: Client, wanted: Wanted) -> int:
    """Send the SUBSCRIBE, with history asked for where that is wanted; its packet id."""
    options = wanted.options
    filters = wanted.filters
    properties = replace(wanted.properties, user_properties=list(wanted.properties.user_properties))
    if wanted.start and client.version == V5:
        properties.user_properties.append((FROM_PROPERTY, wanted.start.encode()))
    elif wanted.start:
        filters = [f"$replay/{wanted.start}/{text}" for text in filters]
    handling = 2 if options.no_retained else 0
    requests = [
        SubscriptionRequest(
            text.encode(), options.qos, options.no_local and not text.startswith("$share/"), options.retain_as_published, handling
        )
        for text in filters
    ]
    return client.subscribe(requests, properties)


def follow(client: Client, wanted: Wanted) -> int:
    """Print messages until the count, the time or the connection ends; returns the exit code."""
    if wanted.options.unsubscribe:
        client.unsubscribe(wanted.options.unsubscribe)
    asked = subscribe(client, wanted) if wanted.filters else 0
    while True:
        left_s = wanted.deadline - time.monotonic()
        if left_s <= 0:
            return TIMED_OUT
        messages: list[Message] = []
        for packet in client.receive(min(left_s, 3600.0)):
            if isinstance(packet, Suback) and packet.packet_id == asked:
                if not granted(packet, wanted, client):
                    return 1
                if wanted.options.exit_after_subscribe:
                    return 0
            elif isinstance(packet, Message):
                messages.append(packet)
        if messages and not take(client, wanted, messages):
            return 0


def granted(answer: Suback, wanted: Wanted, client: Client) -> bool:
    """False when no filter was granted; says which ones were not."""
    refused = [(text, reason) for text, reason in zip(wanted.filters, answer.reasons, strict=False) if reason >= 0x80]
    for text, reason in refused:
        why = reason_text(reason, V5) if client.version == V5 else "by the server"
        if answer.properties.reason_string:
            why += f": {answer.properties.reason_string.decode()}"
        complain(PROG, f"{text}: not subscribed: {why}")
    return len(refused) < len(answer.reasons)


def take(client: Client, wanted: Wanted, messages: list[Message]) -> bool:
    """Print the batch, then acknowledge it; False when it is enough."""
    options = wanted.options
    ending = b"" if options.no_newline else b"\n"
    lines: list[bytes] = []
    taken = 0
    more = True
    for message in messages:
        if options.retained_only and not message.retain:
            more = False
            break
        taken += 1
        if not _left_out(message, wanted):
            lines.append(wanted.show(message) + ending)
            wanted.printed += 1
        if wanted.done:
            more = False
            break
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.buffer.flush()
    client.acknowledge(messages[:taken])
    return more


def _left_out(message: Message, wanted: Wanted) -> bool:
    """True for what is not to be printed: filtered out, retained, or printed before the connection was lost."""
    if wanted.start:
        position = print_formats.user_property(message, OFFSET_PROPERTY)
        if position is not None:
            repeated = position == wanted.skip
            wanted.start, wanted.skip = f"offset:{position.decode()}", position
            if repeated:
                return True
    if message.retain and wanted.options.no_retained:
        return True
    return any(matches(text.encode(), message.topic) for text in wanted.options.filter_out)
