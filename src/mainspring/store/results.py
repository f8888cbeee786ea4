"""Writes outcomes of attempts. Every statement checks session, attempt and state of the row it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring.domain.settlement import AttemptResult, Final, LockedExecution, Retry, Settled, Successor
from mainspring.store import logs
from mainspring.store.db import Connection, Outdated, json_array
from mainspring.store.hints import hint_freed, hint_placed
from mainspring.store.queries import q


async def settle_succeeded(
    connection: Connection,
    *,
    ended: Sequence[AttemptResult],
    chunks: Sequence[logs.Chunk] = (),
    cut: Sequence[int] = (),
    settled: Settled,
) -> list[logs.Appended]:
    """Settle successes and add them to `settled`; the others were stale. `chunks` of output are stored with them."""
    if not chunks:
        settled.add(await connection.fetch(q("settle_succeeded"), *_succeeded(ended)))
        return []
    rows = await connection.fetch(q("settle_with_output"), *_succeeded(ended), *logs.chunk_arrays(chunks), list(cut))
    settled.add([(row[0], row[1], row[2]) for row in rows if row[0] is not None])
    return logs.appended(row for row in rows if row[0] is None)


async def settle_steps(connection: Connection, *, ended: Sequence[AttemptResult], settled: Settled) -> list[Any]:
    """Settle successful steps; return rows with their runs, locked (see `runs.locked_runs`)."""
    rows = await connection.fetch(q("settle_steps"), *_succeeded(ended))
    settled.add([(row[0], row[1], row[2]) for row in rows])
    return rows


async def settle_with_successor(
    connection: Connection,
    *,
    ended: AttemptResult,
    successor: Successor,
    session_id: UUID | None,
    line_id: int | None,
    settled: Settled,
) -> Any:
    """Settle a step and release its successor, in a transaction of its own; return the successor's execution.

    None if an assumption is outdated; then nothing has changed.
    """
    try:
        row = await connection.fetchrow(
            q("settle_with_successor"),
            *_succeeded([ended]),
            session_id,
            line_id,
            successor.run_id,
            successor.step,
            successor.next,
            successor.params,
        )
    except Outdated:
        return None
    if row is not None:
        settled.add([(ended.execution_id, row["chained"], row["limit_id"])])
        hint_placed(connection, [row])
    return row


def _succeeded(ended: Sequence[AttemptResult]) -> tuple[Any, ...]:
    # Encoding an array costs the driver about a microsecond per element, so equal values are sent once.
    session_id = ended[0].session_id
    same_session = all(e.session_id == session_id for e in ended)
    return (
        [e.execution_id for e in ended],
        None if all(e.attempt == 1 for e in ended) else [e.attempt for e in ended],
        None if same_session else [e.session_id for e in ended],
        [e.duration_ms for e in ended],
        None if all(e.result is None for e in ended) else json_array(e.result for e in ended),
        session_id if same_session else None,
    )


async def lock_results(connection: Connection, *, ended: Sequence[AttemptResult]) -> list[LockedExecution]:
    rows = await connection.fetch(q("lock_results"), *_guard(ended))
    return [
        LockedExecution(
            r["execution_id"],
            r["attempt"],
            r["session_id"],
            r["job_id"],
            r["version"],
            r["tenant_id"],
            r["failures"],
            r["lost"],
            r["cancel_reason"] if r["cancel_at"] is not None else None,
            r["urgent"],
        )
        for r in rows
    ]


async def settle_retries(connection: Connection, *, retries: Sequence[Retry], settled: Settled) -> None:
    ended = [a.ended for a in retries]
    rows = await connection.fetch(
        q("settle_retries"),
        *_guard(ended),
        [e.outcome for e in ended],
        [e.exit_code for e in ended],
        [e.error for e in ended],
        [a.delay_s for a in retries],
        [a.failures for a in retries],
        [a.lost for a in retries],
        [e.duration_ms for e in ended],
    )
    hint_placed(connection, rows)
    hint_freed(connection, (r["limit_id"] for r in rows if r["limit_id"] is not None))
    settled.executions.update(r["execution_id"] for r in rows)


async def settle_final(connection: Connection, *, final: Sequence[Final], settled: Settled) -> None:
    ended = [f.ended for f in final]
    rows = await connection.fetch(
        q("settle_final"),
        *_guard(ended),
        [e.outcome for e in ended],
        [e.exit_code for e in ended],
        [e.error for e in ended],
        [f.state for f in final],
        [f.reason for f in final],
        [e.duration_ms for e in ended],
        json_array(e.result for e in ended),
        [f.leaves_dead_letter for f in final],
        [f.fingerprint if f.leaves_dead_letter else None for f in final],
    )
    settled.add(rows, {f.ended.execution_id: f.state for f in final})


def _guard(ended: Sequence[AttemptResult]) -> tuple[list[UUID], list[int], list[UUID]]:
    return [e.execution_id for e in ended], [e.attempt for e in ended], [e.session_id for e in ended]
