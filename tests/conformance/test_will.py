"""Will messages (3.1.2.5, 3.1.3.2): when they go out, when not, and what they carry."""

from __future__ import annotations

import time

import pytest

from . import wire
from .conftest import Connect
from .covers import V5, V311, both_versions, covers
from .properties import Properties
from .wire import Will


@covers(v3="3.1.2-8 3.1.2-9 3.1.2-14 3.1.2-16", v5="3.1.2-7 3.1.2-8 3.1.2-9 3.1.2-12 3.1.2-14")
@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_goes_out_when_the_connection_fails(connect: Connect, name: str, version: int, qos: int) -> None:
    watcher = connect(version)
    watcher.subscribe(name, qos=2)
    connect(version, will=Will(name, b"gone", qos)).close()
    message = watcher.message()
    assert (message.payload, message.qos, message.retain) == (b"gone", qos, False)
    late = connect(version)
    late.subscribe(name, qos=2)
    late.silent()


@covers(v3="3.1.2-17 3.1.2-9", v5="3.1.2-15 3.1.2-9")
@both_versions
def test_will_is_retained_where_asked(connect: Connect, name: str, version: int) -> None:
    watcher = connect(version)
    watcher.subscribe(name, qos=1)
    connect(version, will=Will(name, b"gone", 1, retain=True)).close()
    assert not watcher.message().retain
    late = connect(version)
    late.subscribe(name, qos=1)
    assert late.message().retain


@covers(v3="3.1.2-10 3.14.4-3", v5="3.1.2-10 3.14.4-3 3.1.2-8")
@both_versions
def test_disconnect_removes_the_will(connect: Connect, name: str, version: int) -> None:
    watcher = connect(version)
    watcher.subscribe(name)
    connect(version, name, clean=False, expiry=60, will=Will(name)).disconnect()
    watcher.silent()
    connect(version, name, clean=False, expiry=0).close()
    watcher.silent()


@covers(v5="3.1.2-8")
def test_disconnect_with_will_publishes_it(connect: Connect, name: str) -> None:
    watcher = connect()
    watcher.subscribe(name)
    connect(will=Will(name)).disconnect(0x04)
    assert watcher.message().payload == b"gone"


@covers(v3="3.1.2-12")
@both_versions
def test_no_will_none_sent(connect: Connect, name: str, version: int) -> None:
    """Also none that an earlier connection of the same client had left."""
    watcher = connect(version)
    watcher.subscribe(f"{name}/#")
    connect(version, name, will=Will(f"{name}/will")).disconnect()
    connect(version, name).close()
    watcher.silent()


@covers(v3="3.1.2-10 3.1.2-8", v5="3.1.2-10 3.1.2-7")
@both_versions
def test_will_goes_out_once(connect: Connect, name: str, version: int) -> None:
    watcher = connect(version)
    watcher.subscribe(name)
    connect(version, name, clean=False, expiry=60, will=Will(name)).close()
    assert watcher.message().payload == b"gone"
    connect(version, name, clean=False, expiry=60).close()
    watcher.silent()


@covers(v3="3.1.2-8", v5="3.1.2-8")
@both_versions
def test_protocol_error_publishes_the_will(connect: Connect, name: str, version: int) -> None:
    watcher = connect(version)
    watcher.subscribe(name)
    client = connect(version, will=Will(name))
    client.send(b"\x00\x00")
    assert watcher.message().payload == b"gone"
    client.closed()


@covers(v3="3.1.2-8 3.1.4-2", v5="3.1.2-8 3.1.4-3")
@both_versions
@pytest.mark.parametrize("clean", [True, False])
def test_takeover_publishes_the_will(connect: Connect, name: str, version: int, clean: bool) -> None:
    """Without a Will Delay the close of the earlier connection lets it go (5.0, 3.1.3.2.2, non-normative comment)."""
    watcher = connect(version)
    watcher.subscribe(name)
    connect(version, name, clean=False, expiry=60, will=Will(name, b"earlier"))
    connect(version, name, clean=clean, expiry=60, will=Will(name, b"later"))
    assert watcher.message().payload == b"earlier"
    watcher.silent()


@covers(v5="3.1.2-8 3.1.3-9 3.1.2-10")
def test_will_delay(connect: Connect, name: str) -> None:
    """One second for all cases: late as asked, at the session's end where that is earlier, not at all after a return."""
    watcher = connect()
    watcher.subscribe(f"{name}/#")

    def leave(case: str, delay: int, expiry: int) -> None:
        will = Will(f"{name}/{case}", case.encode(), properties=[("will_delay", delay)])
        connect(V5, f"{name}-{case}", clean=False, expiry=expiry, will=will).close()

    leave("delayed", 1, 60)
    leave("session-ends", 60, 1)
    leave("returned", 1, 60)
    leave("much-later", 60, 60)
    started = time.monotonic()
    connect(V5, f"{name}-returned", clean=False, expiry=60)
    watcher.silent(0.5)
    assert {m.payload for m in watcher.take(2)} == {b"delayed", b"session-ends"}
    assert 0.7 < time.monotonic() - started < 4
    watcher.silent(0.3)


