"""Passwords given on the command line leave the process title at once: everybody on the machine can read it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from urllib.parse import urlsplit


def passwords_in(arguments: list[str]) -> list[str]:
    """The passwords that the arguments show: of --password and of URLs."""
    found = []
    for place, argument in enumerate(arguments):
        if argument == "--password" and place + 1 < len(arguments):
            found.append(arguments[place + 1])
        elif argument.startswith("--password="):
            found.append(argument.partition("=")[2])
        elif "://" in argument and "@" in argument:
            try:
                raw = urlsplit(argument).netloc.rpartition("@")[0].partition(":")[2]
            except ValueError:
                continue
            found.append(raw)
    return [password for password in found if password]


def hide_passwords(arguments: list[str]) -> None:
    """Overwrites them with asterisks in this process's own argument memory (Linux); never raises."""
    secrets = [password.encode() for password in passwords_in(arguments)]
    if not secrets:
        return
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        title = ctypes.string_at(start, end - start)
        for secret in secrets:
            at = title.find(secret)
            while at >= 0:
                ctypes.memset(start + at, ord("*"), len(secret))
                at = title.find(secret, at + len(secret))
    except (OSError, ValueError, IndexError):
        return
