"""Ends the processes that a call has started and left behind, before the call is answered.

The runner is a child subreaper, so that also processes which detached themselves are its children. Those that the
modules started while they were loaded stay.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from mainspring.process_tree import adopt_orphans, children_of, descendants

END_S = 5.0
WAIT_S = 0.002


class Leftovers:
    """The processes that are children of this runner."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            adopt_orphans()
        self._kept = frozenset(children_of(os.getpid()))

    def end(self) -> None:
        """End what a call has left. With no child at all, which is nearly always so, it is one system call."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        deadline = time.monotonic() + END_S
        while (left := self._left()) and time.monotonic() < deadline:
            for pid in left:
                for below in (*descendants(pid), pid):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(below, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(WAIT_S)

    def _left(self) -> list[int]:
        kept = self._kept | _trackers()
        return [pid for pid in children_of(os.getpid()) if pid not in kept]


def _trackers() -> set[int]:
    """The process that `multiprocessing` keeps for shared memory of this process, and restarts with a warning."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return set() if pid is None else {pid}
