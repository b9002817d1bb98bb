"""The options that `lmq pub` and `lmq sub` share: mosquitto_pub's and mosquitto_sub's letters and names."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from mqtt_proxy.commands.client import Target
from mqtt_proxy.packets.properties import Properties, encode_properties
from mqtt_proxy.packets.types import V5, V31, V311, Will

VERSIONS = {
    "3.1": V31, "31": V31, "mqttv31": V31, "3.1.1": V311, "311": V311, "mqttv311": V311, "5": V5, "5.0": V5, "mqttv5": V5,
}  # fmt: skip
NEVER_EXPIRES = 0xFFFFFFFF


class WrongUse(Exception):
    """One line that names the option and what is allowed; exit 2."""


class OneLineParser(argparse.ArgumentParser):
    """Argparse without its usage text before each error."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of leaving the process."""
        raise WrongUse(message)


def parser(prog: str, description: str, epilog: str) -> OneLineParser:
    """A parser with everything about the connection."""
    made = OneLineParser(
        prog=prog, usage=f"{prog} [options]", description=description, epilog=epilog, add_help=False, allow_abbrev=False,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=34, width=120),
    )  # fmt: skip
    where = made.add_argument_group("connection")
    where.add_argument("-h", "--host", metavar="HOST", help="the server (localhost)")
    where.add_argument("-p", "--port", type=number("port", 1, 65_535), help="its port (1883, with TLS 8883)", metavar="N")
    where.add_argument("-L", "--url", metavar="URL", help="instead: mqtt(s)://[user[:password]@]host[:port][/topic]")
    where.add_argument("--unix", metavar="PATH", default="", help="a Unix socket instead")
    where.add_argument("-A", "--bind", metavar="ADDR", default="", help="the address to connect from")
    where.add_argument("-V", "--protocol-version", dest="version", choices=VERSIONS, default="5", metavar="V", help="3.1, 3.1.1 or 5 (5)")
    where.add_argument("-i", "--id", metavar="ID", default="", help="client identifier (one that the server makes)")
    where.add_argument("-I", "--id-prefix", metavar="TEXT", help="client identifier: this and the process id")
    where.add_argument("-u", "--username", metavar="NAME")
    where.add_argument("-P", "--pw", "--password", dest="password", metavar="TEXT", help="also from the environment: LMQ_PASSWORD")
    where.add_argument("-k", "--keepalive", type=number("keepalive", 0, 65_535), default=60, metavar="SECONDS", help="(60; 0 is off)")
    where.add_argument("-c", "--disable-clean-session", dest="keep", action="store_true", help="keep the session when leaving; needs -i")
    where.add_argument("-x", "--session-expiry-interval", dest="expiry", type=number("session-expiry-interval", 0, NEVER_EXPIRES),
                       metavar="SECONDS", help="how long it is kept (with -c: for ever)")  # fmt: skip
    tls = made.add_argument_group("TLS")
    tls.add_argument("--cafile", metavar="FILE", default="", help="authorities to trust; turns TLS on")
    tls.add_argument("--cert", metavar="FILE", default="", help="our certificate")
    tls.add_argument("--key", metavar="FILE", default="", help="its private key")
    tls.add_argument("--tls", "--tls-use-os-certs", dest="tls", action="store_true", help="TLS with the system's authorities")
    tls.add_argument("--insecure", action="store_true", help="don't check the server's name and certificate")
    will = made.add_argument_group("will")
    will.add_argument("--will-topic", metavar="TOPIC")
    will.add_argument("--will-payload", metavar="TEXT", default="")
    will.add_argument("--will-qos", type=number("will-qos", 0, 2), default=0, metavar="QOS")
    will.add_argument("--will-retain", action="store_true")
    other = made.add_argument_group("other")
    other.add_argument("-D", "--property", metavar="PACKET NAME VALUE", help="an MQTT 5 property: -D publish user-property KEY VALUE")
    other.add_argument("-d", "--debug", action="store_true", help="show each packet on stderr")
    other.add_argument("--quiet", action="store_true", help="no warnings")
    other.add_argument("--help", action="help", help="show this text")
    return made


def number(name: str, low: float, high: float, whole: bool = True) -> Callable[[str], Any]:
    """A reader of numbers within a range; its error says the range."""

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {low:g} to {high:g}")
        return value

    read.__name__ = name
    return read


def join_values(argv: list[str], names: tuple[str, ...]) -> list[str]:
    """`--from -PT10M` as `--from=-PT10M`, which argparse would take for two options."""
    words = iter(argv)
    return [f"{word}={value}" if word in names and (value := next(words, None)) is not None else word for word in words]


