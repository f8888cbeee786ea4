"""The guardian: a watchdog process that ends a worker's children when the worker can't.

It reads lines from the worker through a pipe. When the pipe closes without a goodbye, the worker has died: the guardian
kills its children at once and ends the session, so that no rescue has to wait for the lease. When the worker is frozen
or cut off from the api, no heartbeat extends the deadline, and the children end before the lease does: a second attempt
never overlaps the first. Uses only the standard library, to start fast and stay small.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import select
import shutil
import signal
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from mainspring.process_tree import descendants

TERM_BEFORE_S = 3.0
"""SIGTERM is sent this long before the lease expires, SIGKILL `KILL_BEFORE_S`."""
KILL_BEFORE_S = 1.0
TERM_PART, KILL_PART = 1 / 3, 1 / 6
"""At most these parts of the lease: an idle worker renews its lease when half of it is over."""
SESSION_VARIABLE = "MAINSPRING_SESSION_ID"
"""Set in the environment of every task, so that processes which left their group are found."""
RUNNER_VARIABLE = "MAINSPRING_RUNNER"
"""Set in the environment of every runner, and so of the processes that its functions start: `<worker>.<number>`."""
END_ROUNDS = 5
SESSION_LABEL = "io.mainspring.session"
ENGINE_TIMEOUT_S = 10.0
CONTAINERS_GONE_S = 5.0
"""How long containers may take to be gone before the session is ended anyway."""
CONTAINERS_RETRY_S = 60.0
"""How long to retry afterwards: the engine may just be creating one, or fail to remove it at first."""
POLL_ENGINE_S = 0.2
_PR_SET_DUMPABLE = 4


class Guardian:
    """The state that the worker has reported so far."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._groups: set[int] = set()
        self._deadline: float | None = None  # when the lease expires, on CLOCK_BOOTTIME
        self._term_before_s, self._kill_before_s = TERM_BEFORE_S, KILL_BEFORE_S
        self._session: dict[str, str] = {}
        self._cgroups: set[str] = set()
        self._processes: set[tuple[int, int]] = set()  # with the start of each: ids are reused
        self._runner_mark = f"{RUNNER_VARIABLE}={os.getppid()}.".encode()
        self._folders: set[str] = set()
        self._engine: str | None = None
        self._termed = False
        self._buffer = b""

    def watch(self) -> None:
        """Return when the worker has said goodbye, or has died and is cleaned up after."""
        while True:
            readable, _, _ = select.select([self._pipe], [], [], self._timeout())
            if readable:
                data = os.read(self._pipe, 65536)
                if not data:
                    self._worker_died()
                    self._end_containers(signal.SIGKILL, CONTAINERS_RETRY_S)
                    self._remove_folders()
                    return
                if self._receive(data):
                    return
            self._check_deadline()

    def _timeout(self) -> float | None:
        if self._deadline is None:
            return None
        ahead = self._kill_before_s if self._termed else self._term_before_s
        return max(0.0, self._deadline - ahead - time.clock_gettime(time.CLOCK_BOOTTIME)) + 0.01

    def _receive(self, data: bytes) -> bool:
        """Apply the worker's messages; return whether one was a goodbye."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message, _, value = line.decode().partition(" ")
            if message == "add_process_group":
                self._groups.add(int(value))
            elif message == "remove_process_group":
                self._groups.discard(int(value))
            elif message == "lease":
                deadline, _, lease_s = value.partition(" ")
                self._deadline, self._termed = float(deadline), False
                self._term_before_s = min(TERM_BEFORE_S, float(lease_s) * TERM_PART)
                self._kill_before_s = min(KILL_BEFORE_S, float(lease_s) * KILL_PART)
            elif message == "session":
                self._session = json.loads(value)
                self._deadline, self._termed = None, False
            elif message == "add_process":
                pid, _, started = value.partition(" ")
                self._processes.add((int(pid), int(started)))
            elif message == "remove_process":
                pid, _, started = value.partition(" ")
                self._processes.discard((int(pid), int(started)))
            elif message == "add_cgroup":
                self._cgroups.add(value)
            elif message == "remove_cgroup":
                self._cgroups.discard(value)
            elif message == "add_folder":
                self._folders.add(value)
            elif message == "add_engine":
                self._engine = value
            elif message == "goodbye":
                return True
        return False

    def _check_deadline(self) -> None:
        if self._deadline is None:
            return
        left = self._deadline - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= self._kill_before_s:
            if self._end_children(signal.SIGKILL, self._kill_before_s):
                self._deadline = None
        elif left <= self._term_before_s and not self._termed:
            self._end_children(signal.SIGTERM)
            self._termed = True

    def _worker_died(self) -> None:
        self._end_children(signal.SIGKILL, CONTAINERS_GONE_S)
        if not self._session:
            return
        headers = {"Authorization": f"Bearer {self._session['token']}", "Content-Type": "application/json"}
        if key := self._session.get("key"):
            headers["Mainspring-Session-Key"] = key
        request = urllib.request.Request(
            self._session["url"] + "/api/v1/worker/goodbye",
            data=json.dumps({"session_id": self._session["session_id"], "lost": True}).encode(),
            headers=headers,
        )
        for _ in range(5):
            try:
                urllib.request.urlopen(request, timeout=5, context=_tls(request.full_url)).close()
                return
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    return  # it has ended, or the token was revoked
            except OSError:
                pass
            time.sleep(0.5)  # if all tries fail, the lease expires

    def _remove_folders(self) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _end_children(self, number: signal.Signals, within_s: float = 0.0) -> bool:
        """Signal every process and container of the session; return whether all containers are dealt with."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        for _ in range(END_ROUNDS if number == signal.SIGKILL else 1):  # they may start others meanwhile
            found = {*self._session_processes(), *self._cgroup_processes(), *self._orphans()}
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            if not found:
                break
        return self._end_containers(number, within_s)

    def _end_containers(self, number: signal.Signals, within_s: float) -> bool:
        if self._engine is None or not self._session:
            return True
        return end_containers(self._engine, self._session["session_id"], number, within_s)

    def _orphans(self) -> list[int]:
        """Processes that the worker had adopted, with their descendants."""
        found = [pid for pid, started in self._processes if _start(pid) == started]
        return [below for pid in found for below in (*descendants(pid), pid)]

    def _cgroup_processes(self) -> list[int]:
        """Processes in the cgroups of attempts, which they cannot leave."""
        found = []
        for procs_file in self._cgroups:
            for folder, _, _ in os.walk(os.path.dirname(procs_file)):  # members may have made cgroups below theirs
                with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs")) as file:
                    found += [int(pid) for pid in file.read().split()]
        return found

    def _session_processes(self) -> list[int]:
        """Processes with this session in their environment, including daemons that left their process group."""
        if not self._session:
            return []
        entry = f"{SESSION_VARIABLE}={self._session['session_id']}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        entries = file.read().split(b"\0")
                    if entry in entries or any(other.startswith(self._runner_mark) for other in entries):
                        found.append(int(name))
                except OSError:
                    continue
        return found


