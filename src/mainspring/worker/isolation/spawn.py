"""Starts programs without blocking the event loop.

asyncio's own subprocesses fork, which copies the worker's page tables and blocks for milliseconds; `posix_spawn` does
not. A pidfd signals the program's end, and its output is read when there is some.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
from collections.abc import Mapping, Sequence

from mainspring.worker.usage import Usage

# posix_spawn can't change the working directory; `exec` replaces this shell by the program.
_CHANGE_FOLDER = ("/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh")
# Python ignores these, and the program would inherit that.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)


class OutputPipe:
    """The reading end of a pipe. Nothing is read ahead, so a program that writes faster than it is read blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    async def read(self, max_bytes: int) -> bytes:
        """Return what is available, waiting if nothing is; empty at the end."""
        while self._descriptor is not None:
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await _readable(self._descriptor)
                continue
            if not data:
                self.close()
            return data
        return b""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ChildProcess:
    """A started program, in its own session and process group."""

    def __init__(self, pid: int, stdout: OutputPipe, stderr: OutputPipe) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self.usage: Usage | None = None  # once it has ended
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # this system has no pidfds
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(descriptor, self._reap, descriptor)

    @property
    def returncode(self) -> int | None:
        """The exit code, or the negated number of the signal that ended it, as in `subprocess`."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _reap(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._ended.set_result(self._exit_code())

    def _wait_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set_result, self._exit_code())

    def _exit_code(self) -> int:
        try:
            _, status, used = os.wait4(self.pid, 0)
        except ChildProcessError:  # reaped elsewhere: its exit code is unknown
            return 255
        # Linux counts the memory of the worker at the start of the program as the program's: a lower bound of the peak.
        self.usage = Usage(round((used.ru_utime + used.ru_stime) * 1000), used.ru_maxrss * 1024)
        return os.waitstatus_to_exitcode(status)


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, inherit: int | None = None
) -> ChildProcess:
    """Start a program with an empty stdin. Raises what `exec` would: FileNotFoundError, PermissionError, ...

    `inherit` is a descriptor that the program has, too, under the same number.
    """
    file = _find_program(argv[0], env, cwd or "")
    if cwd is not None:
        file, argv = _CHANGE_FOLDER[0], [*_CHANGE_FOLDER, cwd, *argv]
    out, out_end = _pipe()
    try:
        err, err_end = _pipe()
    except OSError:
        os.close(out)
        os.close(out_end)
        raise
    try:
        pid = os.posix_spawn(
            file,
            list(argv),
            env,
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_end, 1),
                (os.POSIX_SPAWN_DUP2, err_end, 2),
                *([] if inherit is None else [(os.POSIX_SPAWN_DUP2, inherit, inherit)]),
            ],
        )
    except BaseException:
        os.close(out)
        os.close(err)
        raise
    finally:
        os.close(out_end)
        os.close(err_end)
    return ChildProcess(pid, OutputPipe(out), OutputPipe(err))


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a process group, which may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_name(exit_code: int) -> str:
    """Return the name of the signal in a negative exit code."""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe. Only the reading end is non-blocking: programs expect to write to a blocking one."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return reading, writing


def _find_program(program: str, env: Mapping[str, str], cwd: str) -> str:
    """Return the file of a program by its PATH and working directory.

    Found before it is started: the shell that changes the folder would only print that it is missing.
    """
    if cwd and not os.path.isdir(cwd):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cwd)
    folders = [""] if "/" in program else env.get("PATH", os.defpath).split(os.pathsep)
    candidates = [os.path.join(cwd, folder, program) for folder in folders]
    for file in candidates:
        if os.access(file, os.X_OK) and os.path.isfile(file):
            return file
    code = errno.EACCES if any(map(os.path.exists, candidates)) else errno.ENOENT
    raise OSError(code, os.strerror(code), program)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(descriptor, _set_done, readable)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


def _set_done(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
