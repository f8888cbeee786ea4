"""The guardian: a process of its own that ends a worker's children when the worker can't.

It reads lines from the worker through a pipe. When the pipe closes without a goodbye, the worker has died:
its children are killed at once and the api is told, so that nobody waits for the lease. When the worker is
stopped or cut off, heartbeats no longer push the deadline on, and the children end before the lease does:
a second attempt never overlaps the first. Only the standard library, so that it starts fast and stays small.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import urllib.parse
import urllib.request

TERM_BEFORE_S = 3.0
KILL_BEFORE_S = 1.0
MARK = "MAINSPRING_SESSION_ID"
LABEL = "io.mainspring.session"
ENGINE_S = 10.0  # for one answer of the engine
GONE_S = 5.0  # for containers to be gone before the api is told
AFTER_S = 60.0  # for those that were just being made, or that the engine did not let go of at once
AGAIN_S = 0.2


class Guardian:
    """What the worker has told so far."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._groups: set[int] = set()
        self._deadline: float | None = None
        self._session: dict[str, str] = {}
        self._cells: set[str] = set()
        self._folders: set[str] = set()
        self._engine: str | None = None
        self._termed = False
        self._buffer = b""

    def watch(self) -> None:
        """Returns when the worker said goodbye, or is dead and cleaned up after."""
        while True:
            readable, _, _ = select.select([self._pipe], [], [], self._patience())
            if readable:
                data = os.read(self._pipe, 65536)
                if not data:
                    self._worker_died()
                    self._end_containers(signal.SIGKILL, AFTER_S)
                    self._clear()
                    return
                if self._hear(data):
                    return
            self._mind_the_deadline()

    def _patience(self) -> float | None:
        if self._deadline is None:
            return None
        ahead = KILL_BEFORE_S if self._termed else TERM_BEFORE_S
        return max(0.0, self._deadline - ahead - time.clock_gettime(time.CLOCK_BOOTTIME)) + 0.01

    def _hear(self, data: bytes) -> bool:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if word == "born":
                self._groups.add(int(value))
            elif word == "gone":
                self._groups.discard(int(value))
            elif word == "lease":
                self._deadline, self._termed = float(value), False
            elif word == "session":
                self._session = json.loads(value)
                self._deadline, self._termed = None, False
            elif word == "cell":
                self._cells.add(value)
            elif word == "cell_gone":
                self._cells.discard(value)
            elif word == "folder":
                self._folders.add(value)
            elif word == "engine":
                self._engine = value
            elif word == "goodbye":
                return True
        return False

    def _mind_the_deadline(self) -> None:
        if self._deadline is None:
            return
        left = self._deadline - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= KILL_BEFORE_S:
            if self._end_children(signal.SIGKILL, KILL_BEFORE_S):
                self._deadline = None
        elif left <= TERM_BEFORE_S and not self._termed:
            self._end_children(signal.SIGTERM)
            self._termed = True

    def _worker_died(self) -> None:
        self._end_children(signal.SIGKILL, GONE_S)
        if not self._session:
            return
        request = urllib.request.Request(
            self._session["url"] + "/api/v1/worker/goodbye",
            data=json.dumps({"session_id": self._session["session_id"], "lost": True}).encode(),
            headers={"Authorization": f"Bearer {self._session['token']}", "Content-Type": "application/json"},
        )
        for _ in range(5):
            try:
                urllib.request.urlopen(request, timeout=5).close()
                return
            except OSError:
                time.sleep(0.5)  # the lease is the net

    def _clear(self) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _end_children(self, number: signal.Signals, within_s: float = 0.0) -> bool:
        """Whether all is done: what has no process of ours, an engine's containers, may take some tries."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        for pid in [*self._marked(), *self._caged()]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return self._end_containers(number, within_s)

    def _end_containers(self, number: signal.Signals, within_s: float) -> bool:
        if self._engine is None or not self._session:
            return True
        return end_containers(self._engine, self._session["session_id"], number, within_s)

    def _caged(self) -> list[int]:
        """Processes in control groups of attempts: whatever they did to hide, these they can't leave."""
        found = []
        for door in self._cells:
            with contextlib.suppress(OSError), open(door) as file:
                found += [int(pid) for pid in file.read().split()]
        return found

    def _marked(self) -> list[int]:
        """Processes that carry our session in their environment, daemonised and unregistered ones too."""
        if not self._session:
            return []
        mark = f"{MARK}={self._session['session_id']}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if mark in file.read().split(b"\0"):
                            found.append(int(name))
                except OSError:
                    continue
        return found


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=ENGINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def end_containers(path: str, session_id: str, number: signal.Signals, within_s: float = 0.0) -> bool:
    """SIGTERM asks a session's containers to end; SIGKILL ends and removes them, and looks again until none is left.

    An engine that starts a container, or is busy, may refuse or be late at first."""
    filters = urllib.parse.quote(json.dumps({"label": [f"{LABEL}={session_id}"]}))
    until = time.monotonic() + within_s
    while True:
        trouble = ""
        try:
            there = json.loads(_ask(path, "GET", f"/containers/json?all=1&filters={filters}"))
        except (OSError, ValueError, http.client.HTTPException) as error:
            there, trouble = [], str(error)
        for found in there:
            try:
                if number == signal.SIGKILL:
                    _ask(path, "DELETE", f"/containers/{found['Id']}?force=1&v=1")
                else:
                    _ask(path, "POST", f"/containers/{found['Id']}/kill?signal={number.name}")
            except (OSError, http.client.HTTPException) as error:
                trouble = str(error)
        if number != signal.SIGKILL or not (there or trouble):
            return True
        if time.monotonic() > until:
            print(f"the engine at {path}: {trouble or 'does not let go'}", file=sys.stderr)  # noqa: T201
            return False
        time.sleep(AGAIN_S)


def _ask(path: str, method: str, target: str) -> bytes:
    """What the engine answers; an OSError if it refuses for another reason than that the container is gone."""
    connection = _Unix(path)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400 and answer.status != 404:
            raise OSError(
                f"{method} {target.partition('?')[0]}: {answer.status} {content[:200].decode(errors='replace')}"
            )
        return content
    finally:
        connection.close()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Guardian(sys.stdin.fileno()).watch()


if __name__ == "__main__":
    main()
