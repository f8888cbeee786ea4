"""Calls Python functions in runner processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mainspring.domain.sandbox import Sandbox
from mainspring.domain.task import PythonTask
from mainspring.domain.template import fill
from mainspring.worker.executors import Done, Host, Work, missing_parameter
from mainspring.worker.isolation.folders import INPUTS
from mainspring.worker.isolation.sandbox import Confinement
from mainspring.worker.python.folders import RunnerFolders
from mainspring.worker.python.pool import RunnerPool
from mainspring.worker.python.runner_process import QueuedCall


class PythonExecutor:
    """The `python` kind. A worker offers it if it was started with modules."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._pool: RunnerPool | None = None
        self._folders: RunnerFolders | None = None
        self._confined: set[asyncio.Task[None]] = set()

    async def start(self, host: Host) -> None:
        self._host = host
        if host.modules:
            self._folders = RunnerFolders()
            host.cleanup.add_folder(str(self._folders.root))
            self._pool = RunnerPool(host, self._folders)
            await self._pool.start()

    async def stop(self) -> None:
        if self._pool is not None:
            await self._pool.stop()
        if self._folders is not None:
            self._folders.remove()

    def reload(self) -> None:
        """Replace the runners: the modules have changed."""
        if self._pool is not None:
            self._pool.replace_runners()

    @property
    def processes(self) -> list[int]:
        return [] if self._pool is None else self._pool.processes

    async def execute(self, work: Work) -> Done:
        ended: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self.begin(work, lambda _, done: None if ended.done() else ended.set_result(done))
        return await ended

    def begin(self, work: Work, finish: Callable[[Work, Done], None]) -> None:
        task = work.definition.task
        assert isinstance(task, PythonTask)
        if self._pool is None:
            problem = "this worker has no Python modules: start it with `mainspring worker -m MODULE`"
            finish(work, Done("failed", error=problem))
            return
        args: dict[str, Any] = work.params
        if task.args:
            try:
                args = fill(task.args, work.values()) | args
            except KeyError as error:
                finish(work, missing_parameter(error))
                return
        call = QueuedCall(work, task.function, args, finish)
        if work.definition.sandbox is None:
            self._pool.submit(call)
            return
        confined = asyncio.get_running_loop().create_task(self._execute_confined(call, work.definition.sandbox))
        self._confined.add(confined)
        confined.add_done_callback(self._confined.discard)

    async def _execute_confined(self, call: QueuedCall, sandbox: Sandbox) -> None:
        """Call the function in its own confined runner: the others are shared, and limits apply to one attempt."""
        assert self._host is not None and self._folders is not None
        work = call.work
        done = Done("failed", error="cannot set up the sandbox")
        folder = self._folders.new_attempt()
        try:
            if work.inputs is not None:
                work.inputs = work.inputs.rename(folder / INPUTS)
            confinement = Confinement(sandbox, self._host.sandbox_support, folder, work.cleanup)
            try:
                done = await self._call_confined(confinement, folder, call)
            finally:
                await asyncio.to_thread(confinement.close)
        except Exception as error:
            done = Done("failed", error=f"cannot set up the sandbox: {error}")
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            call.finish(work, done)

    async def _call_confined(self, confinement: Confinement, folder: Path, call: QueuedCall) -> Done:
        assert self._host is not None and self._folders is not None
        keep = [os.getcwd(), sys.prefix, sys.base_prefix, *sys.path, *self._host.modules]

        def wrap(argv: list[str], env: dict[str, str]) -> tuple[list[str], int]:
            env = env | {"TMPDIR": str(folder)}
            return confinement.command(argv, env=env, keep=(path for path in keep if path))

        pool = RunnerPool(replace(self._host, slots=1), self._folders, parent=folder, wrap=wrap)
        ended: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

        def finish(_: Work, done: Done) -> None:
            if not ended.done():
                ended.set_result(done)

        try:
            await pool.start()
            pool.submit(QueuedCall(call.work, call.function, call.args, finish))
            done = await self._wait_within_limits(confinement, call.work, ended)
        finally:
            await pool.stop()
        if done.outcome == "failed" and (limit := confinement.exceeded_limit(done.exit_code)) is not None:
            return replace(done, error=limit)
        return done

    async def _wait_within_limits(self, confinement: Confinement, work: Work, ended: asyncio.Future[Done]) -> Done:
        while confinement.needs_checks and not ended.done():
            await asyncio.wait({ended}, timeout=confinement.check_interval_s)
            if not ended.done() and await asyncio.to_thread(confinement.check):
                return Done("failed")
            if work.stop_outcome is not None:
                await asyncio.to_thread(confinement.release)
        return await ended
