"""`lmq serve` as a child that can be killed and started again on the same port and folder; it never outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

READY_S = 30.0
STOP_S = 10.0
LAST_LINES = 15


class ServerFailed(Exception):
    """The server did not start; the text has its last lines."""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class ServerProcess:
    """One server; `address` is fixed by its first start."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.options = options
        self.address = ("127.0.0.1", 0)
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_s = 0.0
        """How long the last start took."""
        self.started_at = 0.0
        self.starts = 0

    def start(self) -> None:
        """Start and wait until it is ready. Raises ServerFailed."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting."""
        command = [sys.executable, "-m", "mqtt_proxy", "serve", "--listen", f"mqtt://{self.address[0]}:{self.address[1]}"]
        command += ["--data", str(self.data), *self.options]
        self.started_at = time.monotonic()
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True, preexec_fn=_die_with_parent
            )  # fmt: skip

    def wait_ready(self) -> None:
        """Until it says that it accepts. Raises ServerFailed."""
        assert self.process is not None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        said = b""
        while b"\n" not in said:
            said += self.process.stdout.read() or b""
            if self.process.poll() is not None:
                raise ServerFailed(f"the server ended with status {self.process.returncode}; its last lines:\n{self.last_lines()}")
            if time.monotonic() - self.started_at > READY_S:
                self.kill()
                raise ServerFailed(f"the server was not ready within {READY_S:g} s; its last lines:\n{self.last_lines()}")
            time.sleep(0.002)
        self.ready_s = time.monotonic() - self.started_at
        host, _, port = said.decode().split("//")[1].split("\n")[0].rpartition(":")
        self.address = (host, int(port))

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self) -> int:
        """SIGTERM; the exit status, or -9 where it had to be killed."""
        process = self.process
        if process is None or process.poll() is not None:
            return process.returncode if process is not None else 0
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return process.returncode

    def last_lines(self) -> str:
        """The end of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        except OSError:
            return "(no log)"
        return "\n".join(f"  | {line}" for line in lines)