def _start(pid: int) -> int | None:
    """When a process started, in ticks since boot."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def _tls(url: str) -> ssl.SSLContext | None:
    """The context for the api: with the client certificate of the worker, if it has one."""
    if not url.startswith("https:"):
        return None
    context = ssl.create_default_context()
    if (certificate := os.environ.get("MAINSPRING_TLS_CERT")) and (key := os.environ.get("MAINSPRING_TLS_KEY")):
        context.load_cert_chain(certificate, key)
    return context


class _EngineConnection(http.client.HTTPConnection):
    """HTTP over the engine's Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=ENGINE_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def end_containers(path: str, session_id: str, number: signal.Signals, within_s: float = 0.0) -> bool:
    """End a session's containers; return whether that is done.

    SIGTERM only asks them to end. SIGKILL removes them, and is repeated until none is left or `within_s` is over: an
    engine that is starting a container, or is busy, may refuse or answer late at first.
    """
    filters = urllib.parse.quote(json.dumps({"label": [f"{SESSION_LABEL}={session_id}"]}))
    until = time.monotonic() + within_s
    while True:
        problem = ""
        try:
            containers = json.loads(_request(path, "GET", f"/containers/json?all=1&filters={filters}"))
        except (OSError, ValueError, http.client.HTTPException) as error:
            containers, problem = [], str(error)
        for container in containers:
            try:
                if number == signal.SIGKILL:
                    _request(path, "DELETE", f"/containers/{container['Id']}?force=1&v=1")
                else:
                    _request(path, "POST", f"/containers/{container['Id']}/kill?signal={number.name}")
            except (OSError, http.client.HTTPException) as error:
                problem = str(error)
        if number != signal.SIGKILL or not (containers or problem):
            return True
        if time.monotonic() > until:
            print(f"guardian: containers left at {path}: {problem or 'not removed yet'}", file=sys.stderr)  # noqa: T201
            return False
        time.sleep(POLL_ENGINE_S)


def _request(path: str, method: str, target: str) -> bytes:
    """Return the engine's answer; OSError if it refuses, except that a missing container (404) is fine."""
    connection = _EngineConnection(path)
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
    # It will hold the worker's token: hide its memory and pipe from jobs of the same user, and report that.
    with contextlib.suppress(AttributeError):  # only Linux has it
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    Guardian(sys.stdin.fileno()).watch()


if __name__ == "__main__":
    main()
