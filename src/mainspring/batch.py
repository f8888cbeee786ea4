"""Batches the items of concurrent callers into one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class Batcher(Generic[In, Out]):
    """Collects the items of concurrent callers into batches.

    While one batch is flushed, the next one fills: batches grow under load, and a lone caller never waits, unless
    `gather_s` delays each batch to collect more. `flush` takes items in order and returns results in that order.
    """

    def __init__(
        self,
        flush: Callable[[list[In]], Awaitable[list[Out]]],
        *,
        max_items: int = 1000,
        parallel: int = 1,
        gather_s: float = 0.0,
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._gather_s = gather_s
        self._pending: list[tuple[In, asyncio.Future[Out]]] = []
        self._idle = parallel
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, item: In) -> Out:
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._pending.append((item, future))
        if self._idle:
            self._idle -= 1
            task = asyncio.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _drain(self) -> None:
        try:
            while self._pending:
                if self._gather_s and len(self._pending) < self._max_items:
                    await asyncio.sleep(self._gather_s)
                batch, self._pending = self._pending[: self._max_items], self._pending[self._max_items :]
                await self._flush_one(batch)
        finally:
            self._idle += 1

    async def _flush_one(self, batch: list[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            results = await self._flush([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
