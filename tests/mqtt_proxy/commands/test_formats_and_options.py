"""What `lmq pub` and `lmq sub` understand and how they print; no server needed."""

from __future__ import annotations

import json

import pytest

from lmq_store.api.model import Message
from mqtt_proxy.commands import print_formats, pub, sub
from mqtt_proxy.commands.client_options import WrongUse, take_properties
from mqtt_proxy.packets.properties import Properties, encode_properties
from mqtt_proxy.packets.types import V31, V311


def message(payload: bytes = b"21.5", **properties: object) -> Message:
    made = Message(b"plant/1/t", payload, 1)
    made.packet_id = 7
    made.properties = encode_properties(Properties(**properties))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("%t %p", b"plant/1/t 21.5"),
        (r"%q|%r|%l|%m|%%\t%x\n", b"1|0|4|7|%\t32312e35\n"),
        ("%C;%P;%R;%D;%S", b"text/x;a:1 b:2;answer;\x00\xff;3 4"),
        ("ä%d%E%F", "ä0".encode()),
        ("", b""),
    ],
)
def test_formats(form: str, printed: bytes) -> None:
    made = message(
        content_type=b"text/x",
        user_properties=[(b"a", b"1"), (b"b", b"2")],
        response_topic=b"answer",
        correlation_data=b"\0\xff",
        subscription_identifiers=[3, 4],
    )
    assert print_formats.formatted(form)(made) == printed


def test_json_holds_everything_and_any_bytes() -> None:
    made = message(user_properties=[(b"lmq-offset", b"0-1-17")])
    entry = json.loads(print_formats.as_json(made))
    assert (entry["topic"], entry["payload"], entry["qos"], entry["mid"]) == ("plant/1/t", "21.5", 1, 7)
    assert entry["properties"]["user-properties"] == [{"lmq-offset": "0-1-17"}]
    assert json.loads(print_formats.as_json(message(b"\xff\0")))["payload_base64"] == "/wA="


def test_verbose_shows_an_empty_message() -> None:
    assert print_formats.verbose(message(b"")) == b"plant/1/t (null)"


def test_mosquittos_options_and_the_url() -> None:
    options, at, _ = pub.read_options(
        "-L mqtts://me:p%40ss@broker.example:99/a/b -m x -q 2 -r -i me -c -k 5 -V 311 --cafile ca.pem --will-topic w --will-qos 1".split()
    )
    assert (options.topic, options.qos, options.retain) == ("a/b", 2, True)
    assert (at.host, at.port, at.tls, at.username, at.password) == ("broker.example", 99, True, "me", "p@ss")
    assert (at.version, at.clean, at.keep_alive, at.ca) == (V311, False, 5, "ca.pem")
    assert at.will is not None
    assert (at.will.topic, at.will.qos) == (b"w", 1)
    assert pub.read_options("-t a -m x -V mqttv31".split())[1].version == V31


def test_the_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMQ_PASSWORD", "secret")
    assert pub.read_options("-t a -m x -u me".split())[1].password == "secret"


def test_properties_are_taken_out_of_the_words() -> None:
    words = "-t a -D publish user-property k v -m x -D PUBLISH content-type text/plain -D connect receive-maximum 5".split()
    rest, found = take_properties(words, ("publish",))
    assert rest == ["-t", "a", "-m", "x"]
    assert found["publish"].user_properties == [(b"k", b"v")]
    assert found["publish"].content_type == b"text/plain"
    assert found["connect"].receive_maximum == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-m x", "a topic is needed"),
        ("-t a", "a message is needed"),
        ("-t a/# -m x", "wildcard"),
        ("-t a -m x -q 3", "0 to 2"),
        ("-t a -m x -p 0", "1 to 65535"),
        ("-t a -m x -V 6", "-V"),
        ("-t a -m x -c", "-i ID"),
        ("-t a -m x -n", "not allowed with"),
        ("-t a -m x --nonsense", "--nonsense"),
        ("-t a -m x -L http://x", "mqtt://"),
        ("-t a -m x -D publish colour red", "no such property"),
        ("-t a -m x -D subscribe user-property a b", "packets here"),
        ("-t a -m x -D connect receive-maximum 70000", "not a number that this property can hold"),
        ("-t a -m x -D publish user-property a", "-D needs"),
        ("-t a -m x -V 3.1.1 -D publish content-type x", "MQTT 5"),
    ],
)
def test_wrong_use_of_pub_is_one_line(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pub.main(words.split()) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("lmq pub: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"), [("", "-t FILTER"), ("-t a/#/b", "#"), ("-t a --from a/b", "--from"), ("-t a -F %y", "%y"), ("-t a -C 0", "1 to")]
)
def test_wrong_use_of_sub_is_one_line(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sub.main(words.split()) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_from_takes_a_value_that_looks_like_an_option() -> None:
    assert sub.read_options("-t a --from -PT10M".split())[0].start == "-PT10M"


def test_no_server_is_exit_1_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert pub.main("-p 1 -t a -m x".split()) == 1
    assert sub.main("-p 1 -t a".split()) == 1
    assert capsys.readouterr().err.splitlines() == [
        "lmq pub: cannot connect to localhost:1: Connection refused",
        "lmq sub: cannot connect to localhost:1: Connection refused",
    ]


def test_help_shows_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (pub, sub):
        with pytest.raises(SystemExit) as left:
            command.main(["--help"])
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert "examples:" in text
        assert WrongUse.__name__ not in text
