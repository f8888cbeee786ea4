"""`Cluster`: `AsyncCluster` for synchronous tests."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Self, TypeVar
from uuid import UUID

from mainspring import runner_protocol as protocol
from mainspring import wire
from mainspring.client import Client
from mainspring.testing.async_cluster import AsyncCluster
from mainspring.testing.clock import START
from mainspring.testing.functions import Call
from mainspring.testing.postgres import TestDatabases
from mainspring.testing.worker import TestWorker

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, where clusters and their database server run.

    Functions that are not asynchronous are called in the thread that waits for the cluster: the test's.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="mainspring cluster", daemon=True)
        self._thread.start()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and in this thread the functions that it calls meanwhile."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        future.add_done_callback(lambda _: self._calls.put(None))
        try:
            while (call := self._calls.get()) is not None:
                call()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def call(self, function: Call) -> protocol.Returned:
        """Call a function in the thread that waits in `run`."""
        done: Future[protocol.Returned] = Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)
                raise

        self._calls.put(call)
        return await asyncio.wrap_future(done)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Cluster:
    """A cluster for synchronous tests: every method is the one of `AsyncCluster`, and blocks.

    `client` has the whole API. Use the cluster with `with`, or through the fixture `mainspring_cluster`.
    """

    def __init__(
        self,
        databases: TestDatabases,
        thread: LoopThread,
        *,
        start: datetime | str = START,
        workers: int = 1,
    ) -> None:
        self._databases, self._thread = databases, thread
        self._start, self._number_of_workers = start, workers

    def __enter__(self) -> Self:
        self._database_url = self._thread.run(self._databases.create())
        self._inner = self._thread.run(self._open())
        self.client = Client(self._inner.url, self._inner.token)
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self._thread.run(self._inner.__aexit__(*exc))
        self._thread.run(self._databases.drop(self._database_url))

    async def _open(self) -> AsyncCluster:
        cluster = AsyncCluster(
            self._database_url, start=self._start, workers=self._number_of_workers, call_sync=self._thread.call
        )
        return await cluster.__aenter__()

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def token(self) -> str:
        return self._inner.token

    @property
    def now(self) -> datetime:
        return self._inner.now

    @property
    def workers(self) -> list[TestWorker]:
        return self._inner.workers

    def load(self, *sources: str | ModuleType | Callable[..., Any]) -> list[str]:
        """Register the jobs that modules declare, or declared functions; return their names."""
        return self._thread.run(self._inner.load(*sources))

    def add_worker(
        self,
        name: str,
        *,
        slots: int = 8,
        queues: Sequence[str] = ("short", "long"),
        labels: Mapping[str, str] | None = None,
    ) -> TestWorker:
        """Add a worker, which takes part from the next step on."""
        return self._inner.add_worker(name, slots=slots, queues=queues, labels=labels)

    def crash_scheduler(self) -> None:
        """The scheduler dies; another one takes over when its lease has ended, and decides what was missed."""
        self._thread.run(_called(self._inner.crash_scheduler))

    def run_until_idle(self) -> None:
        """Execute everything that is due, and move the clock for retries and delays, until no execution is left."""
        self._thread.run(self._inner.run_until_idle())

    def travel_to(self, at: datetime | str, *, tz: str | None = None) -> None:
        """Let time pass: everything happens at its instant, until the clock stands at `at`."""
        self._thread.run(self._inner.travel_to(at, tz=tz))

    def travel(self, **by: float) -> None:
        """Let time pass: `travel(hours=3)`."""
        self._thread.run(self._inner.travel(**by))

    def jump_to(self, at: datetime | str, *, tz: str | None = None) -> None:
        """Let time pass while everything is down: what was due meanwhile is missed, and decided at once."""
        self._thread.run(self._inner.jump_to(at, tz=tz))

    def executions(self, job: str | None = None, *, states: Sequence[str] = ()) -> list[wire.Execution]:
        """Return executions, the oldest first."""
        return self._thread.run(self._inner.executions(job, states=states))

    def live(self) -> list[wire.Execution]:
        """Return the executions that have not ended."""
        return self._thread.run(self._inner.live())

    def assert_enqueued(self, job: str, *, count: int | None = None, **expected: Any) -> list[wire.Execution]:
        """Check that executions of a job wait or run, with these parameters or fields, and return them."""
        return self._thread.run(self._inner.assert_enqueued(job, count=count, **expected))

    def artifacts(self, execution_id: UUID) -> Path:
        """Return the folder with the artifacts that functions stored."""
        return self._inner.artifacts(execution_id)


async def _called(function: Callable[[], T]) -> T:
    return function()
