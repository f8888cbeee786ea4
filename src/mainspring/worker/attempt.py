"""One attempt: the work goes to its executor, and whatever happens there becomes an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from mainspring import wire
from mainspring.clock import Clock
from mainspring.domain.job import kind_of
from mainspring.worker.executors import Done, Executor, Work

log = structlog.get_logger()


def executor_of(work: Work, executors: Mapping[str, Executor]) -> Executor | None:
    return executors.get(kind_of(work.definition.task))


async def execute(work: Work, executor: Executor) -> Done:
    """Runs it; whatever the executor throws is an outcome, never the end of the worker."""
    try:
        return await executor.execute(work)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        return failed_by(error)


def failed_by(error: Exception) -> Done:
    """An error of the executor itself."""
    log.error("an executor failed", exc_info=error)
    return Done("failed", error=f"{type(error).__name__}: {error}")


def no_executor(kind: str, executors: Mapping[str, Executor]) -> Done:
    known = ", ".join(sorted(executors))
    if kind == "python":
        known += "; with mainspring worker -m MODULE it calls functions"
    return Done("failed", error=f"this worker has no executor for {kind!r}; it has {known}")


def tell(work: Work, done: Done, *, clock: Clock) -> wire.Result:
    """The result as the api wants it."""
    return wire.Result(
        execution_id=work.assignment.execution_id, attempt=work.assignment.attempt, outcome=done.outcome,
        duration_ms=round((clock.monotonic() - work.started) * 1000), exit_code=done.exit_code,
        error=None if done.error is None else done.error[:10_000], result=done.result,
    )  # fmt: skip
