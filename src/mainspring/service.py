"""One contract for every loop in the program: start, ready, drain, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import structlog

log = structlog.get_logger()


class Service(Protocol):
    """Something that lives as long as its process.

    `start` returns once it is under way, `ready` once it does its work, `drain` stops taking new work and
    returns when the old is done, `stop` ends it. Each may be called once; `stop` also without `drain`.
    """

    async def start(self) -> None: ...
    async def ready(self) -> None: ...
    async def drain(self) -> None: ...
    async def stop(self) -> None: ...


class Loops:
    """The tasks of one service: an error in one is told and tried again later, never swallowed, never fatal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def forever(self, what: str, step: Callable[[], Awaitable[None]], *, backoff_s: float = 1.0) -> None:
        """Repeats `step`; after an error waits `backoff_s`, doubling up to 16 times as long."""
        self.spawn(self._forever(what, step, backoff_s), what)

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{self._name}.{what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forever(self, what: str, step: Callable[[], Awaitable[None]], backoff_s: float) -> None:
        wait = backoff_s
        while True:
            try:
                await step()
                wait = backoff_s
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.warning(
                    "loop failed, trying again",
                    loop=f"{self._name}.{what}",
                    error=repr(error),
                    wait_s=wait,
                    exc_info=not isinstance(error, OSError),
                )
                await asyncio.sleep(wait)
                wait = min(wait * 2, backoff_s * 16)