@covers(v5="3.1.2-8 3.1.3-9 3.1.4-3")
@pytest.mark.parametrize("clean", [True, False])
def test_takeover_and_will_delay(connect: Connect, name: str, clean: bool) -> None:
    """A clean start ends the earlier session, and its will goes out with it; a resumed session keeps it back (3.1.4, comment)."""
    watcher = connect()
    watcher.subscribe(name)
    connect(V5, name, clean=False, expiry=60, will=Will(name, properties=[("will_delay", 60)]))
    connect(V5, name, clean=clean, expiry=60)
    if clean:
        assert watcher.message().payload == b"gone"
    watcher.silent()


@covers(v5="3.1.2-8")
@pytest.mark.parametrize("expiry", [None, 0])
def test_will_delay_ends_with_a_session_that_ends_at_once(connect: Connect, name: str, expiry: int | None) -> None:
    watcher = connect()
    watcher.subscribe(name)
    connect(expiry=expiry, will=Will(name, properties=[("will_delay", 60)])).close()
    assert watcher.message().payload == b"gone"


@covers(v5="3.1.3-10 3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20")
def test_will_carries_its_properties(connect: Connect, name: str) -> None:
    properties: Properties = [
        ("payload_format", 1),
        ("message_expiry", 100),
        ("content_type", "text/überall".encode()),
        ("response_topic", b"answer/here"),
        ("correlation_data", b"\x00\xff\x00"),
        *(("user_property", (key, value)) for key, value in [(b"b", b"1"), (b"a", b"2"), (b"b", b"1"), (b"", b"")]),
    ]
    watcher = connect()
    watcher.subscribe(name, qos=1)
    connect(will=Will(name, b"text", 1, properties=[("will_delay", 0), *properties])).close()
    message = watcher.message()
    kept = [(key, value) for key, value in message.properties if key != "message_expiry"]
    assert sorted(kept, key=lambda p: p[0]) == sorted((p for p in properties if p[0] != "message_expiry"), key=lambda p: p[0])
    assert 98 <= message.number("message_expiry") <= 100


@covers(v3="3.1.2-8", v5="3.1.2-8")
@both_versions
def test_will_reaches_an_offline_session(connect: Connect, name: str, version: int) -> None:
    connect(version, name, clean=False, expiry=60).subscribe(name + "/will", qos=1)
    connect(version, name, clean=False, expiry=60).drop()
    client = connect(version, will=Will(name + "/will", b"gone", 1))
    client.drop()
    client = connect(version, name, clean=False, expiry=60)
    assert client.message().payload == b"gone"


@covers(v3="3.1.2-8 3.3.2-3", v5="3.1.2-7")
@both_versions
def test_empty_will_message(connect: Connect, name: str, version: int) -> None:
    watcher = connect(version)
    watcher.subscribe(name)
    connect(version, will=Will(name, b"")).close()
    assert watcher.message().payload == b""


@covers(v3="3.1.2-17 3.3.1-10 3.3.1-11", v5="3.1.2-15 3.3.1-6 3.3.1-7")
@both_versions
def test_empty_retained_will_removes_what_was_retained(connect: Connect, name: str, version: int) -> None:
    watcher = connect(version)
    watcher.publish(name, b"old", qos=1, retain=True)
    watcher.subscribe(name)
    assert watcher.message().payload == b"old"
    connect(version, will=Will(name, b"", 1, retain=True)).close()
    assert watcher.message().payload == b""
    later = connect(version)
    later.subscribe(name)
    later.silent()


@covers(v3="3.1.2-10")
def test_will_of_a_refused_connect_stays_unsent(connect: Connect, name: str) -> None:
    watcher = connect(V311)
    watcher.subscribe(name)
    client = connect(V311, name)
    client.send(wire.connect(name, V311, will=Will(name)))
    client.closed()
    watcher.silent()


@covers(v5="3.1.2-8 3.1.3-9")
def test_delayed_will_never_comes_early(connect: Connect, name: str) -> None:
    """Nor by the fraction of a second that an idle server's clock may lie back."""
    reader = connect()
    reader.subscribe(f"{name}/will")
    for pause_s in (0.03, 0.05, 0.07, 0.09):
        client = connect(V5, name, expiry=30, will=Will(f"{name}/will", properties=[("will_delay", 1)]))
        time.sleep(pause_s)
        client.close()
        closed = time.monotonic()
        reader.message()
        assert time.monotonic() - closed >= 0.995
