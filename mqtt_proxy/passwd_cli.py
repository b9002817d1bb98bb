"""`lmq passwd`: makes and edits the users file, with mosquitto_passwd's options. Reads mosquitto's files, writes our hashes."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from mqtt_proxy.policy.password_hash import (
    ITERATIONS_MAX,
    SCRYPT_LN,
    SCRYPT_LN_RANGE,
    HashError,
    encode_scram_keys,
    hash_argon2,
    hash_scrypt,
)
from mqtt_proxy.policy.scram import ITERATIONS, ScramError, make_keys, saslprep
from mqtt_proxy.policy.users import UsersError, parse_user

FAILED: Final = 1
WRONG_USE: Final = 2
NAME_BYTES_MAX: Final = 65_535
SCRAM_ITERATIONS_MIN: Final = 4_096

DESCRIPTION: Final = """\
Set, change or delete a password in a users file (lmq serve --users FILE).

  lmq passwd -c FILE USER            a new file with one user; asks for the password
  lmq passwd FILE USER               set a user's password
  lmq passwd -b FILE USER PASSWORD   the same without a question (others may see it in the process list)
  lmq passwd -D FILE USER            delete the user
  lmq passwd -U FILE                 hash the passwords of a file of plain user:password lines

With standard input from elsewhere than a terminal, the password is its first line.
A running server takes the changed file on SIGHUP."""


class PasswdError(Exception):
    """One line that says what is wrong."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"lmq passwd: {message} (lmq passwd --help)", file=sys.stderr)
        raise SystemExit(WRONG_USE)


