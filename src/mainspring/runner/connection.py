"""The runner's connection to its worker: what it sends, and the results that it holds until several cost one write."""

from __future__ import annotations

import os
import socket
import threading
from time import monotonic, sleep

from mainspring import runner_protocol as protocol
from mainspring.runner_memory import RunnerMemory

HOLD_S = 0.001
MAX_HELD = 100
"""Limits of what is held while further calls end: the worker sends more calls when it has the results."""
LATE_S = 0.005
"""If the next call does not end, another thread sends what is held."""


class WorkerConnection:
    """Sends messages in order. Every thread may call it."""

    def __init__(self, sock: socket.socket, memory: RunnerMemory) -> None:
        self._sock = sock
        self._memory = memory
        self._lock = threading.Lock()
        self._held = 0
        self._held_since = 0.0
        self._holding = threading.Event()
        self.in_child = False  # a function has forked, and this is the new process

    def start(self) -> None:
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._after_fork
        )
        threading.Thread(target=self._send_late, name="mainspring-send", daemon=True).start()

    def send(self, message: protocol.RunnerMessage) -> None:
        line = protocol.encode(message) + b"\n"
        with self._lock:
            self._write(line)

    def hold(self, returned: protocol.Returned) -> None:
        """Send a result soon, with others. It is not lost if this process ends."""
        line = protocol.encode(returned) + b"\n"
        now = monotonic()
        with self._lock:
            if not self._memory.hold(line):
                self._write(line)
                return
            self._held += 1
            if self._held == 1:
                self._held_since = now
                self._holding.set()
            elif self._held >= MAX_HELD or now - self._held_since > HOLD_S:
                self._write()

    def flush(self) -> None:
        """Send what is held."""
        with self._lock:
            if self._held:
                self._write()

    def _after_fork(self) -> None:
        self._held = 0  # the parent process sends them
        self.in_child = True
        self._lock.release()

    def _write(self, line: bytes = b"") -> None:
        if self._held:
            line = self._memory.held() + line
        try:
            self._sock.sendall(line)
        except OSError:
            os._exit(1)  # the worker is gone
        if self._held:
            self._memory.clear_held()
            self._held = 0

    def _send_late(self) -> None:
        while self._holding.wait():
            sleep(LATE_S)
            with self._lock:
                if not self._held:
                    self._holding.clear()
                elif monotonic() - self._held_since > LATE_S:
                    self._write()
