"""Processes under simulation: each goes from one transaction to the next only when the simulator opens its gate.

A process borrows connections of one shared pool. Between two transactions anything may happen to it: it may be paused,
killed, lose its connection before a transaction, or lose the answer to a commit. No two transactions overlap, so a run
depends on its steps only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from mainspring.store.db import AWAY, Connection, Database

Trouble = Literal["", "before", "after"]
"""Nothing; the connection is lost before the transaction; it is committed, and the answer is lost."""
QUIET_TURNS = 30
"""Turns of the event loop without a query after which every process waits for the simulator."""

_operation: ContextVar[str] = ContextVar("operation", default="")
_inside: ContextVar[bool] = ContextVar("inside", default=False)


@dataclass
class Activity:
    """Counts the connections in use; wakes the simulator when there is none."""

    busy: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    transactions: int = 0

    def begin(self) -> None:
        self.busy += 1
        self.transactions += 1
        self.idle.clear()

    def end(self) -> None:
        self.busy -= 1
        if not self.busy:
            self.idle.set()

    async def settled(self) -> None:
        """Return when no process can go on by itself."""
        quiet = 0
        while quiet < QUIET_TURNS:
            if self.busy:
                await self.idle.wait()
                quiet = 0
            await asyncio.sleep(0)
            quiet += 1


@dataclass
class Gate:
    """A process that waits for its next transaction."""

    operation: str
    opened: asyncio.Future[Trouble]


class Process:
    """One simulated process: its operations, and the gates at which they wait."""

    def __init__(self, name: str, shared: Database, activity: Activity) -> None:
        self.name = name
        self.activity = activity
        self.database = GatedDatabase(shared, self)
        self.gates: list[Gate] = []
        self.alive = True
        self.errors: list[BaseException] = []
        self._tasks: dict[asyncio.Task[None], str] = {}

    def begin(self, operation: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start an operation; it stops at its first gate."""

        async def run() -> None:
            _operation.set(operation)
            try:
                await work()
            except AWAY:
                pass  # as every loop of a server does: it tries again later
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.errors.append(error)

        task = asyncio.create_task(run(), name=f"{self.name}.{operation}")
        self._tasks[task] = operation
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def is_doing(self, operation: str) -> bool:
        return operation in self._tasks.values()

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks) or bool(self.gates)

    async def pass_gate(self) -> Trouble:
        gate = Gate(_operation.get(), asyncio.get_running_loop().create_future())
        self.gates.append(gate)
        try:
            return await gate.opened
        finally:
            if gate in self.gates:
                self.gates.remove(gate)

    async def turn(self, trouble: Trouble = "") -> str | None:
        """Let the operation that has waited longest do one transaction; return its name."""
        gate = next((gate for gate in self.gates if not gate.opened.done()), None)
        if gate is None:
            return None
        self.gates.remove(gate)
        gate.opened.set_result(trouble)
        await self.activity.settled()
        return gate.operation

    async def finish(self, most: int = 200) -> None:
        """Let every operation end."""
        await self.activity.settled()
        for _ in range(most):
            if await self.turn() is None:
                return
        raise AssertionError(f"{self.name} has not come to rest after {most} transactions")

    async def kill(self) -> None:
        """End the process between two transactions."""
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        for gate in list(self.gates):
            gate.opened.cancel()
        await self.activity.settled()


class GatedDatabase(Database):
    """The shared pools, as one process uses them."""

    def __init__(self, shared: Database, process: Process) -> None:
        super().__init__(shared.dsn)
        self._shared = shared
        self._process = process

    @property
    def root(self) -> Database:
        return self

    def of(self, tenant: int) -> Database:
        return self

    async def discard_idle(self) -> None:
        return

    @asynccontextmanager
    async def _gated(self, borrow: Callable[[], AbstractAsyncContextManager[Connection]]) -> AsyncIterator[Connection]:
        if _inside.get():  # inside the same transaction
            async with borrow() as connection:
                yield connection
            return
        trouble = await self._process.pass_gate()
        if trouble == "before":
            raise ConnectionResetError("lost before the transaction")
        self._process.activity.begin()
        token = _inside.set(True)
        try:
            async with borrow() as connection:
                yield connection
        finally:
            _inside.reset(token)
            self._process.activity.end()
        if trouble == "after":
            raise ConnectionResetError("the answer to the commit was lost")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._gated(self._shared.connection) as connection:
            yield connection

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[Connection]:
        async with self._gated(self._shared.hot) as connection:
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        async with self._gated(self._shared.reading) as connection:
            yield connection
