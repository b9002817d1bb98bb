"""Settings: one table for file, environment, options and documents."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from mqtt_proxy.commands import config, serve
from mqtt_proxy.settings import ITEMS, Settings, SettingsError
from mqtt_proxy.settings_sources import HelpAsked, from_arguments, load, reread
from tests.mqtt_proxy.net.certificates import Authority

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"


def read(*argv: str, **environ: str) -> Settings:
    return from_arguments(argv, environ=environ)


def test_defaults_are_safe_and_complete() -> None:
    settings = read()
    assert settings == Settings()
    assert settings.listen == ("mqtt://127.0.0.1:1883",)
    assert settings.flush == "sync"
    assert settings.takes_anonymous


def test_options_beat_environment_beats_file_beats_defaults(tmp_path: Path) -> None:
    file = tmp_path / "lmq.toml"
    file.write_text('flush = "async"\npartitions = 2\nwill_grace_s = 1\n[limits]\nmax_sessions = 5\nmax_packet_bytes = "2 MiB"\n')
    loaded = load(["--config", str(file), "--partitions", "4"], "lmq", {"LMQ_PARTITIONS": "3", "LMQ_WILL_GRACE_S": "2"})
    settings = loaded.settings
    assert (settings.flush, settings.partitions, settings.will_grace_s) == ("async", 4, 2)
    assert (settings.limits.max_sessions, settings.limits.max_packet_bytes) == (5, 2 << 20)
    assert loaded.origins["partitions"] == "option"
    assert loaded.origins["flush"] == "file"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--partitions", "0"], "partitions = 0 is not allowed: 1 to 256 partitions"),
        (["--partitions", "x"], "partitions = 'x' is not allowed: 1 to 256"),
        (["--max-sessions", "-1"], "max_sessions = -1 is not allowed: 1 to 100000000"),
        (["--flush", "never"], "flush = 'never' is not allowed: sync or async"),
        (["--flush"], "--flush needs a value: sync or async"),
        (["--partition", "3"], "no option --partition; did you mean --partitions?"),
        (["serve"], "'serve' is no option"),
        (["--listen", "http://127.0.0.1:1"], "mqtt://"),
        (["--listen", "mqtt://127.0.0.1:99999"], "listen 'mqtt://127.0.0.1:99999'"),
        (["--config", "/nowhere.toml"], "config = '/nowhere.toml' cannot be read: No such file"),
        (["--tls-cert", "a.pem"], "tls_cert and tls_key belong together"),
        (["--segment-bytes", "1KiB"], "segment_bytes = 1024 is not allowed"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(argv: list[str], says: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(*argv)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("partitons = 3", "there is no setting 'partitons'; did you mean partitions?"),
        ("partitions = true", "partitions = True is not allowed"),
        ("listen = [1]", "listen = [1] is not allowed"),
        ("[limits]\nmax_connections = 'a lot'", "max_connections = 'a lot' is not allowed: 1 to 1000000"),
        ("[limits]\nmax_connections = 0", "max_connections = 0 is not allowed: 1 to 1000000"),
        ("= 3", "is no TOML"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "lmq.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        read("--config", str(file))
    assert says in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.5", "example.org", ""])
def test_an_open_address_needs_authentication_or_a_clear_word(host: str) -> None:
    with pytest.raises(SettingsError, match="--allow-anonymous"):
        read("--listen", f"mqtt://{host}:1883")
    assert read("--listen", f"mqtt://{host}:1883", "--allow-anonymous").takes_anonymous
    assert not read("--listen", f"mqtt://{host}:1883", "--users", "u").takes_anonymous


@pytest.mark.parametrize("url", ["mqtt://127.0.0.1:0", "ws://[::1]:0", "mqtt://localhost:1", "unix:///tmp/lmq.sock"])
def test_a_local_address_does_not(url: str) -> None:
    assert read("--listen", url).listen == (url,)


def test_ways_to_write_values() -> None:
    settings = read("--segment-bytes", "64MiB", "--session-events", "--max-keepalive", "30", LMQ_LISTEN="mqtt://[::1]:1, ws://localhost:2")
    assert settings.segment_bytes == 64 << 20
    assert settings.session_events
    assert settings.limits.max_keepalive_s == 30
    assert settings.listen == ("mqtt://[::1]:1", "ws://localhost:2")
    assert not read("--no-session-events", LMQ_SESSION_EVENTS="yes").session_events
    plugins = read(LMQ_AMQTT_PLUGINS='{"a.B": {"x": 1}}').amqtt_plugins
    assert plugins == {"a.B": {"x": 1}}


@pytest.mark.parametrize(("name", "meant"), [("LMQ_BOGUS", ""), ("LMQ_PARTITION", "; did you mean LMQ_PARTITIONS?"), ("LMQ_PORT", "")])
def test_an_unknown_variable_is_one_line_that_names_it(name: str, meant: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(**{name: "1"})
    assert str(error.value).startswith(f"environment: there is no setting {name}{meant}")
    assert "\n" not in str(error.value)


def test_variables_of_other_commands_and_of_containers_are_left_alone() -> None:
    own = ("PASSWORD", "PURE", "BUILD", "ONLY", "TEST_BROKER", "TEST_PATIENCE_S")
    names = (*own, "SERVICE_HOST", "SERVICE_PORT_MQTT", "PORT_1883_TCP_ADDR")
    settings = read(LMQ_PORT="tcp://10.0.0.1:1883", LMQ_BROKER_PORT="tcp://10.0.0.1:1883", **{f"LMQ_{name}": "1" for name in names})
    assert settings == Settings()


def test_settings_are_read_again_from_the_same_places(tmp_path: Path) -> None:
    file = tmp_path / "lmq.toml"
    file.write_text("max_sessions = 5")
    before = read("--config", str(file), "--partitions", "3")
    file.write_text("max_sessions = 6")
    after = reread(before, {})
    assert (before.limits.max_sessions, after.limits.max_sessions, after.partitions) == (5, 6, 3)


def test_from_python_wrong_values_are_refused_too() -> None:
    assert Settings(listen="mqtt://127.0.0.1:0", data=Path("x")).data == "x"  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="partitions"):
        Settings(partitions=1000)


def test_help_names_every_option() -> None:
    with pytest.raises(HelpAsked) as asked:
        read("--help")
    for item in ITEMS.values():
        assert item.option in str(asked.value)


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_every_setting_has_meaning_and_range(item: object) -> None:
    assert item.help  # type: ignore[attr-defined]
    if item.kind in ("int", "float"):  # type: ignore[attr-defined]
        assert item.unit  # type: ignore[attr-defined]
        assert item.low is not None  # type: ignore[attr-defined]
        assert item.high is not None  # type: ignore[attr-defined]


def test_the_document_has_every_setting_as_the_table_has_it() -> None:
    document = DOCUMENT.read_text()
    missing = [line for line in config.markdown() if line.startswith("| `") and line not in document]
    assert not missing, "put the output of `lmq config markdown` into docs/operations.md; it lacks:\n" + "\n".join(missing)
    named = re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE)
    assert set(ITEMS) <= set(named)


def test_what_config_show_prints_is_a_file_that_serve_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lmq.toml"
    file.write_text('[amqtt_plugins."a.B"]\nx = 1\n')
    assert config.main(["show", "--config", str(file), "--flush", "async"]) == 0
    text = capsys.readouterr().out
    tomllib.loads(text)
    file.write_text(text)
    settings = read("--config", str(file))
    assert settings == Settings(flush="async", amqtt_plugins={"a.B": {"x": 1}})


def test_config_check_answers_with_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert config.main(["check"]) == 0
    assert config.main(["check", "--users", str(tmp_path / "none")]) == 2
    assert config.main(["check", "--flush", "maybe"]) == 2
    assert config.main(["chek"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("ok: ")
    assert len(captured.err.splitlines()) == 3


@pytest.mark.parametrize("name", ["users", "acl"])
def test_config_check_and_serve_refuse_a_file_that_is_not_there_alike(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for main, prog in ((lambda argv: config.main(["check", *argv]), "lmq config"), (serve.main, "lmq serve")):
        assert main([f"--{name}", "/none/file"]) == 2
        assert capsys.readouterr().err == f"{prog}: {name} = '/none/file' cannot be read: No such file or directory\n"


def test_config_check_and_serve_refuse_certificates_that_do_not_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cert, key = Authority(tmp_path).issue("server", "localhost")
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    address = "mqtts://127.0.0.1:8883"
    for wrong in (
        ["--listen", f"{address}?cert=/none/cert&key=/none/key"],
        ["--listen", f"{address}?cert={cert}&key={rubbish}"],
        ["--listen", f"{address}?cert={cert}&key={key}&ca={rubbish}"],
        ["--listen", address, "--tls-cert", str(rubbish), "--tls-key", key],
    ):
        for main in (lambda argv: config.main(["check", *argv]), serve.main):
            assert main(wrong) == 2
            said = capsys.readouterr().err
            assert f"listen {address}: " in said and said.count("\n") == 1
    assert config.main(["check", "--listen", f"{address}?cert={cert}&key={key}&ca={tmp_path / 'test-authority.pem'}"]) == 0
