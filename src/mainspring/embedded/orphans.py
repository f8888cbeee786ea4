"""Cleans up before a start: ends processes that a killed supervisor or postmaster left on the data."""

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
    """Stop every PostgreSQL process that still uses `data`, and neutralize its pid file."""
    postmaster = _postmaster(data)
    if postmaster is not None and not await stop(postmaster, FAST, IMMEDIATE):
        raise DirectoryInUse(f"PostgreSQL process {postmaster} still serves {data} and does not stop; kill it")
    await end_stragglers(data)
    _disown(data)


async def end_stragglers(data: Path) -> None:
    """End backends that outlived a killed postmaster; a new postmaster does not start while they run."""
    for pid in _working_in(data):
        await stop(pid, (signal.SIGQUIT, 2.0), (signal.SIGKILL, 5.0))


def _postmaster(data: Path) -> int | None:
    pid = recorded_pid(data)
    return pid if pid and alive(pid) and _serves(pid, data) else None


def recorded_pid(data: Path) -> int | None:
    """Return the pid in the first line of `postmaster.pid`, which may be stale."""
    try:
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _serves(pid: int, data: Path) -> bool:
    """Whether the process is a postgres of this directory; pids are reused, so a live pid proves nothing."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except FileNotFoundError:
        listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
        return "postgres" in listed.stdout and str(data) in listed.stdout
    return pid in _working_in(data) or (Path(words[0]).name == "postgres" and str(data) in words)


def _working_in(data: Path) -> list[int]:
    """Return every visible postgres process whose working directory is `data`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text() == "postgres\n" and (entry / "cwd").samefile(data):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _disown(data: Path) -> None:
    """Write this process's pid into a stale pid file: PostgreSQL ignores its parent's pid and overwrites the file.

    Deleting the file would also delete the shared memory key by which PostgreSQL ensures that no backend of the dead
    server is left. A reused pid in the file would keep the new server from starting.
    """
    path = data / "postmaster.pid"
    if not path.exists():
        return
    lines = path.read_text().splitlines()
    if recorded_pid(data) is None or len(lines) < 5:
        path.unlink()
    else:
        replace(path, "\n".join([str(os.getpid()), *lines[1:]]) + "\n")