def take_properties(argv: list[str], packets: tuple[str, ...]) -> tuple[list[str], dict[str, Properties]]:
    """The words without the `-D PACKET NAME VALUE [VALUE]`, and the properties of each packet."""
    rest: list[str] = []
    found = {packet: Properties() for packet in (*packets, "connect", "will")}
    words = list(argv)
    while words:
        word = words.pop(0)
        if word not in ("-D", "--property"):
            rest.append(word)
            continue
        wanted = 4 if words[1:2] == ["user-property"] else 3
        if len(words) < wanted:
            raise WrongUse("-D needs PACKET NAME VALUE (user-property: KEY VALUE)")
        packet, name, *values = (words.pop(0) for _ in range(wanted))
        if packet.lower() not in found:
            raise WrongUse(f"-D {packet}: the packets here are {', '.join(found)}")
        _set_property(found[packet.lower()], packet.lower(), name.replace("-", "_"), values)
    return rest, found


_NAMES = {"payload_format_indicator": "payload_format", "message_expiry_interval": "message_expiry", "will_delay_interval": "will_delay",
          "session_expiry_interval": "session_expiry", "subscription_identifier": "subscription_identifiers"}  # fmt: skip


def _set_property(properties: Properties, packet: str, name: str, values: list[str]) -> None:
    from mqtt_proxy.packets.properties import TABLE, WILL
    from mqtt_proxy.packets.wire import binary

    name = _NAMES.get(name, name)
    kind = {"connect": 1, "publish": 3, "subscribe": 8, "unsubscribe": 10, "will": WILL}[packet]
    if name == "user_property":
        properties.user_properties.append((values[0].encode(), values[1].encode()))
        return
    row = next((row for row in TABLE.values() if row.name == name and kind in row.packets), None)
    if row is None or name in ("topic_alias", "user_properties"):
        allowed = sorted(row.name.replace("_", "-") for row in TABLE.values() if kind in row.packets and row.name != "topic_alias")
        raise WrongUse(f"-D {packet} {name.replace('_', '-')}: no such property; there are {', '.join(allowed)}")
    value: Any = values[0].encode()
    if row.kind.write is not binary:
        try:
            value = int(values[0])
            row.kind.write(value)
        except (ValueError, OverflowError):
            value = -1
        if not row.lowest <= value <= row.highest:
            raise WrongUse(f"-D {packet} {name.replace('_', '-')} {values[0]}: not a number that this property can hold")
    present = getattr(properties, name)
    setattr(properties, name, [*present, value] if isinstance(present, list) else value)


def target(options: argparse.Namespace, properties: dict[str, Properties]) -> tuple[Target, str]:
    """Where to connect, and the topic that the URL names (or nothing). Raises WrongUse."""
    host, port, user, password, topic = options.host, options.port, options.username, options.password, ""
    tls = bool(options.tls or options.cafile or options.cert or options.insecure)
    if options.url:
        host, url_port, url_user, url_password, topic, url_tls = _from_url(options.url)
        port, user, password, tls = port or url_port, user or url_user, password or url_password, tls or url_tls
    if password is None:
        password = os.environ.get("LMQ_PASSWORD")
    version = VERSIONS[options.version]
    client_id = f"{options.id_prefix}{os.getpid()}" if options.id_prefix else options.id
    if options.keep and not client_id:
        raise WrongUse("-c keeps a session: say which with -i ID")
    if version == V31 and not client_id:
        client_id = f"lmq-{os.getpid()}"  # MQTT 3.1 has no client without an identifier
    if version != V5 and any(encode_properties(each) for each in properties.values()):
        raise WrongUse("-D: properties are MQTT 5's, not of -V " + options.version)
    expiry = options.expiry if options.expiry is not None else NEVER_EXPIRES if options.keep else 0
    return (
        Target(
            host=host or "localhost",
            port=int(port or (8883 if tls else 1883)),
            unix=options.unix,
            tls=tls,
            ca=options.cafile,
            cert=options.cert,
            key=options.key,
            insecure=options.insecure,
            bind=options.bind,
            version=version,
            client_id=client_id,
            username=user,
            password=password,
            keep_alive=int(options.keepalive),
            clean=not options.keep,
            session_expiry_s=int(expiry),
            will=_will(options, properties["will"]),
            connect_properties=properties["connect"],
            debug=options.debug,
        ),
        topic,
    )  # fmt: skip


def _from_url(url: str) -> tuple[str, int | None, str | None, str | None, str, bool]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise WrongUse(f"--url {url}: {error}") from None
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
        raise WrongUse("--url: mqtt://[user[:password]@]host[:port][/topic] is allowed, or mqtts://")
    user, password = (None if text is None else unquote(text) for text in (parts.username, parts.password))
    return parts.hostname, port, user, password, unquote(parts.path.removeprefix("/")), parts.scheme == "mqtts"


def _will(options: argparse.Namespace, properties: Properties) -> Will | None:
    if options.will_topic is None:
        return None
    delay, expiry = properties.will_delay or 0, properties.message_expiry
    properties.will_delay = properties.message_expiry = None
    block = encode_properties(properties)
    return Will(
        options.will_topic.encode(), options.will_payload.encode(), options.will_qos, options.will_retain, block, delay,
        -1 if expiry is None else expiry,
    )  # fmt: skip


def complain(prog: str, text: object) -> None:
    """One line on stderr."""
    print(f"{prog}: {text}", file=sys.stderr)
