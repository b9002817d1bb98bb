"""A store's folder as the tools see it: nothing is written, no lock is held, a server may be running on it.

Beside a running server the log is read up to its last intact frame, and the databases as far as their files go: RocksDB
keeps what is newer in that server's memory. What is in the files is whole nevertheless (everything up to the database's own
checkpoint), and what came after is in the log: the tables are brought up to it in memory, the index is as it is.

RocksDB sees a copy of the folder in a temporary place, made of links to open files: its Python binding writes into a folder
that it opens for reading, and a running server deletes files that it has compacted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
from contextlib import suppress

from lmq_store.api.errors import FormatError, StoreError
from lmq_store.embedded.files import Files, OsFiles
from lmq_store.embedded.light_queues import LightQueues
from lmq_store.embedded.log_format import MESSAGE, RETAIN_BIT, TABLE_WRITES
from lmq_store.embedded.log_walk import LogWalk
from lmq_store.embedded.meta_tables import MetaTables, decode_operations
from lmq_store.embedded.record import decode_message, record_flags, record_parent, record_payload, record_size, record_type
from lmq_store.embedded.rocks import Database
from lmq_store.embedded.store_folder import FORMAT_TEXT, FORMAT_VERSION

ATTEMPTS = 5
"""Beside a running server a file may go between the listing and the opening: try again."""
LINKED_FILES = 400
"""Table files that are held open, so that they stay readable."""


class ReadOnlyStore:
    """The parts of a store, opened for reading. Raises StoreError when the folder is none.

    `index` and `meta` are None where the database is missing or cannot be read; `problems` says why.
    """

    def __init__(self, directory: str, files: Files | None = None) -> None:
        self.directory = directory
        self.problems: list[str] = []
        self.format_version = read_format(directory)
        self.running = is_running(directory)
        self._files = files or OsFiles()
        self._snapshots: list[_Snapshot] = []
        for attempt in range(ATTEMPTS):
            index, meta = self._open("index"), self._open("meta")
            self.log = LogWalk(self._files, f"{directory}/log")  # after the databases: it has all that they know
            self.meta = None if meta is None else MetaTables(meta, _refuse)
            self.index = None if index is None else LightQueues(index, lambda _: 0)
            if attempt == ATTEMPTS - 1 or not self.running or self.meta is None or self.meta.checkpoint() >= self.log.start:
                break
            self.close()  # retention took what lies between the databases as they were and the log as it is
            self.problems = []
        if self.meta is not None:
            self._catch_up(self.meta)

    def _open(self, name: str) -> Database | None:
        path = f"{self.directory}/{name}"
        if not os.path.exists(f"{path}/CURRENT"):  # RocksDB would make the folder
            self.problems.append(f"{name}: there is no database")
            return None
        for attempt in range(ATTEMPTS):
            snapshot = _Snapshot(path)
            try:
                database = Database(snapshot.path, read_only=True)
            except Exception as error:  # rocksdict raises bare Exception
                snapshot.close()
                if not self.running or attempt == ATTEMPTS - 1:
                    self.problems.append(f"{name}: cannot be opened: {str(error).splitlines()[0].replace(snapshot.path, path)}")
            else:
                snapshot.database = database
                self._snapshots.append(snapshot)
                return database
        return None

    def _catch_up(self, meta: MetaTables) -> None:
        """Bring the tables, in memory, up to what the log says behind their checkpoint, as the next start would."""
        checkpoint = meta.checkpoint()
        walk = LogWalk(self._files, f"{self.directory}/log")
        for frame in walk.frames(max(checkpoint, walk.start)):
            for place, position in frame.records():
                kind = record_type(frame.data, place)
                end = position + record_size(frame.data, place)
                if kind == TABLE_WRITES:
                    meta.end_batch(end)
                    with suppress(ValueError, struct.error):  # check names it
                        for operation in decode_operations(record_payload(frame.data, place)):
                            meta.note(end, operation)
                elif kind == MESSAGE and record_flags(frame.data, place) & (RETAIN_BIT | 2):
                    meta.derive(decode_message(frame.data, place), record_parent(frame.data, place)[0])
            meta.end_batch(frame.position + frame.length)

    def close(self) -> None:
        for snapshot in self._snapshots:
            snapshot.close()
        self._snapshots = []


class _Snapshot:
    """A folder of links to the files of a RocksDB folder as they are now; they stay readable when they are deleted."""

    def __init__(self, source: str) -> None:
        self.path = tempfile.mkdtemp(prefix="lmq-store-")
        self.database: Database | None = None
        self._handles: list[int] = []
        for name in sorted(os.listdir(source), key=lambda name: name.endswith(".sst")):
            if name == "LOCK" or name.startswith(("LOG", "rocksdict")):
                continue
            with suppress(FileNotFoundError):
                self._link(f"{source}/{name}", f"{self.path}/{name}")

    def _link(self, source: str, target: str) -> None:
        if not source.endswith(".sst"):
            shutil.copyfile(source, target)
        elif len(self._handles) < LINKED_FILES:
            handle = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            self._handles.append(handle)
            os.symlink(f"/proc/self/fd/{handle}", target)
        else:
            os.symlink(os.path.abspath(source), target)

    def close(self) -> None:
        if self.database is not None:
            self.database.close()
        for handle in self._handles:
            os.close(handle)
        shutil.rmtree(self.path, ignore_errors=True)


def read_format(directory: str) -> int:
    """The folder's format version. Raises StoreError (no such folder) or FormatError (no store, or a newer one)."""
    if not os.path.isdir(directory):
        raise StoreError(f"{directory}: no such folder")
    path = f"{directory}/FORMAT"
    try:
        with open(path) as found:
            words = found.read(200).split()
    except (OSError, UnicodeDecodeError):
        words = []
    if len(words) != 2 or words[0] != FORMAT_TEXT or not words[1].isdigit() or not os.path.isdir(f"{directory}/log"):
        raise FormatError(f"{directory}: not a store of this program")
    if int(words[1]) > FORMAT_VERSION:
        raise FormatError(f"{path}: written by a newer format ({words[1]}); this program knows {FORMAT_VERSION}")
    return int(words[1])


def is_running(directory: str) -> bool:
    """Whether a process holds the folder now."""
    try:
        handle = os.open(f"{directory}/lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once; a server that starts tries for 2 s
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def _refuse(_: object) -> None:
    raise StoreError("the store is open for reading only")
