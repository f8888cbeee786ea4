"""One attempt: prepare, execute, tell. One value goes through named steps; one match says how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

import structlog

from mainspring import wire
from mainspring.clock import Clock
from mainspring.codec import encode
from mainspring.domain.job import Definition
from mainspring.worker.executors import Children, Done, Executor, Work
from mainspring.worker.guardian import MARK
from mainspring.worker.output import Output

log = structlog.get_logger()


def prepare(assignment: wire.Assignment, definition: Definition, *, session_id: UUID, children: Children) -> Work:
    """Everything the executor needs, made from what was claimed."""
    fire_at = assignment.fire_at.isoformat().replace("+00:00", "Z")
    execution_id = str(assignment.execution_id)
    values = {
        "fire_at": fire_at,
        "execution_date": fire_at[:10],
        "execution_id": execution_id,
        "attempt": str(assignment.attempt),
        "job": definition.name,
    }
    if assignment.params:
        values |= {f"params.{name}": _text(value) for name, value in assignment.params.items()}
    context = {
        "MAINSPRING_EXECUTION_ID": execution_id,
        "MAINSPRING_JOB": definition.name,
        "MAINSPRING_ATTEMPT": str(assignment.attempt),
        "MAINSPRING_FIRE_AT": fire_at,
        "MAINSPRING_IDEMPOTENCY_KEY": execution_id,
        MARK: str(session_id),
    }
    return Work(
        execution_id=assignment.execution_id, attempt=assignment.attempt, definition=definition, values=values,
        context=context, output=Output(assignment.execution_id, assignment.attempt), children=children,
    )  # fmt: skip


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
        execution_id=work.execution_id, attempt=work.attempt, outcome=done.outcome,
        duration_ms=round((clock.monotonic() - started) * 1000), exit_code=done.exit_code,
        error=None if done.error is None else done.error[:10_000], result=done.result,
    )  # fmt: skip


def _text(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()
