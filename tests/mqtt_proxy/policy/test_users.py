from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mqtt_proxy.policy.password_hash import HashError, encode_scram_keys, hash_argon2, hash_scrypt, parse_hash
from mqtt_proxy.policy.scram import make_keys
from mqtt_proxy.policy.users import UsersError, load_users, parse_users

CHEAP = hash_scrypt(b"secret", ln=10)
SCRAM_KEYS = make_keys(b"secret", iterations=4_096)
SCRAM = encode_scram_keys(SCRAM_KEYS)
# made by mosquitto_passwd 2.0.11, so that machines without it check its files too
MOSQUITTO = (
    b"alice:$7$101$0oTTf11CEdPJuuDl$Fn4ID7eACrLpVO+1iZgXyxDas/FwWyyHyz/Rell0zlqJ6n/h1Bo3j+dqlLq+QV9b7qif9yVc7WBnKlo3dDge1g==\n"
    b"bob:$6$4TcAGCP+1b0mi/uW$bf9WlwzuPbaNuODHXi/uU7Em/cAWYpt4jmv8DfnZZhQ0zrCqp6oT8mqw/0cCCQ/VMM8vU4l+2QfWvANjzIWHuw==\n"
)


def test_files_of_mosquitto_are_read() -> None:
    users = parse_users(MOSQUITTO)
    assert users.verify(b"alice", b"secret")
    assert users.verify(b"bob", b"hunter2")
    assert not users.verify(b"alice", b"hunter2")
    assert not users.verify(b"bob", b"")


@pytest.mark.needs("mosquitto_passwd")
@pytest.mark.skipif(not shutil.which("mosquitto_passwd"), reason="mosquitto_passwd is not there")
@pytest.mark.parametrize("kind", ["sha512", "sha512-pbkdf2"])
def test_what_mosquitto_passwd_writes_is_checked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "passwords"
    for option, user, password in ((["-c"], "alice", "p:ä$s"), ([], "bob b", "x")):
        subprocess.run(["mosquitto_passwd", "-H", kind, "-b", *option, str(path), user, password], check=True, capture_output=True)
    users = load_users(path)
    assert users.verify(b"alice", "p:ä$s".encode())
    assert users.verify(b"bob b", b"x")
    assert not users.verify(b"alice", b"x")


@pytest.mark.parametrize("field", [CHEAP, hash_argon2(b"secret"), SCRAM], ids=["scrypt", "argon2id", "scram"])
def test_our_hashes(field: str) -> None:
    parsed = parse_hash(field)
    assert parsed.verify(b"secret")
    assert not parsed.verify(b"Secret")
    assert not parsed.verify(b"")
    assert not parsed.verify(b"\xff\x00")


def test_scrypt_is_the_one_of_rfc_7914() -> None:
    assert hash_scrypt(b"pleaseletmein", ln=14, salt=b"SodiumChloride") == (
        "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofI"
    )


def test_two_hashes_of_a_password_differ() -> None:
    assert hash_scrypt(b"x", ln=10) != hash_scrypt(b"x", ln=10)


def test_a_line_holds_a_hash_and_scram_keys() -> None:
    for line in (f"u:{CHEAP}:{SCRAM}", f"u:{SCRAM}:{CHEAP}", f"u:{SCRAM}"):
        users = parse_users(line.encode())
        assert users.verify(b"u", b"secret")
        assert users.scram_keys(b"u") == SCRAM_KEYS
    assert parse_users(f"u:{CHEAP}".encode()).scram_keys(b"u") is None


def test_unknown_names_are_wrong_and_cost_a_hash_too() -> None:
    users = parse_users(f"u:{CHEAP}".encode())
    assert not users.verify(b"v", b"secret")
    assert users.scram_keys(b"v") is None
    assert b"u" in users
    assert len(users) == 1
    assert not parse_users(b"").verify(b"v", b"")


def test_comments_blank_lines_and_windows_line_ends() -> None:
    assert len(parse_users(f"# users\r\n\r\nu:{CHEAP}\r\n".encode())) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("alice", "not name:hash"),
        (":x", "not name:hash"),
        ("alice:", "not hashed"),
        ("alice:secret", "not hashed .lmq passwd -U"),
        ("alice:$1$a$b", "unknown kind of hash"),
        ("alice:$7$x$AA==$AA==", "malformed"),
        ("alice:$7$101$AA==$AA==", "wrong length"),
        ("alice:$7$99999999$AA==$AA==", "out of bounds"),
        ("alice:$6$rounds$" + "a" * 86, "malformed"),
        ("alice:$6$AA==$AA==", "crypt's"),
        ("alice:$scrypt$ln=30,r=8,p=1$AAAA$AAAA", "cost ln=30,r=8,p=1 is out of bounds"),
        ("alice:$scrypt$ln=14$AAAA$AAAA", "malformed"),
        ("alice:$argon2id$v=19$m=99999999,t=3,p=4$CwjrE5yM0OZT5Fe/5ZxwEg$H2VTieKiUP3tOLK6y/GxP84NrYGO1Mk0Au8PB1Qm2dQ", "out of bounds"),
        ("alice:$argon2id$x", "not an argon2 hash"),
        ("alice:$scram-sha-256$0$AA==$AA==$AA==", "out of bounds"),
        (f"alice:{CHEAP}:{CHEAP}", "two hashes of the same kind"),
    ],
)
def test_a_bad_line_is_told_by_its_place_and_without_its_hash(line: str, says: str) -> None:
    with pytest.raises(UsersError, match=rf"^pw:2: .*{says}") as raised:
        parse_users(f"first:{CHEAP}\n{line}\n".encode(), "pw")
    assert "secret" not in str(raised.value)


def test_a_second_line_of_a_user_is_an_error() -> None:
    with pytest.raises(UsersError, match="pw:2: the user has a line already"):
        parse_users(f"u:{CHEAP}\nu:{CHEAP}".encode(), "pw")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsersError, match="none: No such file"):
        load_users(tmp_path / "none")


def test_kinds_that_are_nothing() -> None:
    with pytest.raises(HashError):
        parse_hash("$")
