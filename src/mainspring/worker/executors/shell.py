"""Executes programs, each in its own session and process group."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mainspring import wire
from mainspring.domain.execution import Outcome
from mainspring.domain.job import ShellTask
from mainspring.domain.sandbox import MASKED, Sandbox
from mainspring.domain.template import render
from mainspring.worker.attempt_folder import AttemptFolder, attempt_folder
from mainspring.worker.executors import Done, Host, Work, missing_parameter, refuse_splicing
from mainspring.worker.isolation.folders import FolderPool
from mainspring.worker.isolation.orphans import Orphans
from mainspring.worker.isolation.sandbox import Confinement, SandboxSupport
from mainspring.worker.isolation.spawn import ChildProcess, OutputPipe, signal_group, signal_name, spawn

GRACE_S = 10.0
"""Between SIGTERM and SIGKILL."""
READ_BYTES = 65_536
DROPPED_OUTPUT_S = 0.001
"""Between two reads of output that is dropped: the worker spends little on it, and the program is not held up."""
CLOSE_S = 2.0
"""How long to read on after the program has ended."""


class ShellExecutor:
    """The `shell` kind. Each attempt has its own temporary folder."""

    def __init__(self) -> None:
        self._folders: FolderPool | None = None
        self._environment: Mapping[str, str] = {}
        self._sandbox_support = SandboxSupport()
        self._orphans: Orphans | None = None

    async def start(self, host: Host) -> None:
        self._folders = FolderPool()
        host.cleanup.add_folder(str(self._folders.root))
        self._sandbox_support = host.sandbox_support
        self._orphans = host.orphans
        self._environment = host.environment

    async def stop(self) -> None:
        if self._folders is not None:
            self._folders.remove()

    async def execute(self, work: Work) -> Done:
        assert self._folders is not None
        async with attempt_folder(work, self._folders, reusable=work.definition.sandbox is None) as folder:
            if work.definition.sandbox is None:
                return await self._execute(work, folder, None)
            return await self._execute_confined(work, folder, work.definition.sandbox)

    async def _execute_confined(self, work: Work, folder: AttemptFolder, sandbox: Sandbox) -> Done:
        confinement = Confinement(sandbox, self._sandbox_support, folder.path, work.cleanup)
        try:
            done = await self._execute(work, folder, confinement)
            if done.outcome == "failed" and (limit := confinement.exceeded_limit(done.exit_code)) is not None:
                return replace(done, error=limit)
            return done
        finally:
            await asyncio.to_thread(confinement.close)

    async def _execute(self, work: Work, folder: AttemptFolder, confinement: Confinement | None) -> Done:
        task = work.definition.task
        assert isinstance(task, ShellTask)
        if (refused := refuse_splicing(task) or _refuse_folder(task, confinement)) is not None:
            return refused
        try:
            process = self._start(task, work, folder, confinement)
        except KeyError as error:
            return missing_parameter(error)
        except FileNotFoundError:
            return Done("failed", exit_code=127, error=f"{_missing(task)}: no such file or directory on this worker")
        except OSError as error:
            return Done("failed", exit_code=126, error=f"{task.argv[0]}: {error.strerror}")
        work.cleanup.add_process_group(process.pid)
        if self._orphans is not None:
            self._orphans.begin(process.pid, work.marks())
        try:
            return await self._wait_for_end(process, work, confinement)
        finally:
            work.cleanup.remove_process_group(process.pid)

    def _start(
        self, task: ShellTask, work: Work, folder: AttemptFolder, confinement: Confinement | None
    ) -> ChildProcess:
        values = work.values()
        argv = [render(word, values) for word in task.argv]
        if task.shell:
            argv = ["/bin/sh", "-c", argv[0]]
        env = dict(self._environment)
        env["TMPDIR"] = str(folder.path)
        env |= {name: render(value, values) for name, value in task.env.items()}
        env |= work.context() | folder.environment()
        if confinement is None:
            return spawn(argv, env=env, cwd=task.cwd)
        cwd = task.cwd or str(folder.path)
        if not os.path.isdir(cwd):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cwd)
        argv, settings = confinement.command(argv, env=env, cwd=cwd)
        try:
            return spawn(argv, env={}, inherit=settings)
        finally:
            os.close(settings)

    async def _wait_for_end(self, process: ChildProcess, work: Work, confinement: Confinement | None) -> Done:
        reading = [
            asyncio.create_task(_read(process.stdout, "stdout", work)),
            asyncio.create_task(_read(process.stderr, "stderr", work)),
        ]
        try:
            stopped = await _wait(process, work, confinement)
        finally:
            signal_group(process.pid, signal.SIGKILL)  # no process outlives the attempt, in its group or outside
            if self._orphans is not None:
                await self._orphans.end(process.pid)
            # A process of another user may keep the pipes open; the attempt does not wait for it.
            await asyncio.wait(reading, timeout=CLOSE_S)
            for task in reading:
                task.cancel()
        code, work.usage = process.returncode, process.usage
        if stopped is not None:
            return work.stopped(stopped, code)
        if code == 0:
            return Done("succeeded", 0)
        error = f"ended by {signal_name(code)}" if code and code < 0 else f"exit code {code}"
        return Done("failed", code, work.output.explain(error))


async def _wait(process: ChildProcess, work: Work, confinement: Confinement | None) -> Outcome | None:
    """Wait for the program's end. Return why the worker ended it; None if it exited or exceeded a limit."""
    ended = asyncio.create_task(process.wait())
    stopped = asyncio.create_task(work.stop.wait())
    events: set[asyncio.Task[Any]] = {ended, stopped}
    if confinement is not None and confinement.needs_checks:
        events.add(asyncio.create_task(_check_until_over_disk(confinement)))
    try:
        await asyncio.wait(events, timeout=work.definition.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return None
        if confinement is not None and confinement.over_disk:
            signal_group(process.pid, signal.SIGKILL)
            await ended
            return None
        outcome: Outcome = work.stop_outcome or "timed_out"
        if confinement is not None:
            await asyncio.to_thread(confinement.release)
        signal_group(process.pid, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=GRACE_S)
        if not ended.done():
            signal_group(process.pid, signal.SIGKILL)
            await ended
        return outcome
    finally:
        for event in events:
            event.cancel()


async def _check_until_over_disk(confinement: Confinement) -> None:
    while True:
        await asyncio.sleep(confinement.check_interval_s)
        if await asyncio.to_thread(confinement.check):
            return


async def _read(pipe: OutputPipe, stream: wire.Stream, work: Work) -> None:
    try:
        while data := await pipe.read(READ_BYTES):
            work.output.write(stream, data)
            if len(data) == READ_BYTES:  # the program may write faster than this reads: let other tasks run
                await asyncio.sleep(DROPPED_OUTPUT_S if work.output.is_full else 0)
    finally:
        pipe.close()
        work.output.finish(stream)


def _refuse_folder(task: ShellTask, confinement: Confinement | None) -> Done | None:
    if task.cwd is None or confinement is None or not confinement.hides(task.cwd):
        return None
    error = f"cwd: {task.cwd} is hidden in the sandbox; use a folder outside {', '.join(MASKED)}, or leave it out"
    return Done("failed", error=error, retry=False)


def _missing(task: ShellTask) -> str:
    return task.cwd if task.cwd and not os.path.isdir(task.cwd) else task.argv[0]
