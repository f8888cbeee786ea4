"""Calls functions, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mainspring.domain.sandbox import Sandbox
from mainspring.domain.task import PythonTask
from mainspring.domain.template import fill
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.isolation.folders import INPUTS
from mainspring.worker.isolation.sandbox import Cell
from mainspring.worker.python.pool import Pool
from mainspring.worker.python.runner import Item


class PythonExecutor:
    """The `python` kind. A worker offers it if it was told which modules to load."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._pool: Pool | None = None
        self._cells: set[asyncio.Task[None]] = set()

    async def start(self, host: Host) -> None:
        self._host = host
        if host.modules:
            self._pool = Pool(host)
            await self._pool.start()

    async def stop(self) -> None:
        if self._pool is not None:
            await self._pool.stop()

    def renew(self) -> None:
        """The modules have changed."""
        if self._pool is not None:
            self._pool.renew()

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
            what = "this worker calls no functions: start it with mainspring worker -m MODULE"
            finish(work, Done("failed", error=what))
            return
        try:
            args: dict[str, Any] = fill(task.args, work.values()) if task.args else {}
        except KeyError as error:
            finish(work, Done("failed", error=f"the parameter {error} was not given", retry=False))
            return
        if work.definition.sandbox is None:
            self._pool.submit(Item(work, task.function, args | work.params, finish))
            return
        confined = asyncio.get_running_loop().create_task(
            self._confined(work, work.definition.sandbox, task.function, args | work.params, finish)
        )
        self._cells.add(confined)
        confined.add_done_callback(self._cells.discard)

    async def _confined(
        self, work: Work, sandbox: Sandbox, function: str, args: dict[str, Any], finish: Callable[[Work, Done], None]
    ) -> None:
        """A runner of its own, in a cell: the others are shared, and limits are not."""
        assert self._host is not None
        done = Done("failed", error="the sandbox could not be made")
        folder = Path(tempfile.mkdtemp(prefix="mainspring-"))
        try:
            if work.inputs is not None:
                work.inputs = work.inputs.rename(folder / INPUTS)
            cell = Cell(sandbox, self._host.means, folder, work.children)
            try:
                done = await self._call_inside(cell, folder, work, function, args)
            finally:
                await asyncio.to_thread(cell.close)
        except Exception as error:
            done = Done("failed", error=f"the sandbox could not be made: {error}")
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            finish(work, done)

    async def _call_inside(self, cell: Cell, folder: Path, work: Work, function: str, args: dict[str, Any]) -> Done:
        assert self._host is not None
        keep = [os.getcwd(), sys.prefix, sys.base_prefix, *sys.path, *self._host.modules]

        def wrap(argv: list[str]) -> tuple[list[str], dict[str, str]]:
            return cell.argv(argv, keep=(path for path in keep if path)), {"TMPDIR": str(folder)}

        pool = Pool(replace(self._host, slots=1), wrap=wrap)
        ended: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        try:
            await pool.start()
            pool.submit(Item(work, function, args, lambda _, done: None if ended.done() else ended.set_result(done)))
            done = await self._within_disk(cell, work, ended)
        finally:
            await pool.stop()
        if done.outcome == "failed" and (cause := cell.cause(done.exit_code)) is not None:
            return replace(done, error=cause)
        return done

    async def _within_disk(self, cell: Cell, work: Work, ended: asyncio.Future[Done]) -> Done:
        while cell.needs_looks and not ended.done():
            await asyncio.wait({ended}, timeout=cell.pause_s)
            if not ended.done() and await asyncio.to_thread(cell.look):
                return Done("failed")
            if work.stop_outcome is not None:
                await asyncio.to_thread(cell.let_end)
        return await ended
