"""A file layer that behaves like a disk on a bad day, all of it driven from one seed.

`FaultyFiles` writes through to real files (so that the store under test reads what it wrote) and remembers beside them
what a disk would hold if the power went now: bytes and names are only sure once synced. `power_cut(target)` writes such a
disk into a new folder, where a store can then be opened with any `Files`.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from lmq_store.embedded.files import Buffer, OsFiles

SECTOR = 512
"""What a disk writes whole or not at all; a torn tail is still cut at any byte (the harsher of the two)."""


@dataclass
class _File:
    """One file as the disk knows it: what is surely there, and the writes that may or may not have arrived."""

    durable: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0
    named: bool = False
    """The name itself was made durable by a directory sync."""


class PowerCut(BaseException):
    """The power went at this very call. Take the image (`FaultyFiles.power_cut`) and abandon the store."""


class FaultyFiles(OsFiles):
    """`Files` below `root`, with faults to order. Handles are real descriptors."""

    def __init__(self, root: str, seed: int = 0) -> None:
        self.root = os.path.realpath(root)
        self.random = Random(seed)
        self.files: dict[str, _File] = {}
        self.unlinked: dict[str, _File] = {}
        """Removed, but the directory not synced since: such a file may be back after a power cut."""
        self.handles: dict[int, str] = {}
        self.fail_sync = False
        """The next fdatasync fails with EIO; as on Linux, a later one would succeed and mean nothing."""
        self.space_left: int | None = None
        """Bytes that can still be written (None: no limit): a write beyond them is cut short with ENOSPC."""
        self.cut_after: int | None = None
        """So many more changing calls until the power goes; the call at which it does has happened or not."""
        self.syncs = 0
        self.writes = 0

    def _change(self) -> None:
        """Called before whatever changes something."""
        if self.cut_after is not None and threading.current_thread() is threading.main_thread():
            self.cut_after -= 1
            if self.cut_after < 0:
                raise PowerCut

    # --- the port ---

    def open(self, path: str, create: bool = False, read_only: bool = False) -> int:
        path = os.path.realpath(path)
        if create:
            self._change()
        fresh = create and not os.path.exists(path)
        handle = super().open(path, create, read_only)
        if fresh or path not in self.files:
            self.files[path] = _File() if fresh else self._existing(path)
        self.handles[handle] = path
        return handle

    def close(self, handle: int) -> None:
        del self.handles[handle]
        super().close(handle)

    def pwrite(self, handle: int, data: Buffer, at: int) -> None:
        self.writes += 1
        file = self.files[self.handles[handle]]
        room = len(data)
        if self.space_left is not None:
            grows = max(0, at + len(data) - file.size)
            room = len(data) if grows <= self.space_left else max(0, len(data) - grows + self.space_left)
            self.space_left = max(0, self.space_left - grows)
        part = bytes(data[:room])
        super().pwrite(handle, part, at)
        file.pending.append((at, part))
        file.size = max(file.size, at + len(part))
        self._change()
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fdatasync(self, handle: int) -> None:
        self._change()
        file = self.files[self.handles[handle]]
        if self.fail_sync:
            self.fail_sync = False
            # The kernel marks the pages clean although they never reached the disk.
            file.pending = self._arrived(file.pending)
            self._settle(file)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.syncs += 1
        self._settle(file)

    def fallocate(self, handle: int, at: int, length: int) -> None:
        self._change()
        file = self.files[self.handles[handle]]
        if self.space_left is not None:
            grows = max(0, at + length - file.size)
            if grows > self.space_left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.space_left -= grows
        os.ftruncate(handle, max(self.size(handle), at + length))  # sparse: quick, and reads as zeros all the same
        file.size = max(file.size, at + length)

    def truncate(self, handle: int, length: int) -> None:
        self._change()
        file = self.files[self.handles[handle]]
        super().truncate(handle, length)
        # Taken as durable at once (a truncate that never happened is the same as a crash just before it).
        file.pending = [(at, data[: length - at]) for at, data in file.pending if at < length]
        del file.durable[length:]
        file.size = length
        file.durable_size = min(file.durable_size, length)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)
        self.files[os.path.realpath(new)] = self.files.pop(os.path.realpath(old), _File())

    def unlink(self, path: str) -> None:
        self._change()
        path = os.path.realpath(path)
        super().unlink(path)
        file = self.files.pop(path, None)
        if file is not None and file.named:
            self.unlinked[path] = file

    def fsync_dir(self, path: str) -> None:
        self._change()
        path = os.path.realpath(path)
        for name, file in self.files.items():
            if os.path.dirname(name) == path:
                file.named = True
        self.unlinked = {name: file for name, file in self.unlinked.items() if os.path.dirname(name) != path}

    def free_bytes(self, path: str) -> int:
        return super().free_bytes(path) if self.space_left is None else self.space_left

    # --- what a disk would hold ---

    def power_cut(self, target: str, tear: bool = True) -> None:
        """Write to the folder `target` what survives a power cut now: all that was synced, and a seeded part of the rest."""
        self._copy_others(target)
        for path, file in self.files.items():
            if file.named or self.random.random() < 0.5:
                self._write_image(path, file, target, tear)
        for path, file in self.unlinked.items():
            if self.random.random() < 0.5:
                self._write_image(path, file, target, tear)

    def kill(self, target: str) -> None:
        """Write to `target` what survives SIGKILL now: everything written, synced or not."""
        self._copy_others(target)
        for path in self.files:
            shutil.copyfile(path, os.path.join(target, os.path.relpath(path, self.root)))

    def _copy_others(self, target: str) -> None:
        """Copy the files that others write below the root (RocksDB, with threads of its own) as they are at one moment."""
        for _ in range(100):
            shutil.rmtree(target, ignore_errors=True)
            with suppress(shutil.Error, FileNotFoundError):
                before = self._others()
                shutil.copytree(self.root, target, ignore=self._not_ours)
                if self._others() == before:
                    return
        raise RuntimeError("the folder does not stand still")

    def _others(self) -> list[tuple[str, int]]:
        return sorted(
            (path, os.path.getsize(path))
            for folder, _, names in os.walk(self.root)
            for path in (os.path.join(folder, name) for name in names)
            if path not in self.files
        )

    def _not_ours(self, folder: str, names: list[str]) -> list[str]:
        tracked = [name for name in names if os.path.join(os.path.realpath(folder), name) in self.files]
        return [*tracked, *(name for name in names if name == "LOCK")]

    def _write_image(self, path: str, file: _File, target: str, tear: bool) -> None:
        image = bytearray(file.durable)
        size = file.durable_size
        for at, data in self._arrived(file.pending) if tear else []:
            if len(image) < at + len(data):
                image.extend(bytes(at + len(data) - len(image)))
            image[at : at + len(data)] = data
            size = max(size, at + len(data))
        if self.random.random() < 0.5:
            size = max(size, file.size)  # the file's length may reach the disk before its bytes do: zeros
        destination = os.path.join(target, os.path.relpath(path, self.root))
        os.makedirs(os.path.dirname(destination), exist_ok=True)
        with open(destination, "wb") as out:
            out.write(image[:size])
            out.truncate(size)

    def _arrived(self, pending: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The part of the unsynced writes that reaches the disk: none, all, a prefix torn at any byte, or odd sectors."""
        way = self.random.randrange(4)
        if way == 0 or not pending:
            return []
        if way == 1:
            return list(pending)
        if way == 2:
            last = self.random.randrange(len(pending))
            at, data = pending[last]
            return [*pending[:last], (at, data[: self.random.randrange(len(data) + 1)])]
        return [sector for at, data in pending for sector in _sectors(at, data) if self.random.random() < 0.7]

    def _settle(self, file: _File) -> None:
        for at, data in file.pending:
            if len(file.durable) < at + len(data):
                file.durable.extend(bytes(at + len(data) - len(file.durable)))
            file.durable[at : at + len(data)] = data
        file.pending = []
        file.durable_size = file.size

    @staticmethod
    def _existing(path: str) -> _File:
        with open(path, "rb") as source:
            data = bytearray(source.read())
        return _File(durable=data, durable_size=len(data), size=len(data), named=True)


def _sectors(at: int, data: bytes) -> list[tuple[int, bytes]]:
    cuts = [0, *range(SECTOR - at % SECTOR, len(data), SECTOR), len(data)]
    return [(at + start, data[start:stop]) for start, stop in pairwise(cuts)]


def flip_bit(path: str, random: Random, low: int = 0, high: int | None = None) -> int:
    """Flip one bit of the file between the bytes `low` and `high`; returns the byte's place."""
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        at = random.randrange(low, high if high is not None else file.tell())
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << random.randrange(8))]))
    return at
