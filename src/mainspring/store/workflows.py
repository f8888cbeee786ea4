"""Workflows: each is a job, with versions, steps and the definitions of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.ids import shard_of
from mainspring.store.db import Connection
from mainspring.store.jobs import stored_fields
from mainspring.store.lines import LineRef
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a workflow."""

    job_id: UUID
    version: int
    spec: WorkflowSpec
    steps_id: UUID
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step with a task: its definition, and the line its executions wait in."""

    step: int
    name: str
    definition: int
    queue: str
    priority: int
    line: LineRef


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow as listed."""

    job_id: UUID
    name: str
    version: int
    paused: bool
    steps: int
    updated_at: datetime


async def insert_steps_job(connection: Connection, *, tenant: int, steps_id: UUID, name: str) -> None:
    await connection.execute(q("insert_steps_job"), steps_id, tenant, name, shard_of(steps_id))


async def insert_workflow_version(
    connection: Connection, *, tenant: int, job_id: UUID, version: int, spec: WorkflowSpec, steps_id: UUID, by: str
) -> None:
    await connection.execute(q("insert_workflow_version"), job_id, version, tenant, _text(spec), steps_id, by)


async def insert_definitions(
    connection: Connection, *, tenant: int, steps_id: UUID, specs: dict[int, JobSpec], by: str, exceeds: set[int]
) -> None:
    await connection.execute(
        q("insert_definitions"),
        steps_id,
        tenant,
        by,
        list(specs),
        [stored_fields(spec) for spec in specs.values()],
        [number in exceeds for number in specs],
    )


async def insert_workflow_steps(
    connection: Connection, *, tenant: int, job_id: UUID, version: int, steps_id: UUID, steps: Sequence[StepRow]
) -> None:
    await connection.execute(
        q("insert_workflow_steps"),
        job_id,
        version,
        tenant,
        [s.step for s in steps],
        [s.name for s in steps],
        [s.definition for s in steps],
        [s.queue for s in steps],
        [s.priority for s in steps],
        [s.line.line_id for s in steps],
        [s.line.limit_id for s in steps],
        steps_id,
        shard_of(steps_id),
    )


async def definitions_of_steps(connection: Connection, *, tenant: int, job_id: UUID, version: int) -> dict[bytes, int]:
    """The numbers of a version's step definitions, by content."""
    rows = await connection.fetch(q("definitions_of_steps"), job_id, version, tenant)
    return {content(msgspec.convert(r["spec"], JobSpec)): r["version"] for r in rows}


async def last_definition(connection: Connection, *, tenant: int, steps_id: UUID) -> int:
    return int(await connection.fetchval(q("last_definition"), steps_id, tenant))


async def workflow_version(connection: Connection, *, tenant: int, job_id: UUID, version: int) -> VersionRow | None:
    r = await connection.fetchrow(q("workflow_version"), job_id, tenant, version)
    if r is None:
        return None
    spec = msgspec.json.decode(r["spec"], type=WorkflowSpec)
    return VersionRow(r["job_id"], r["version"], spec, r["steps_id"], r["created_at"], r["created_by"])


async def workflow_versions(
    connection: Connection, *, tenant: int, job_id: UUID, before: int, limit: int
) -> list[VersionRow]:
    """Versions before a number, newest first."""
    return [
        VersionRow(
            r["job_id"],
            r["version"],
            msgspec.json.decode(r["spec"], type=WorkflowSpec),
            r["steps_id"],
            r["created_at"],
            r["created_by"],
        )
        for r in await connection.fetch(q("workflow_versions"), job_id, tenant, before, limit)
    ]


async def list_workflows(connection: Connection, *, tenant: int, after: str, limit: int) -> list[WorkflowRow]:
    return [
        WorkflowRow(r["job_id"], r["name"], r["version"], r["paused_at"] is not None, r["steps"], r["updated_at"])
        for r in await connection.fetch(q("list_workflows"), tenant, after, limit)
    ]


def _text(spec: WorkflowSpec) -> str:
    return msgspec.json.encode(spec).decode()


def content(spec: JobSpec) -> bytes:
    return msgspec.json.encode(spec, order="sorted")


async def workflows_with_step(connection: Connection, *, tenant: int, name: str, limit: int) -> list[str]:
    return [r["name"] for r in await connection.fetch(q("workflows_with_step"), tenant, name, limit)]
