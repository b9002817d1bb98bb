"""`lmq pub`: publish messages, with mosquitto_pub's options."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator

from lmq_store.api.model import Message
from mqtt_proxy.commands.client import Client, ClientError, Target
from mqtt_proxy.commands.client_options import VERSIONS, WrongUse, complain, number, parser, take_properties, target
from mqtt_proxy.packets.properties import Properties, encode_properties
from mqtt_proxy.packets.types import V5
from mqtt_proxy.topics.rules import name_fault

PROG = "lmq pub"
EPILOG = """examples:
  lmq pub -t demo/hello -m 'hello' -q 1
  sensors | lmq pub -t demo/readings -l -q 1            one message for each line
  lmq pub -L mqtt://user@broker.example/state/door -m open -r

exit code: 0 all taken (at QoS 1 and 2: acknowledged), 1 refused or lost, 2 wrong use, 130 interrupted"""


def main(argv: list[str]) -> int:
    """Publish messages (mosquitto_pub's options)."""
    try:
        options, at, properties = read_options(argv)
    except WrongUse as error:
        complain(PROG, error)
        return 2
    client = None
    try:
        client = Client(at)
        for payload in payloads(options, client):
            client.publish(made(options, payload, properties))
        client.settle()
    except ClientError as error:
        waiting = len(client.unanswered) if client else 0
        complain(PROG, f"{error}{f'; {waiting} messages are not acknowledged' if waiting else ''}")
        return 1
    except OSError as error:
        complain(PROG, f"{error.filename or 'stdin'}: {error.strerror}")
        return 1
    finally:
        if client is not None:
            client.close()
    for text in dict.fromkeys(client.refused):
        complain(PROG, f"not taken by the server: {text} ({client.refused.count(text)} messages)")
    return 1 if client.refused else 0


def read_options(argv: list[str]) -> tuple[argparse.Namespace, Target, Properties]:
    """Options, where to connect, and the properties of each message. Raises WrongUse."""
    rest, properties = take_properties(argv, ("publish",))
    reader = parser(PROG, "Publish messages.", EPILOG)
    what = reader.add_argument_group("what")
    what.add_argument("-t", "--topic", metavar="TOPIC")
    source = what.add_mutually_exclusive_group()
    source.add_argument("-m", "--message", metavar="TEXT", help="the message")
    source.add_argument("-f", "--file", metavar="FILE", help="the message is the file's content")
    source.add_argument("-s", "--stdin-file", action="store_true", help="the message is all of stdin")
    source.add_argument("-l", "--stdin-line", action="store_true", help="each line of stdin is a message")
    source.add_argument("-n", "--null-message", action="store_true", help="an empty message (with -r: forget the retained one)")
    what.add_argument("-q", "--qos", type=number("qos", 0, 2), default=0, metavar="QOS", help="0, 1 or 2 (0)")
    what.add_argument("-r", "--retain", action="store_true", help="the server keeps it for later subscribers")
    what.add_argument("--repeat", type=number("repeat", 1, 10**12), default=1, metavar="N", help="publish it N times")
    what.add_argument(
        "--repeat-delay", type=number("repeat-delay", 0, 10**6, False), default=0.0, metavar="SECONDS", help="between two of them"
    )
    options = reader.parse_args(rest)
    at, url_topic = target(options, properties)
    options.topic = options.topic or url_topic
    if not options.topic:
        raise WrongUse("a topic is needed: -t TOPIC")
    if not (options.message is not None or options.file or options.stdin_file or options.stdin_line or options.null_message):
        raise WrongUse("a message is needed: -m TEXT, -f FILE, -l (lines of stdin), -s (all of stdin) or -n (empty)")
    fault = name_fault(options.topic.encode(errors="surrogateescape"))
    if fault is not None:
        raise WrongUse(f"-t {options.topic!r} {fault}")
    return options, at, properties["publish"]


def payloads(options: argparse.Namespace, client: Client) -> Iterator[bytes]:
    """What is to be published, one after the other; the connection is kept alive in between."""
    if options.stdin_line:
        yield from stdin_lines(client)
        return
    if options.file:
        with open(options.file, "rb") as file:
            payload = file.read()
    elif options.stdin_file:
        payload = sys.stdin.buffer.read()
    else:
        payload = b"" if options.null_message else options.message.encode(errors="surrogateescape")
    for earlier in range(options.repeat):
        deadline = time.monotonic() + (options.repeat_delay if earlier else 0.0)
        while (left_s := deadline - time.monotonic()) > 0:
            client.receive(left_s)
        yield payload


def stdin_lines(client: Client) -> Iterator[bytes]:
    """The lines of stdin as they come, while the server is listened to as well."""
    stdin = sys.stdin.fileno()
    unfinished = b""
    while True:
        ready = select.select([stdin, client], [], [], 1.0)[0]
        if client in ready or not ready:
            client.receive(0.0)
        if stdin in ready:
            data = os.read(stdin, 65_536)
            if not data:
                break
            *lines, unfinished = (unfinished + data).split(b"\n")
            yield from (line.removesuffix(b"\r") for line in lines)
    if unfinished:
        yield unfinished


def made(options: argparse.Namespace, payload: bytes, properties: Properties) -> Message:
    """The message with its topic, QoS and properties."""
    message = Message(options.topic.encode(), payload, options.qos, options.retain)
    if VERSIONS[options.version] == V5:
        expiry, properties.message_expiry = properties.message_expiry, None
        message.properties = encode_properties(properties)
        properties.message_expiry = expiry
        message.expiry_s = -1 if expiry is None else expiry
    return message