def main(argv: list[str]) -> int:
    """Make or edit a users file: set, change or delete a password."""
    try:
        options = _options(argv)
        path = Path(options.file)
        if options.upgrade:
            _upgrade(path, options)
        elif options.delete:
            _delete(path, options.user)
        else:
            _set(path, options)
    except SystemExit as asked:
        return int(asked.code or 0)
    except (PasswdError, UsersError) as error:
        print(f"lmq passwd: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"lmq passwd: {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="lmq passwd", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("user", metavar="USER", nargs="?")
    parser.add_argument("password", metavar="PASSWORD", nargs="?")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("-c", "--create", action="store_true", help="make the file; one that is there is overwritten")
    action.add_argument("-D", "--delete", action="store_true", help="delete the user")
    action.add_argument("-U", "--upgrade", action="store_true", help="hash what is not hashed yet")
    parser.add_argument("-b", "--batch", action="store_true", help="the password is an argument")
    parser.add_argument("-H", "--hash", choices=("scrypt", "argon2"), default="scrypt", help="kind of hash (default scrypt)")
    parser.add_argument(
        "--cost", type=int, default=SCRYPT_LN, metavar="LN", help=f"scrypt's N is 2**LN, {SCRYPT_LN_RANGE[0]} to {SCRYPT_LN_RANGE[-1]} "
        f"(default {SCRYPT_LN}; each step doubles memory and time of a login)"
    )
    parser.add_argument("--no-scram", action="store_true", help="no keys for MQTT 5 enhanced authentication by SCRAM-SHA-256")
    parser.add_argument(
        "--scram-iterations", type=int, default=ITERATIONS, metavar="N", help=f"PBKDF2 rounds, which clients pay too (default {ITERATIONS})"
    )
    options = parser.parse_args(argv)
    _check(parser, options)
    return options


def _check(parser: _Parser, options: argparse.Namespace) -> None:
    if options.upgrade:
        if options.user is not None:
            parser.error("-U takes a FILE alone")
    elif options.user is None:
        parser.error("USER is missing")
    elif options.batch and options.delete:
        parser.error("-b and -D exclude each other")
    elif options.batch and options.password is None:
        parser.error("-b needs a PASSWORD after the USER")
    elif not options.batch and options.password is not None:
        parser.error("a PASSWORD as an argument needs -b")
    if options.cost not in SCRYPT_LN_RANGE:
        parser.error(f"--cost {options.cost}: allowed are {SCRYPT_LN_RANGE[0]} to {SCRYPT_LN_RANGE[-1]}")
    if not SCRAM_ITERATIONS_MIN <= options.scram_iterations <= ITERATIONS_MAX:
        parser.error(f"--scram-iterations {options.scram_iterations}: allowed are {SCRAM_ITERATIONS_MIN} to {ITERATIONS_MAX}")


def _set(path: Path, options: argparse.Namespace) -> None:
    name = _name(options.user)
    if not options.create and not path.exists():
        raise PasswdError(f"{path} does not exist (-c makes it)")
    lines = [] if options.create else _lines(path)
    password = options.password.encode("utf-8", "surrogateescape") if options.batch else _asked(options.user)
    new = _line(name, password, options)
    at = _find(lines, name)
    if at is None:
        lines.append(new)
    else:
        lines[at] = new
    _write(path, lines)


def _delete(path: Path, user: str) -> None:
    lines = _lines(path)
    at = _find(lines, _name(user))
    if at is None:
        raise PasswdError(f"{path} has no user {user!r}")
    del lines[at]
    _write(path, lines)


def _upgrade(path: Path, options: argparse.Namespace) -> None:
    """Hash plain passwords; lines that are hashed already stay byte for byte."""
    lines = _lines(path)
    for at, line in enumerate(lines):
        name, colon, rest = line.partition(b":")
        if not line.strip() or line.startswith(b"#"):
            continue
        if not colon or not name or not rest:
            raise PasswdError(f"{path}:{at + 1}: the line is not user:password")
        try:
            parse_user(line)
        except HashError:
            lines[at] = _line(_name(os.fsdecode(name)), rest, options)
    _write(path, lines)


def _line(name: bytes, password: bytes, options: argparse.Namespace) -> bytes:
    if not password:
        raise PasswdError("the password is empty")
    hashed = hash_argon2(password) if options.hash == "argon2" else hash_scrypt(password, options.cost)
    if not options.no_scram:
        try:
            if saslprep(name) != name:
                raise PasswdError(f"the user name's normal form is {saslprep(name).decode()!r}: use that, or --no-scram")
            hashed += ":" + encode_scram_keys(make_keys(password, iterations=options.scram_iterations))
        except ScramError as error:
            raise PasswdError(f"SCRAM cannot carry this name or password: {error} (--no-scram leaves it out)") from None
    return name + b":" + hashed.encode()


def _name(user: str) -> bytes:
    name = user.encode("utf-8", "surrogateescape")
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        raise PasswdError("the user name is not UTF-8") from None
    if not name or len(name) > NAME_BYTES_MAX:
        raise PasswdError(f"a user name has 1 to {NAME_BYTES_MAX} bytes")
    if name.startswith(b"#") or name.strip() != name or any(byte in name for byte in b":\n\r\0"):
        raise PasswdError("a user name does not begin with `#`, hold `:` or line ends, or begin or end with a space")
    return name


def _asked(user: str) -> bytes:
    if not sys.stdin.isatty():
        return sys.stdin.buffer.readline().rstrip(b"\r\n")
    from getpass import getpass

    return _asked_twice(user, getpass)


def _asked_twice(user: str, ask: Callable[[str], str]) -> bytes:
    password = ask(f"Password for {user}: ")
    if ask("Again: ") != password:
        raise PasswdError("the two passwords differ; nothing is changed")
    return password.encode("utf-8", "surrogateescape")


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def _find(lines: list[bytes], name: bytes) -> int | None:
    return next((at for at, line in enumerate(lines) if line.partition(b":")[0] == name and not line.startswith(b"#")), None)


def _write(path: Path, lines: list[bytes]) -> None:
    """Replace the file whole: a server that reads it at this moment finds the old or the new one. New files are the owner's alone."""
    target = path.resolve()
    text = b"".join(line + b"\n" for line in lines)
    descriptor, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            _keep_owner(target, file.fileno())
            os.fsync(file.fileno())
        os.replace(made, target)
    except BaseException:
        os.unlink(made)
        raise


def _keep_owner(path: Path, descriptor: int) -> None:
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except PermissionError:
        pass  # not ours to give away; the mode is kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
