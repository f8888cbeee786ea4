"""Makes way for a start: ends what a killed supervisor or postmaster left running on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from .errors import DirectoryInUse
from .files import replace
from .process import alive, stop

FAST = (signal.SIGINT, 20.0)
IMMEDIATE = (signal.SIGQUIT, 10.0)


async def clear(data: Path) -> None:
    """Stop every PostgreSQL process that still works on `data`, and make its pid file harmless."""
    postmaster = _postmaster(data)
    if postmaster is not None and not await stop(postmaster, FAST, IMMEDIATE):
        raise DirectoryInUse(f"PostgreSQL process {postmaster} still serves {data} and won't stop; end it")
    await end_stragglers(data)
    _disown(data)


async def end_stragglers(data: Path) -> None:
    """End the backends that outlived a killed postmaster; a new one refuses to start beside them."""
    for pid in _working_in(data):
        await stop(pid, (signal.SIGQUIT, 2.0), (signal.SIGKILL, 5.0))


def _postmaster(data: Path) -> int | None:
    pid = recorded_pid(data)
    return pid if pid and alive(pid) and _serves(pid, data) else None


def recorded_pid(data: Path) -> int | None:
    """The pid in the first line of `postmaster.pid`, of whoever wrote it."""
    try:
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _serves(pid: int, data: Path) -> bool:
    """Pids are reused, so a live one proves nothing: it has to be a postgres of this very directory."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except FileNotFoundError:
        answer = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
        return "postgres" in answer.stdout and str(data) in answer.stdout
    return pid in _working_in(data) or (Path(words[0]).name == "postgres" and str(data) in words)


def _working_in(data: Path) -> list[int]:
    """Every postgres process whose working directory is `data`, as far as we may look."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text() == "postgres\n" and (entry / "cwd").samefile(data):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _disown(data: Path) -> None:
    """Put our own pid in a stale pid file, which PostgreSQL then takes for its parent's and overrides.

    Deleting the file would also delete the key of the shared memory by which PostgreSQL makes sure that no
    backend of the dead server is left; a recycled pid in it would keep the new server from starting.
    """
    path = data / "postmaster.pid"
    if not path.exists():
        return
    lines = path.read_text().splitlines()
    if recorded_pid(data) is None or len(lines) < 5:
        path.unlink()
    else:
        replace(path, "\n".join([str(os.getpid()), *lines[1:]]) + "\n")
