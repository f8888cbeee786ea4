"""Calls functions, in processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mainspring.domain.task import PythonTask
from mainspring.domain.template import fill
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.pool import Pool
from mainspring.worker.runner import Item


class PythonExecutor:
    """The `python` kind. A worker offers it if it was told which modules to load."""

    def __init__(self) -> None:
        self._pool: Pool | None = None

    async def start(self, host: Host) -> None:
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
        self._pool.submit(Item(work, task.function, args | work.params, finish))
