"""Runs programs: argv as given, each in a session and process group of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from typing import Any

from mainspring import wire
from mainspring.domain.execution import Outcome
from mainspring.domain.job import ShellTask
from mainspring.domain.sandbox import Sandbox
from mainspring.domain.template import render
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.files import Place, place_of
from mainspring.worker.isolation.folders import Folders
from mainspring.worker.isolation.sandbox import Cell, Means
from mainspring.worker.isolation.spawn import Child, Pipe, spawn

GRACE_S = 10.0
READ_BYTES = 65_536
FLOOD_S = 0.001
"""Between two reads of what nobody keeps any more: a flood costs its worker little, and a program is not held up."""
DRAIN_S = 2.0

# What a task gets of the worker's environment; everything else is the worker's own, its token above all.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL")


class ShellExecutor:
    """The `shell` kind. Each attempt has a temporary folder of its own, which goes with it."""

    def __init__(self) -> None:
        self._folders: Folders | None = None
        self._means = Means()

    async def start(self, host: Host) -> None:
        self._folders = Folders()
        host.children.folder(str(self._folders.root))
        self._means = host.means

    async def stop(self) -> None:
        if self._folders is not None:
            self._folders.remove()

    async def execute(self, work: Work) -> Done:
        assert self._folders is not None
        async with place_of(work, self._folders, again=work.definition.sandbox is None) as place:
            if work.definition.sandbox is None:
                return await self._execute(work, place, None)
            return await self._confined(work, place, work.definition.sandbox)

    async def _confined(self, work: Work, place: Place, sandbox: Sandbox) -> Done:
        cell = Cell(sandbox, self._means, place.folder, work.children)
        try:
            done = await self._execute(work, place, cell)
            if done.outcome == "failed" and (cause := cell.cause(done.exit_code)) is not None:
                return replace(done, error=cause)
            return done
        finally:
            await asyncio.to_thread(cell.close)

    async def _execute(self, work: Work, place: Place, cell: Cell | None) -> Done:
        task = work.definition.task
        assert isinstance(task, ShellTask)
        try:
            process = self._start(task, work, place, cell)
        except KeyError as error:
            return Done("failed", error=f"the parameter {error} was not given", retry=False)
        except FileNotFoundError:
            return Done("failed", exit_code=127, error=f"{_missing(task)}: no such file or directory on this worker")
        except OSError as error:
            return Done("failed", exit_code=126, error=f"{task.argv[0]}: {error.strerror}")
        work.children.born(process.pid)
        try:
            return await self._see_through(process, work, cell)
        finally:
            _signal(process.pid, signal.SIGKILL)  # nothing of the group outlives the attempt
            work.children.gone(process.pid)

    def _start(self, task: ShellTask, work: Work, place: Place, cell: Cell | None) -> Child:
        values = work.values()
        argv = [render(word, values) for word in task.argv]
        if task.shell:
            argv = ["/bin/sh", "-c", argv[0]]
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env["TMPDIR"] = str(place.folder)
        env |= {name: render(value, values) for name, value in task.env.items()}
        env |= work.context() | place.environment()
        cwd = task.cwd
        if cell is not None:
            cwd = cwd or str(place.folder)
            argv = cell.argv(argv, keep=[cwd])
        return spawn(argv, env=env, cwd=cwd)

    async def _see_through(self, process: Child, work: Work, cell: Cell | None) -> Done:
        reading = [
            asyncio.create_task(_read(process.stdout, "stdout", work)),
            asyncio.create_task(_read(process.stderr, "stderr", work)),
        ]
        try:
            outcome = await _wait(process, work, cell)
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


async def _wait(process: Child, work: Work, cell: Cell | None) -> Outcome | None:
    """None when the program ended by itself or by a limit, else why it was ended."""
    ended = asyncio.create_task(process.wait())
    stopped = asyncio.create_task(work.stop.wait())
    events: set[asyncio.Task[Any]] = {ended, stopped}
    if cell is not None and cell.needs_looks:
        events.add(asyncio.create_task(_outgrown(cell)))
    try:
        await asyncio.wait(events, timeout=work.definition.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return None
        if cell is not None and cell.over_disk:
            _signal(process.pid, signal.SIGKILL)
            await ended
            return None
        outcome: Outcome = work.stop_outcome or "timed_out"
        if cell is not None:
            await asyncio.to_thread(cell.let_end)
        _signal(process.pid, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=GRACE_S)
        if not ended.done():
            _signal(process.pid, signal.SIGKILL)
            await ended
        return outcome
    finally:
        for event in events:
            event.cancel()


async def _outgrown(cell: Cell) -> None:
    """Returns when the temporary folder is too large."""
    while True:
        await asyncio.sleep(cell.pause_s)
        if await asyncio.to_thread(cell.look):
            return


async def _read(pipe: Pipe, stream: wire.Stream, work: Work) -> None:
    try:
        while data := await pipe.read(READ_BYTES):
            work.output.write(stream, data)
            if len(data) == READ_BYTES:  # it may write faster than we read: others have their turn in between
                await asyncio.sleep(FLOOD_S if work.output.is_cut else 0)
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
