"""The lifecycle of every long-running part: start, ready, drain, stop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")


class Service(ABC):
    """Something that runs as long as its process.

    `stop` may be called without `drain`. Each method is called at most once.
    """

    @abstractmethod
    async def start(self) -> None:
        """Begin; return once the loops are started."""

    async def ready(self) -> None:
        """Return once the service does its work: by default, as soon as it has started."""
        return

    async def drain(self) -> None:
        """Accept no new work and return when the current work is done: by default, at once."""
        return

    @abstractmethod
    async def stop(self) -> None:
        """End the service and release what it holds."""


CANCEL_AGAIN_S = 2.0


class Loops:
    """The background tasks of one service. A failing step is logged and retried; it never ends the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def forever(self, what: str, step: Callable[[], Awaitable[None]], *, backoff_s: float = 1.0) -> None:
        """Repeat `step`; after an error wait `backoff_s`, doubling up to 16 times that."""
        self.spawn(self._forever(what, step, backoff_s), what)

    def spawn(self, work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=f"{self._name}.{what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()
            # Repeated, because `asyncio.wait_for` of Python 3.11 loses a cancellation that arrives with the result.
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)

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
                    "loop.failed",
                    loop=f"{self._name}.{what}",
                    error=repr(error),
                    wait_s=wait,
                    exc_info=not isinstance(error, OSError),
                )
                await asyncio.sleep(wait)
                wait = min(wait * 2, backoff_s * 16)


async def together(name: str, *works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one of them fails; end the others and raise its error.

    Unlike a TaskGroup, it cancels again what has swallowed a cancellation.
    """
    loops = Loops(name)
    tasks = [loops.spawn(work, "part") for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await loops.stop()
        errors = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if errors:
        raise errors[0]
