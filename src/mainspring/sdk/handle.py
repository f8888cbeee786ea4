"""Handles of submitted executions: wait for them, get their result, cancel them; blocking or with `await`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.client.problems import ExecutionFailed
from mainspring.domain.duration import parse_duration
from mainspring.sdk.clients import async_client, client

R = TypeVar("R", covariant=True)

Timeout = float | str | timedelta | None
"""Seconds, `10m` or ISO 8601; None: for ever."""
APPEARS_S = 60.0
"""How long a handle of a transactional submission waits for the execution: the commit, and a server that moves it."""


class Handle(Generic[R]):
    """A submitted execution.

    `execution` is the execution as the server accepted it, and its fields are fields of the handle: `handle.state`. It
    is None in handles of `map` and of `submit(conn=)`, whose execution does not exist before the commit: call `fetch`.
    """

    def __init__(
        self, execution_id: UUID, job: str, *, execution: wire.Execution | None = None, returns: Any = Any
    ) -> None:
        self.execution_id, self.job, self.execution = execution_id, job, execution
        self._returns = returns

    def __repr__(self) -> str:
        return f"<Handle of execution {self.execution_id} of {self.job}>"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in wire.Execution.__struct_fields__ and self.execution is None:
            raise AttributeError(f"this handle does not know {name!r}: call fetch() (after the commit)")
        if name.startswith("_") or self.execution is None:
            raise AttributeError(f"'Handle' object has no attribute {name!r}")
        return getattr(self.execution, name)

    def result(self, timeout: Timeout = None) -> R:
        """Wait until the execution has ended and return what its function returned.

        Raises `ExecutionFailed` if it did not succeed and `WaitTimedOut`, a `TimeoutError`, after `timeout`.
        """
        return self._result_of(self.wait(timeout))

    async def result_async(self, timeout: Timeout = None) -> R:
        """`result` for coroutines."""
        return self._result_of(await self.wait_async(timeout))

    def wait(self, timeout: Timeout = None) -> wire.Execution:
        """Wait until the execution has ended, however it ended."""
        return client().wait(self.execution_id, timeout_s=_seconds(timeout), appears_s=self._appears_s)

    async def wait_async(self, timeout: Timeout = None) -> wire.Execution:
        """`wait` for coroutines."""
        return await (await async_client()).wait(
            self.execution_id, timeout_s=_seconds(timeout), appears_s=self._appears_s
        )

    def fetch(self) -> wire.Execution:
        """Return the execution as it is now."""
        return client().execution(self.execution_id)

    async def fetch_async(self) -> wire.Execution:
        """`fetch` for coroutines."""
        return await (await async_client()).execution(self.execution_id)

    def cancel(self, reason: str = "") -> wire.Execution:
        """Cancel the execution: at once if it has not started, else through its worker."""
        return client().cancel(self.execution_id, reason)

    async def cancel_async(self, reason: str = "") -> wire.Execution:
        """`cancel` for coroutines."""
        return await (await async_client()).cancel(self.execution_id, reason)

    @property
    def _appears_s(self) -> float:
        return APPEARS_S if self.execution is None else 0.0

    def _result_of(self, execution: wire.Execution) -> R:
        if execution.state != "succeeded":
            raise ExecutionFailed(execution)
        try:
            return cast(R, msgspec.convert(execution.result, self._returns))
        except (TypeError, msgspec.ValidationError):  # an annotation that JSON cannot become, or that is not true
            return cast(R, execution.result)


def _seconds(timeout: Timeout) -> float:
    if timeout is None:
        return math.inf
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    return parse_duration(timeout) if isinstance(timeout, str) else float(timeout)
