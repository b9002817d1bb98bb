"""One `lmq serve` process on a free port: how long to `ready`, how much memory and CPU, SIGKILL, clean stop, start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")
STOP_S = 60.0


class Server:
    """A server over `directory`. Its port is new at every start."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.port = 0
        self.ready_s = 0.0
        """From the start of the process to its `ready` line."""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the server is not started"
        return self._process

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def start(self) -> float:
        """Start, wait for `ready`, and return the seconds that took."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [str(Path(sys.executable).parent / "lmq"), "serve", "--listen", "mqtt://127.0.0.1:0"]
        command += ["--data", str(self.directory / "data"), *self.options]
        began = time.monotonic()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.ready_s = time.monotonic() - began
        assert line.startswith("ready "), f"{line!r}; {self.log.read_text()[-2000:]}"
        self.port = int(line.rstrip().rsplit(":", 1)[1])
        return self.ready_s

    def stop(self) -> float:
        """SIGTERM; the seconds until the process was gone."""
        return self._end(signal.SIGTERM)

    def kill(self) -> float:
        """SIGKILL, if it still runs."""
        return self._end(signal.SIGKILL) if self._process is not None else 0.0

    def _end(self, number: signal.Signals) -> float:
        process = self.process
        began = time.monotonic()
        process.send_signal(number)
        process.wait(timeout=STOP_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return time.monotonic() - began

    def resident_bytes(self) -> int:
        """Memory in use now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def peak_bytes(self) -> int:
        """The most memory that was in use since the start, or since `reset_peak`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu_s(self) -> float:
        """Processor seconds used so far, by all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK
