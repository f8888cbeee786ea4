"""One attempt: the work goes to its executor, and whatever happens there becomes an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from mainspring import wire
from mainspring.clock import Clock
from mainspring.domain.job import kind_of
from mainspring.domain.json_schema import problems
from mainspring.domain.plugin import PluginTask
from mainspring.worker.executors import Done, Executor, Work

log = structlog.get_logger()


def executor_of(work: Work, executors: Mapping[str, Executor]) -> Executor | None:
    return executors.get(kind_of(work.definition.task))


def bad_settings(work: Work, executor: Executor) -> Done | None:
    """Why a plug-in's settings can't be used, now that all values are known."""
    if not isinstance(work.definition.task, PluginTask) or (schema := getattr(executor, "schema", None)) is None:
        return None
    try:
        found = list(problems(work.settings, schema, "/settings"))
    except KeyError as error:
        return Done("failed", error=f"the parameter {error} was not given", retry=False)
    if not found:
        return None
    return Done("failed", error="; ".join(f"{p.pointer}: {p.message} ({p.hint})" for p in found), retry=False)


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
        execution_id=work.assignment.execution_id,
        attempt=work.assignment.attempt,
        outcome=done.outcome,
        duration_ms=round((clock.monotonic() - work.started) * 1000),
        exit_code=done.exit_code,
        error=None if done.error is None else done.error[:10_000],
        result=done.result,
    )
