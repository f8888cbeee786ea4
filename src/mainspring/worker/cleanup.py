"""What the guardian must clean up if the worker dies: the registry and the pipe behind it."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Protocol

import structlog

log = structlog.get_logger()


class CleanupRegistry(Protocol):
    """Records everything that outlives a dead worker, for the guardian to end or remove."""

    def add_process_group(self, group: int) -> None: ...
    def remove_process_group(self, group: int) -> None: ...
    def add_process(self, pid: int, started: int) -> None:
        """`started`, in ticks since boot, distinguishes it from a later process with the same id."""

    def remove_process(self, pid: int, started: int) -> None: ...
    def add_cgroup(self, procs_file: str) -> None:
        """`procs_file` is the cgroup's list of processes: all of them are ended."""

    def remove_cgroup(self, procs_file: str) -> None: ...
    def add_folder(self, path: str) -> None: ...
    def add_engine(self, path: str) -> None:
        """Containers with the session's label, created by the engine at this socket, are removed."""


class GuardianPipe:
    """Starts the guardian and writes to its pipe. Implements `CleanupRegistry`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mainspring.worker.guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_hidden(self) -> None:
        """Return when the guardian has hidden its memory, so that no job can read the session's credentials there."""
        assert self._process.stdout is not None
        with self._process.stdout as ready:
            ready.read()

    def add_process_group(self, group: int) -> None:
        self.send(f"add_process_group {group}")

    def remove_process_group(self, group: int) -> None:
        self.send(f"remove_process_group {group}")

    def add_process(self, pid: int, started: int) -> None:
        self.send(f"add_process {pid} {started}")

    def remove_process(self, pid: int, started: int) -> None:
        self.send(f"remove_process {pid} {started}")

    def add_cgroup(self, procs_file: str) -> None:
        self.send(f"add_cgroup {procs_file}")

    def remove_cgroup(self, procs_file: str) -> None:
        self.send(f"remove_cgroup {procs_file}")

    def add_folder(self, path: str) -> None:
        self.send(f"add_folder {path}")

    def add_engine(self, path: str) -> None:
        self.send(f"add_engine {path}")

    def send(self, line: str) -> None:
        """Write one line. The event loop and the heartbeat thread both call this."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with self._lock:
                pipe.write(line.encode() + b"\n")
                pipe.flush()
        except OSError:
            log.error("guardian.gone")

    def close(self) -> None:
        self.send("goodbye")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(5)
