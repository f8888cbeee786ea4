"""Settling: what an attempt's outcome does to its execution. Every statement checks session and attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.execution import Outcome, State
from mainspring.domain.fingerprint import fingerprint
from mainspring.store.db import Connection, json_array
from mainspring.store.queries import q

FAILED: tuple[State, ...] = ("failed", "timed_out", "lost")
"""Final states that need a person: each execution that ends so leaves a dead letter."""


class Ended(msgspec.Struct, frozen=True):
    """An attempt that ended, by the session that ran it or by the rescue. Made by the thousand, so no dataclass."""

    execution_id: UUID
    attempt: int
    session_id: UUID
    outcome: Outcome
    duration_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    result: Any = None
    retry: bool = True  # false: another try would end the same way


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a run, the one behind it, and what that gets."""

    run_id: UUID
    step: int
    next: int
    params: Any


@dataclass(frozen=True, slots=True)
class Held:
    """A running execution whose ending is being decided; its row is locked."""

    execution_id: UUID
    attempt: int
    session_id: UUID
    job_id: UUID
    version: int
    tenant: int
    failures: int
    lost: int
    cancelling: str | None  # why a person wants it to end
    urgent: str | None = None  # what it was asked to make room for


@dataclass(frozen=True, slots=True)
class Again:
    """Back to the queue, at once or after `delay_s`."""

    ended: Ended
    delay_s: float
    failures: int
    lost: int


@dataclass(frozen=True, slots=True)
class Final:
    """Never to be tried again."""

    ended: Ended
    state: State
    reason: str | None

    @property
    def fingerprint(self) -> str | None:
        """Of what went wrong; None if nothing did, and then there is no dead letter."""
        if self.state not in FAILED:
            return None
        return fingerprint(self.reason or self.ended.error, state=self.state, exit_code=self.ended.exit_code)


@dataclass(slots=True)
class Done:
    """What was really settled, and the jobs whose next blocked execution it may release."""

    executions: set[UUID] = field(default_factory=set)
    chained: set[UUID] = field(default_factory=set)
    final: dict[str, int] = field(default_factory=dict)  # how many ended for good, by state
    paused: set[UUID] = field(default_factory=set)  # executions whose failure paused their job
    freed: set[int] = field(default_factory=set)  # concurrency keys that have a slot again
    ended_as: dict[UUID, str] = field(default_factory=dict)  # what did not simply succeed, and ended for good

    def add(self, rows: Sequence[Any], states: Mapping[UUID, str] | None = None) -> None:
        for execution_id, job_id, limit_id in rows:
            self.executions.add(execution_id)
            state = "succeeded" if states is None else states[execution_id]
            if states is not None:
                self.ended_as[execution_id] = state
            self.final[state] = self.final.get(state, 0) + 1
            if job_id is not None:
                self.chained.add(job_id)
            if limit_id is not None:
                self.freed.add(limit_id)


async def settle_succeeded(connection: Connection, *, ended: Sequence[Ended], done: Done) -> None:
    done.add(await connection.fetch(q("settle_succeeded"), *_succeeded(ended)))


async def settle_steps(connection: Connection, *, ended: Sequence[Ended], done: Done) -> list[Any]:
    """The same for steps of runs; returns rows with the runs that wait for them, held."""
    rows = await connection.fetch(q("settle_steps"), *_succeeded(ended))
    done.add([(row[0], row[1], row[2]) for row in rows])
    return rows


async def settle_link(
    connection: Connection, *, ended: Ended, link: Link, session_id: UUID | None, line_id: int | None, done: Done
) -> Any:
    """One step, and the one behind it, in a transaction of its own; returns the execution that the second is now. None
    if something is not as it was thought to be; then nothing has changed."""
    try:
        row = await connection.fetchrow(
            q("settle_link"), *_succeeded([ended]), session_id, line_id, link.run_id, link.step, link.next, link.params
        )
    except asyncpg.DivisionByZeroError:
        return None
    if row is not None:
        done.add([(ended.execution_id, row["chained"], row["limit_id"])])
    return row


def _succeeded(ended: Sequence[Ended]) -> tuple[Any, ...]:
    # Encoding an array costs the driver about a microsecond an element, so what is the same for all travels once.
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


async def lock_results(connection: Connection, *, ended: Sequence[Ended]) -> list[Held]:
    rows = await connection.fetch(q("lock_results"), *_guard(ended))
    return [
        Held(
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


async def settle_again(connection: Connection, *, again: Sequence[Again], done: Done) -> None:
    ended = [a.ended for a in again]
    rows = await connection.fetch(
        q("settle_again"),
        *_guard(ended),
        [e.outcome for e in ended],
        [e.exit_code for e in ended],
        [e.error for e in ended],
        [a.delay_s for a in again],
        [a.failures for a in again],
        [a.lost for a in again],
    )
    done.executions.update(r["execution_id"] for r in rows)


async def settle_final(connection: Connection, *, final: Sequence[Final], done: Done) -> None:
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
        [f.fingerprint for f in final],
    )
    done.add(rows, {f.ended.execution_id: f.state for f in final})


def _guard(ended: Sequence[Ended]) -> tuple[list[UUID], list[int], list[UUID]]:
    return [e.execution_id for e in ended], [e.attempt for e in ended], [e.session_id for e in ended]


async def tell_freed(connection: Connection, *, limit_ids: Sequence[int]) -> None:
    """Over all tenants: the keys come from rows the caller has just changed."""
    await connection.execute(q("tell_freed"), limit_ids)
