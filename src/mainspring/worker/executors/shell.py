"""Runs programs: argv as given, each in a session and process group of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

from mainspring import wire
from mainspring.domain.execution import Outcome
from mainspring.domain.job import ShellTask
from mainspring.domain.template import render
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.progress import FileProgress
from mainspring.worker.spawn import Child, Pipe, spawn

GRACE_S = 10.0
READ_BYTES = 65_536
DRAIN_S = 2.0

# What a task gets of the worker's environment; everything else is the worker's own, its token above all.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL")


class ShellExecutor:
    """The `shell` kind."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    async def start(self, host: Host) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mainspring-"))

    async def stop(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def execute(self, work: Work) -> Done:
        told = None
        if self._folder is not None:
            told = self._folder / f"{work.assignment.execution_id}.{work.assignment.attempt}"
            work.progress = FileProgress(told)
        try:
            return await self._execute(work, told)
        finally:
            if told is not None:
                told.unlink(missing_ok=True)

    async def _execute(self, work: Work, told: Path | None) -> Done:
        task = work.definition.task
        assert isinstance(task, ShellTask)
        try:
            process = self._start(task, work, told)
        except KeyError as error:
            return Done("failed", error=f"the parameter {error} was not given", retry=False)
        except FileNotFoundError:
            return Done("failed", exit_code=127, error=f"{_missing(task)}: no such file or directory on this worker")
        except OSError as error:
            return Done("failed", exit_code=126, error=f"{task.argv[0]}: {error.strerror}")
        work.children.born(process.pid)
        try:
            return await self._see_through(process, work)
        finally:
            _signal(process.pid, signal.SIGKILL)  # nothing of the group outlives the attempt
            work.children.gone(process.pid)

    def _start(self, task: ShellTask, work: Work, told: Path | None) -> Child:
        values = work.values()
        argv = [render(word, values) for word in task.argv]
        if task.shell:
            argv = ["/bin/sh", "-c", argv[0]]
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {name: render(value, values) for name, value in task.env.items()}
        env |= work.context()
        if told is not None:
            env["MAINSPRING_PROGRESS"] = str(told)
        return spawn(argv, env=env, cwd=task.cwd)

    async def _see_through(self, process: Child, work: Work) -> Done:
        reading = [
            asyncio.create_task(_read(process.stdout, "stdout", work)),
            asyncio.create_task(_read(process.stderr, "stderr", work)),
        ]
        try:
            outcome = await _wait(process, work)
        finally:
            _signal(process.pid, signal.SIGKILL)
            # A grandchild outside the group may hold the pipes open; it must not hold the attempt.
            await asyncio.wait(reading, timeout=DRAIN_S)
            for task in reading:
                task.cancel()
        code = process.returncode
        if outcome is not None:
            error = f"timed out after {work.definition.timeout_s:g} s" if outcome == "timed_out" else outcome
            return Done(outcome, code, error)
        if code == 0:
            return Done("succeeded", 0)
        return Done("failed", code, f"ended by {_signal_name(code)}" if code and code < 0 else f"exit code {code}")


async def _wait(process: Child, work: Work) -> Outcome | None:
    """None when the program ended by itself, else why it was ended."""
    ended = asyncio.create_task(process.wait())
    stopped = asyncio.create_task(work.stop.wait())
    try:
        await asyncio.wait({ended, stopped}, timeout=work.definition.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return None
        outcome: Outcome = work.stop_outcome or "timed_out"
        _signal(process.pid, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=GRACE_S)
        if not ended.done():
            _signal(process.pid, signal.SIGKILL)
            await ended
        return outcome
    finally:
        stopped.cancel()
        ended.cancel()


async def _read(pipe: Pipe, stream: wire.Stream, work: Work) -> None:
    try:
        while data := await pipe.read(READ_BYTES):
            work.output.write(stream, data)
    finally:
        pipe.close()
        work.output.finish(stream)


def _missing(task: ShellTask) -> str:
    return task.cwd if task.cwd and not os.path.isdir(task.cwd) else task.argv[0]


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
