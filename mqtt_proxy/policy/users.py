"""The users file: names with password hashes and SCRAM keys. Immutable once read; a reload reads a new one.

One line a user, `name:hash` or `name:hash:hash`: one hash for passwords and one `$scram-sha-256$…` for enhanced
authentication, in any order (password_hash.py has the kinds). With SCRAM keys alone, passwords are checked against
those. mosquitto's password files are such files too. `#` begins a comment line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtt_proxy.policy.password_hash import HashError, PasswordHash, hash_scrypt, parse_hash
from mqtt_proxy.policy.scram import ScramKeys

USERS_MAX: Final = 10_000_000
FILE_BYTES_MAX: Final = 2 << 30
ERRORS_TOLD: Final = 5


class UsersError(Exception):
    """The file is no users file; the text gives file, line and what is wrong (several lines for several errors)."""


@dataclass(frozen=True, slots=True)
class User:
    password: PasswordHash
    scram: ScramKeys | None


class Users:
    """All users of a file. `verify` is slow and may run in any thread."""

    __slots__ = ("_decoy", "_lines")

    def __init__(self, lines: dict[bytes, User]) -> None:
        self._lines = lines
        self._decoy: PasswordHash | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, user: bytes) -> bool:
        return user in self._lines

    def verify(self, user: bytes, password: bytes) -> bool:
        """Whether the password is the user's. Takes as long for a name that is not there, so that names can't be probed."""
        known = self._lines.get(user)
        if known is not None:
            return known.password.verify(password)
        if self._decoy is None:
            self._decoy = self._like_the_others()
        self._decoy.verify(password)
        return False

    def scram_keys(self, user: bytes) -> ScramKeys | None:
        """The keys for enhanced authentication, if the user has some."""
        known = self._lines.get(user)
        return known.scram if known is not None else None

    def _like_the_others(self) -> PasswordHash:
        for user in self._lines.values():
            return user.password  # the answer is thrown away; only its time matters
        return parse_hash(hash_scrypt(b""))


def load_users(path: str | Path) -> Users:
    """The users of a file. Raises UsersError; whatever was in force before stays so."""
    try:
        text = Path(path).read_bytes() if os.path.getsize(path) <= FILE_BYTES_MAX else None
    except OSError as error:
        raise UsersError(f"{path}: {error.strerror}") from None
    if text is None:
        raise UsersError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    return parse_users(text, str(path))


def parse_users(text: bytes, source: str = "users") -> Users:
    """The users of a file's bytes; `source` is what errors call it. Raises UsersError."""
    lines: dict[bytes, User] = {}
    errors: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            name, user = parse_user(line)
            if name in lines:
                raise HashError("the user has a line already")
            if len(lines) >= USERS_MAX:
                raise HashError(f"more than {USERS_MAX} users")
            lines[name] = user
        except HashError as error:
            errors.append(f"{source}:{number}: {error}")
    if errors:
        more = [f"{source}: {len(errors) - ERRORS_TOLD} more errors"] if len(errors) > ERRORS_TOLD else []
        raise UsersError("\n".join(errors[:ERRORS_TOLD] + more))
    return Users(lines)


def parse_user(line: bytes) -> tuple[bytes, User]:
    """Name and hashes of one line. Raises HashError."""
    name, colon, rest = line.rstrip().partition(b":")
    if not name or not colon:
        raise HashError("the line is not name:hash")
    try:
        name.decode("utf-8")
        fields = rest.decode("ascii").split(":")
    except UnicodeDecodeError:
        raise HashError("the name is not UTF-8, or the hash not ASCII") from None
    password: PasswordHash | None = None
    scram: ScramKeys | None = None
    for field in fields:
        parsed = parse_hash(field)
        if isinstance(parsed, ScramKeys) and scram is None:
            scram = parsed
        elif not isinstance(parsed, ScramKeys) and password is None:
            password = parsed
        else:
            raise HashError("two hashes of the same kind")
    password = password or scram
    if password is None:
        raise HashError("the line is not name:hash")
    return name, User(password, scram)
