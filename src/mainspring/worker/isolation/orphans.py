"""Processes that leave their attempt, by `setsid` or by a double fork: found and ended with it.

The worker is a child subreaper: the kernel makes it the parent of every descendant whose own parent has ended. A child
of the worker that it did not start is therefore an orphan. It belongs to the attempt whose session it is in, or whose
mark it has in its environment. One without either is ended as soon as no attempt runs that could have started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from mainspring.process_tree import adopt_orphans, descendants
from mainspring.worker.cleanup import CleanupRegistry

log = structlog.get_logger()

END_S = 5.0
"""How long to wait for killed processes; only one that hangs in the kernel takes longer."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.001, 0.02
STOP_ROUNDS = 5
READ_BYTES = 65_536
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TOLERANCE_TICKS = _TICKS_PER_S
"""An attempt may have begun this long before it was registered, on a busy machine."""


@dataclass(frozen=True, slots=True)
class _Root:
    """A process that the worker started. `marks` are entries in the environment of all that it starts."""

    marks: frozenset[bytes]
    started: int  # in ticks since boot
    keeps_orphans: bool  # it is a subreaper itself: its descendants come to the worker only after its end


class Orphans:
    """The children of a worker process, own and adopted.

    `sole`: all own children are registered here, so that any other child is an orphan. Not so with plug-ins, which may
    start processes: then only orphans that can be attributed to an attempt are ended.
    """

    def __init__(self, cleanup: CleanupRegistry, *, sole: bool) -> None:
        adopt_orphans()
        self._cleanup = cleanup
        self._sole = sole
        # Kept open, and ids compared as text: a check of 64 children takes 20 µs, not 38. Each attempt ends with one.
        self._children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        self._roots: dict[int, _Root] = {}
        self._known: set[bytes] = set()  # the ids of `_roots`
        self._starting = 0
        self._reported: dict[int, int] = {}  # orphans that the guardian knows, with their start

    def begin(self, pid: int, marks: Iterable[str], *, keeps_orphans: bool = False) -> None:
        """Register a process that the worker has just started, in its own session."""
        entries = frozenset(mark.encode() for mark in marks)
        started = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)
        self._roots[pid] = _Root(entries, started, keeps_orphans)
        self._known.add(b"%d" % pid)

    async def end(self, pid: int) -> None:
        """End everything that a process, which has ended, has left. Returns at once if there is nothing."""
        root = self._roots.get(pid)
        self.disown(pid)
        if root is None:
            return
        wait_s, deadline = FIRST_WAIT_S, time.monotonic() + END_S
        while left := self._left(pid, root):
            _kill(left)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            if time.monotonic() > deadline:
                log.error("attempt.processes_left", pids=left[:20])
                return

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Hold while the worker starts a process whose id it does not know at once."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    def own(self, pid: int) -> None:
        """Register a process that is no attempt's."""
        self.begin(pid, (), keeps_orphans=True)

    def disown(self, pid: int) -> None:
        self._roots.pop(pid, None)
        self._known.discard(b"%d" % pid)

    def collect(self) -> None:
        """Reap orphans that have ended, and report the others to the guardian. Call it every second or so."""
        states = {pid: state for pid in self._adopted() if (state := _state(pid)) is not None}
        found = {pid: state for pid, state in states.items() if not self._reap(pid, state)}
        for pid in self._reported.keys() - found.keys():
            self._cleanup.remove_process(pid, self._reported.pop(pid))
        for pid in found.keys() - self._reported.keys():
            self._reported[pid] = found[pid].started
            self._cleanup.add_process(pid, found[pid].started)
            log.info("orphan.adopted", pid=pid)

    def _adopted(self) -> list[int]:
        """Return the children that the worker did not start. Orphans come to its main thread."""
        text, offset = b"", 0
        while part := os.pread(self._children, READ_BYTES, offset):
            text, offset = text + part, offset + len(part)
        return [int(pid) for pid in set(text.split()) - self._known]

    def _left(self, leader: int, root: _Root) -> list[int]:
        """Return the living processes that an ended one has left, with their descendants."""
        left = []
        for pid in self._adopted():
            state = _state(pid)
            if state is None or self._reap(pid, state):
                continue
            if state.session == leader or self._is_of(pid, state, root):
                left += [pid, *descendants(pid)]
        return left

    def _reap(self, pid: int, state: _State) -> bool:
        """Take the exit code of an orphan that has ended; return whether it had."""
        if state.letter != "Z":
            return False
        if self._sole and not self._starting:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return True

    def _is_of(self, pid: int, state: _State, root: _Root) -> bool:
        environment = _environment(pid)
        if root.marks <= environment:
            return bool(root.marks)
        others = [other for other in self._roots.values() if not other.keeps_orphans]
        if not self._sole or self._starting or any(other.marks <= environment for other in others):
            return False
        # It has no mark: it may be of any attempt that was running when it started.
        return not any(other.started <= state.started + TOLERANCE_TICKS for other in others)


@dataclass(frozen=True, slots=True)
class _State:
    letter: str
    session: int
    started: int


def _state(pid: int) -> _State | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return _State(words[0].decode(), int(words[3]), int(words[19]))


def _environment(pid: int) -> frozenset[bytes]:
    """Return the entries of a process's environment; none if it is hidden."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return frozenset(file.read().split(b"\0"))
    except OSError:
        return frozenset()


def _kill(pids: list[int]) -> None:
    """Kill processes and all their descendants. They are stopped first, so that none starts another meanwhile."""
    stopped: set[int] = set()
    for _ in range(STOP_ROUNDS):
        new = {below for pid in pids for below in (pid, *descendants(pid))} - stopped
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
        if not new:
            break
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
