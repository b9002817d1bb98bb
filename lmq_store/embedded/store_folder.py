"""The store's folder: its kernel lock, its format number, its two databases."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time

from lmq_store.api.errors import FormatError, StoreLocked
from lmq_store.embedded.files import Files
from lmq_store.embedded.rocks import Database

FORMAT_VERSION = 1
FORMAT_TEXT = "lmq-store"
LOCK_WAIT_S = 2.0

logger = logging.getLogger(__name__)


def take_lock(path: str) -> int:
    """The folder's kernel lock; tried for LOCK_WAIT_S, since a killed predecessor may just be going."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() >= deadline:
                os.close(handle)
                raise StoreLocked(f"{os.path.dirname(path)} is in use by another process") from None
            time.sleep(0.02)


def check_format(directory: str, files: Files) -> None:
    """Refuse a folder of a newer format, and a log that nothing says is ours; mark a new folder, durably before it has a log."""
    path = f"{directory}/FORMAT"
    if not files.exists(path):
        if files.listdir(f"{directory}/log"):
            raise FormatError(f"{directory}: not a store of this program: it has a log, but no file FORMAT")
        _mark(directory, files)
        return
    with open(path, "rb") as found:
        words = found.read(200).decode("ascii", "replace").split()
    if len(words) != 2 or words[0] != FORMAT_TEXT or not words[1].isdecimal():
        raise FormatError(f"{path}: not a store of this program")
    if int(words[1]) > FORMAT_VERSION:
        raise FormatError(f"{path}: written by a newer format ({words[1]}); this program knows {FORMAT_VERSION}")


def _mark(directory: str, files: Files) -> None:
    """Write FORMAT in one step, so that a kill or a power cut leaves it whole or not there."""
    new = f"{directory}/FORMAT.new"
    handle = files.open(new, create=True)
    try:
        files.truncate(handle, 0)
        files.pwrite(handle, f"{FORMAT_TEXT} {FORMAT_VERSION}\n".encode(), 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)
    files.rename(new, f"{directory}/FORMAT")
    files.fsync_dir(directory)


def open_database(path: str) -> Database:
    """The database; one that RocksDB cannot open is removed, and rebuilt from the log."""
    try:
        return Database(path)
    except Exception as error:  # rocksdict raises bare Exception
        if "lock" in str(error).lower():
            raise StoreLocked(f"{path} is in use: {error}") from error
        logger.error("%s cannot be opened (%s): it is rebuilt from the log", path, error)
        return new_database(path)


def new_database(path: str) -> Database:
    """An empty database in place of what is there."""
    shutil.rmtree(path, ignore_errors=True)
    return Database(path)
