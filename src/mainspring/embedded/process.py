"""Child processes of the supervisor, independent of the event loop.

They are `subprocess` children and not asyncio's, which are killed when their loop closes: a server must outlive the
loop on which it was started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from . import launch


def spawn(
    program: Sequence[str | Path], *, identity: str, folder: Path, stdin: IO[bytes] | None, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a PostgreSQL program in its own session, so that Ctrl-C reaches only the supervisor.

    The kernel ends it with the calling *thread*: call this on a thread that lasts as long as the server.
    """
    launcher = [sys.executable, "-I", "-S", launch.__file__, identity, str(os.getpid()), str(folder)]
    return subprocess.Popen(
        [*launcher, *map(str, program)],
        stdin=stdin or subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=_environment(),
    )


async def run(program: Sequence[str | Path], *, identity: str, folder: Path, input: str = "") -> tuple[int, str]:
    """Run a program to its end; return its exit status and output."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
        given.write(input.encode())
        given.seek(0)
        process = spawn(program, identity=identity, folder=folder, stdin=given, output=output)
        try:
            code = await ended(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for a child's exit status."""
    while (code := process.poll()) is None:
        await _until_gone(process.pid)
    return code


async def stop(pid: int, *signals: tuple[signal.Signals, float]) -> bool:
    """Send each signal in turn and wait its number of seconds; return True once the process has ended."""
    for number, timeout_s in signals:
        try:
            os.kill(pid, number)
            async with asyncio.timeout(timeout_s):
                while alive(pid):
                    await _until_gone(pid)
        except ProcessLookupError:
            return True
        except TimeoutError:
            continue
        return True
    return False


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return sys.platform != "linux"
    return state not in "ZX"


async def _until_gone(pid: int) -> None:
    """Return when the process has ended, or after 50 ms on systems without pidfd."""
    descriptor = _pidfd(pid)
    if descriptor is None:
        await asyncio.sleep(0.05)
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _pidfd(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS and others would affect the server. LC_ALL=C because `diagnose` reads its messages.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}
