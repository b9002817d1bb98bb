from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqtt_proxy import passwd_cli
from mqtt_proxy.passwd_cli import main
from mqtt_proxy.policy.users import load_users

QUICK = ["--cost", "10", "--scram-iterations", "4096"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    assert main([*QUICK, "-c", "-b", str(path), "alice", "secret"]) == 0
    return path


def test_make_add_change_delete(file: Path) -> None:
    assert main([*QUICK, "-b", str(file), "bob", "pa:ss wörd"]) == 0
    assert main([*QUICK, "-b", str(file), "alice", "new"]) == 0
    users = load_users(file)
    assert len(users) == 2
    assert users.verify(b"bob", "pa:ss wörd".encode())
    assert users.verify(b"alice", b"new")
    assert not users.verify(b"alice", b"secret")
    assert users.scram_keys(b"alice") is not None
    assert main(["-D", str(file), "alice"]) == 0
    assert b"alice" not in load_users(file)


def test_a_new_file_is_the_owner_s_alone_and_a_mode_is_kept(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    main([*QUICK, "-b", str(file), "bob", "x"])
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["users"]


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert main([*QUICK, "-b", str(link), "bob", "x"]) == 0
    assert link.is_symlink()
    assert b"bob" in load_users(file)


def test_argon2_and_no_scram(file: Path) -> None:
    assert main(["-H", "argon2", "--no-scram", "-b", str(file), "bob", "x"]) == 0
    assert file.read_bytes().splitlines()[1].startswith(b"bob:$argon2id$")
    assert load_users(file).verify(b"bob", b"x")
    assert load_users(file).scram_keys(b"bob") is None


def test_the_password_comes_from_standard_input(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\r\nrest")))
    assert main([*QUICK, str(file), "bob"]) == 0
    assert load_users(file).verify(b"bob", b"from a pipe")


def test_at_a_terminal_it_is_asked_twice() -> None:
    answers = iter(["a", "a", "a", "b"])
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return next(answers)

    assert passwd_cli._asked_twice("bob", ask) == b"a"
    assert prompts == ["Password for bob: ", "Again: "]
    with pytest.raises(passwd_cli.PasswdError, match="differ"):
        passwd_cli._asked_twice("bob", ask)


def test_plain_files_are_hashed_and_hashed_lines_stay(file: Path) -> None:
    hashed = file.read_bytes()
    file.write_bytes(b"# ours\n" + hashed + b"bob:pl:ain\n")
    assert main([*QUICK, "-U", str(file)]) == 0
    assert file.read_bytes().startswith(b"# ours\n" + hashed)
    assert load_users(file).verify(b"bob", b"pl:ain")
    after = file.read_bytes()
    assert main([*QUICK, "-U", str(file)]) == 0
    assert file.read_bytes() == after


@pytest.mark.needs("mosquitto_passwd")
@pytest.mark.skipif(not shutil.which("mosquitto_passwd"), reason="mosquitto_passwd is not there")
def test_a_file_of_mosquitto_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(path), "old", "secret"], check=True, capture_output=True)
    assert main([*QUICK, "-b", str(path), "new", "secret"]) == 0
    users = load_users(path)
    assert users.verify(b"old", b"secret")
    assert users.verify(b"new", b"secret")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "FILE"),
        (["FILE"], "USER is missing"),
        (["-b", "FILE", "u"], "-b needs a PASSWORD"),
        (["FILE", "u", "p"], "needs -b"),
        (["-c", "-D", "FILE", "u"], "not allowed with"),
        (["-b", "-D", "FILE", "u"], "exclude each other"),
        (["-U", "FILE", "u"], "a FILE alone"),
        (["-H", "md5", "-b", "FILE", "u", "p"], "invalid choice"),
        (["--cost", "40", "-b", "FILE", "u", "p"], "--cost 40: allowed are 10 to 20"),
        (["--scram-iterations", "1", "-b", "FILE", "u", "p"], "--scram-iterations 1: allowed are 4096"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    before = file.read_bytes()
    assert main([str(file) if argument == "FILE" else argument for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("lmq passwd: ")
    assert error.count("\n") == 1
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-b", "FILE.none", "u", "p"], "does not exist (-c makes it)"),
        (["-D", "FILE", "nobody"], "has no user 'nobody'"),
        (["-D", "FILE.none", "nobody"], "No such file"),
        (["-b", "FILE", "u", ""], "password is empty"),
        (["-b", "FILE", "a:b", "p"], "a user name does not"),
        (["-b", "FILE", "#a", "p"], "a user name does not"),
        (["-b", "FILE", "", "p"], "1 to 65535"),
        (["-b", "FILE", "\u2168", "p"], "normal form is 'IX'"),
        (["-b", "FILE", "u", "\x07"], "SCRAM cannot carry"),
    ],
)
def test_a_failure_is_one_line_and_exit_1(file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    before = file.read_bytes()
    assert main([*QUICK, *(argument.replace("FILE", str(file)) for argument in arguments)]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert file.read_bytes() == before


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "lmq passwd -U FILE" in capsys.readouterr().out
