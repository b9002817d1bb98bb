"""Reads an ACL file: mosquitto's syntax and a few keywords more.

```
# A comment, on a line of its own. Blank lines don't matter; a name or filter is the rest of its line and may hold spaces.
topic [read|write|readwrite|deny] FILTER     for the section it stands in; before any section: anonymous clients
pattern [read|write|readwrite|deny] FILTER   for everybody; a level %u is the user name, a level %c the client id
user NAME                      begins the section of one user
clientid NAME                  ours: begins the section of one client id (claimed, not proven: tie it to a user if it matters)
role NAME                      ours: begins the section of a role: its topic lines are for all its members
member USER                    ours, within a role: gives the role to a user
```

Without an access word the access is readwrite; a filter with a space needs the word, as in mosquitto. Differences from
mosquitto: `deny` wins over every grant, in patterns too; a line that is not understood, a misplaced wildcard and a `%u`
or `%c` that is not a whole level are errors, never a rule that quietly matches nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mqtt_proxy.policy.acl import Acl, RuleTables
from mqtt_proxy.policy.rule_tree import CLIENT_LEVEL, DENY, READ, READ_WRITE, USER_LEVEL, WRITE, RuleNode

RULES_MAX: Final = 1_000_000
FILE_BYTES_MAX: Final = 256 << 20
ERRORS_TOLD: Final = 5

_ACCESS: Final = {b"read": READ, b"write": WRITE, b"readwrite": READ_WRITE, b"deny": DENY}


class AclError(Exception):
    """The file is no ACL; the text gives file, line and what is wrong (several lines for several errors)."""


def load_acl(path: str | Path) -> Acl:
    """The ACL of a file. Raises AclError; whatever was in force before stays so."""
    try:
        text = Path(path).read_bytes() if os.path.getsize(path) <= FILE_BYTES_MAX else None
    except OSError as error:
        raise AclError(f"{path}: {error.strerror}") from None
    if text is None:
        raise AclError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    return parse_acl(text, str(path))


def parse_acl(text: bytes, source: str = "acl") -> Acl:
    """The ACL of a file's bytes; `source` is what errors call it. Raises AclError."""
    reader = _Reader()
    errors: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.take(line.strip())
        except ValueError as error:
            errors.append(f"{source}:{number}: {error}")
    if errors:
        more = [f"{source}: {len(errors) - ERRORS_TOLD} more errors"] if len(errors) > ERRORS_TOLD else []
        raise AclError("\n".join(errors[:ERRORS_TOLD] + more))
    return Acl(reader.tables)


class _Reader:
    """Takes one stripped line after the other; ValueError says what is wrong with it."""

    def __init__(self) -> None:
        self.tables = RuleTables()
        self._section = self.tables.anonymous
        self._role: bytes | None = None
        self._rules = 0

    def take(self, line: bytes) -> None:
        if not line or line.startswith(b"#"):
            return
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("not UTF-8") from None
        if b"\x00" in line:
            raise ValueError("holds a NUL byte")
        keyword, rest = _word(line)
        if keyword in (b"topic", b"pattern"):
            self._rule(keyword == b"pattern", rest)
        elif keyword in (b"user", b"clientid", b"role"):
            self._begin(keyword, rest)
        elif keyword == b"member":
            self._member(rest)
        else:
            raise ValueError(f"{_shown(keyword)} is not one of: topic, pattern, user, clientid, role, member")

    def _rule(self, pattern: bool, rest: bytes) -> None:
        word, after = _word(rest)
        access = _ACCESS.get(word) if after else None
        if access is not None:
            rule_filter = after
        elif after:
            raise ValueError(f"access {_shown(word)} is not one of: read, write, readwrite, deny")
        else:
            access, rule_filter = READ_WRITE, rest
        _check_filter(rule_filter, pattern)
        self._rules += 1
        if self._rules > RULES_MAX:
            raise ValueError(f"more than {RULES_MAX} rules")
        (self.tables.patterns if pattern else self._section).add(rule_filter, access, pattern)

    def _begin(self, keyword: bytes, name: bytes) -> None:
        if not name:
            raise ValueError(f"{keyword.decode()} needs a name")
        table = {b"user": self.tables.users, b"clientid": self.tables.client_ids, b"role": self.tables.roles}[keyword]
        self._section = table.setdefault(name, RuleNode())
        self._role = name if keyword == b"role" else None

    def _member(self, name: bytes) -> None:
        if self._role is None:
            raise ValueError("member stands in no role section")
        if not name:
            raise ValueError("member needs a user name")
        self.tables.members.setdefault(name, set()).add(self._role)


def _word(line: bytes) -> tuple[bytes, bytes]:
    parts = line.split(None, 1)
    return parts[0] if parts else b"", parts[1] if len(parts) > 1 else b""


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("utf-8", "replace"))


def _check_filter(rule_filter: bytes, pattern: bool) -> None:
    if not rule_filter:
        raise ValueError("the topic filter is missing")
    if len(rule_filter) > 65_535:
        raise ValueError("the topic filter is longer than 65535 bytes [MQTT-4.7.3-3]")
    levels = rule_filter.split(b"/")
    for at, level in enumerate(levels):
        if b"#" in level and (level != b"#" or at != len(levels) - 1):
            raise ValueError(f"{_shown(rule_filter)}: # must be the last level, alone [MQTT-4.7.1-1]")
        if b"+" in level and level != b"+":
            raise ValueError(f"{_shown(rule_filter)}: + must be alone in its level [MQTT-4.7.1-2]")
        if pattern and (USER_LEVEL in level or CLIENT_LEVEL in level) and level not in (USER_LEVEL, CLIENT_LEVEL):
            raise ValueError(f"{_shown(rule_filter)}: %u and %c must be alone in their level")
