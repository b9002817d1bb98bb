"""The broker under test as a process: started, measured, killed, stopped and started again; it never outlives the harness."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from loadtest.units import UsageError

READY_WITHIN = 30.0
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")
LAST_LINES = 12


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: also where the harness itself is killed


class Guardian:
    """A small process that kills the server's group when the harness is gone, however it went.

    PR_SET_PDEATHSIG alone is not enough: a server that changes its user loses it.
    """

    def __init__(self) -> None:
        reading, self.pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _guard(reading)
        os.close(reading)

    def watch(self, pid: int) -> None:
        """From now on this group."""
        os.write(self.pipe, b"%d\n" % pid)

    def end(self) -> None:
        os.write(self.pipe, b"end\n")  # closing is not enough: processes forked since hold the pipe as well
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


def _guard(reading: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched = b"0"
    while said := os.read(reading, 4096):
        if b"end" in said:
            os._exit(0)
        watched = said.strip().rpartition(b"\n")[2]
    if int(watched):
        try:
            os.killpg(int(watched), signal.SIGKILL)
        except OSError:
            pass
    os._exit(0)


def group_of(pid: int) -> list[int]:
    """The processes that belong to a broker: its process group and its descendants."""
    wanted = {pid}
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)] = int(fields[1])
        if int(fields[2]) == pid:
            wanted.add(int(entry))
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in wanted} - wanted
        grown = bool(more)
        wanted |= more
    return [one for one in wanted if one in parents]


def usage_of(pids: list[int]) -> tuple[float, int]:
    """Processor seconds and resident bytes of the processes."""
    seconds, resident = 0.0, 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        seconds += (int(fields[11]) + int(fields[12])) / TICK
        resident += int(fields[21]) * PAGE
    return seconds, resident


class ServerProcess:
    """`--server-cmd` or `--server-pid`: what faults act on and what is measured."""

    def __init__(self, command: str | None, pid: int | None, port: int, cpus: tuple[int, ...] = ()) -> None:
        self.pid = pid
        self.command: list[str] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.folder: str | None = None
        self.log: str | None = None
        self.cpus = cpus
        self.port = port
        self.spent_before = 0.0
        """Processor seconds of the processes that were killed."""
        self.wanted = False
        self.guardian: Guardian | None = None
        if command is not None:
            self._prepare(command, port)
        elif pid is not None and not os.path.exists(f"/proc/{pid}"):
            raise UsageError(f"--server-pid {pid}: no such process")

    def _prepare(self, command: str, port: int) -> None:
        try:
            words = shlex.split(command)
        except ValueError as failure:
            raise UsageError(f"--server-cmd: {failure}") from None
        if not words:
            raise UsageError("--server-cmd is empty")
        if shutil.which(words[0]) is None:
            raise UsageError(f"--server-cmd: no program {words[0]!r}")
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                raise UsageError(f"port {port} of the broker's URL is taken: --server-cmd needs a free one") from None
        self.folder = tempfile.mkdtemp(prefix="lmq-load-")
        data = os.path.join(self.folder, "data")
        os.mkdir(data)
        self.log = os.path.join(self.folder, "server.log")
        self.command = [word.replace("{port}", str(port)).replace("{data}", data) for word in words]

    def start(self) -> None:
        assert self.command is not None
        assert self.log is not None
        self.guardian = self.guardian or Guardian()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=self._in_child
            )
        self.pid = self.process.pid
        self.guardian.watch(self.pid)
        self.wanted = True

    def _in_child(self) -> None:
        _die_with_parent()
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)

    def wait_ready(self, answers: Callable[[], bool]) -> None:
        """Until a CONNECT is answered. Raises UsageError with the last lines of its output."""
        deadline = time.monotonic() + READY_WITHIN
        while not answers():
            if self.process is not None and self.process.poll() is not None:
                raise UsageError(f"the server command ended with status {self.process.returncode}{self.last_lines()}")
            if time.monotonic() > deadline:
                raise UsageError(f"the server command did not answer a CONNECT within {READY_WITHIN:g} s{self.last_lines()}")
            time.sleep(0.02)

    def running(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return self.pid is not None and os.path.exists(f"/proc/{self.pid}")

    def kill(self) -> None:
        """SIGKILL to all of it, at once."""
        self.spent_before += self.usage()[0]
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.pid is None:
            return
        try:
            if self.process is not None:
                os.killpg(self.pid, number)
            else:
                for pid in group_of(self.pid):
                    os.kill(pid, number)
        except ProcessLookupError:
            pass

    def usage(self) -> tuple[float, int]:
        """Processor seconds of this process alone, and resident bytes."""
        return usage_of(group_of(self.pid)) if self.pid is not None else (0.0, 0)

    def disk(self) -> int | None:
        """Bytes of its data folder; None where it has none of ours."""
        if self.folder is None:
            return None
        total = 0
        for folder, _, files in os.walk(os.path.join(self.folder, "data")):
            for name in files:
                try:
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
                except OSError:
                    continue  # deleted in between
        return total

    def spent(self) -> float:
        return self.spent_before + self.usage()[0]

    def last_lines(self) -> str:
        if self.log is None:
            return ""
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, os.path.getsize(self.log) - 4096))
                lines = log.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        except OSError:
            return ""
        return "; its last lines:\n" + "\n".join(f"  | {line}" for line in lines) if lines else "; it printed nothing"

    def end(self, keep_folder: bool) -> str | None:
        """End it with all its children; the folder's name where it was kept."""
        self.wanted = False
        if self.process is not None:
            if self.process.poll() is None:
                self._signal(signal.SIGCONT)
                self.process.terminate()
                try:
                    self.process.wait(3)
                except subprocess.TimeoutExpired:
                    pass
            self._signal(signal.SIGKILL)
            self.process.wait()
        if self.guardian is not None:
            self.guardian.end()
            self.guardian = None
        if self.folder is not None and not keep_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        return self.folder
