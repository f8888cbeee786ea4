"""One attempt: the work goes to its executor, and whatever happens there becomes an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from mainspring import wire
from mainspring.clock import Clock
from mainspring.worker.executors import Done, Executor, Work

log = structlog.get_logger()


async def execute(work: Work, executors: Mapping[str, Executor]) -> Done:
    """Runs it; whatever the executor throws is an outcome, never the end of the worker."""
    kind = type(work.definition.task).__struct_config__.tag
    executor = executors.get(str(kind))
    if executor is None:
        return Done("failed", error=f"this worker has no executor for {kind!r}")
    try:
        return await executor.execute(work)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        log.exception("an executor failed", kind=kind)
        return Done("failed", error=f"{type(error).__name__}: {error}")


def tell(work: Work, done: Done, *, started: float, clock: Clock) -> wire.Result:
    """The result as the api wants it."""
    return wire.Result(
        execution_id=work.assignment.execution_id, attempt=work.assignment.attempt, outcome=done.outcome,
        duration_ms=round((clock.monotonic() - started) * 1000), exit_code=done.exit_code,
        error=None if done.error is None else done.error[:10_000], result=done.result,
    )  # fmt: skip
