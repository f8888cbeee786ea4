"""Starts programs quickly: the worker does not stand still meanwhile, however large it is.

The event loop's own way forks, which copies the worker's page tables and holds everything up for milliseconds;
`posix_spawn` does not. The end of a program is told by a pidfd, and its output is read when there is some.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Mapping, Sequence

# posix_spawn can't change the folder; `exec` leaves nothing of this shell behind.
_IN_FOLDER = ("/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh")
# Python ignores these, and the program would go on ignoring them.
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ)


class Pipe:
    """The reading end of a pipe. Nothing is read ahead: whoever writes more than is read must wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    async def read(self, most: int) -> bytes:
        """What there is; nothing at the end."""
        while self._descriptor is not None:
            try:
                data = os.read(self._descriptor, most)
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


class Child:
    """A program that was started, in a session and process group of its own."""

    def __init__(self, pid: int, stdout: Pipe, stderr: Pipe) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # not on this system
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(descriptor, self._reap, descriptor)

    @property
    def returncode(self) -> int | None:
        """As the standard library has it: negative for the signal that ended it."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _reap(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._ended.set_result(_code_of(self.pid))

    def _wait_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set_result, _code_of(self.pid))


def spawn(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None) -> Child:
    """Starts a program with nothing to read; raises what `exec` would, FileNotFoundError above all."""
    file = _found(argv[0], env, cwd or "")
    if cwd is not None:
        file, argv = _IN_FOLDER[0], [*_IN_FOLDER, cwd, *argv]
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
            setsigdef=_DEFAULTS,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_end, 1),
                (os.POSIX_SPAWN_DUP2, err_end, 2),
            ],
        )
    except BaseException:
        os.close(out)
        os.close(err)
        raise
    finally:
        os.close(out_end)
        os.close(err_end)
    return Child(pid, Pipe(out), Pipe(err))


def _pipe() -> tuple[int, int]:
    """Only our end never blocks: programs expect theirs to."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return ours, theirs


def _found(program: str, env: Mapping[str, str], cwd: str) -> str:
    """The file of a program as seen from a folder, by the PATH it is given: not there is an error, not its output."""
    if cwd and not os.path.isdir(cwd):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cwd)
    folders = [""] if "/" in program else env.get("PATH", os.defpath).split(os.pathsep)
    candidates = [os.path.join(cwd, folder, program) for folder in folders]
    for file in candidates:
        if os.access(file, os.X_OK) and os.path.isfile(file):
            return file
    code = errno.EACCES if any(map(os.path.exists, candidates)) else errno.ENOENT
    raise OSError(code, os.strerror(code), program)


def _code_of(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # somebody else took it: nothing is known of its end
        return 255


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(descriptor, _tell, readable)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


def _tell(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
