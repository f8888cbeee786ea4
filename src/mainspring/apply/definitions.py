"""Jobs and workflows. Jobs are written together (`intake.jobs.bulk`), workflows one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.apply.adapter import Adapter, Live, Writer, Written
from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.job import JobSpec, WorkflowTask
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.intake import jobs as job_intake
from mainspring.intake import workflows as workflow_intake
from mainspring.intake.jobs.bulk import JobWrite, write_many
from mainspring.manifest import without_defaults
from mainspring.store import jobs, needs, workflows
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow


class Jobs(Adapter):
    locks_shards = True

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        found = await jobs.jobs_by_names(connection, tenant=tenant, names=list(wanted))
        needed = await _needed(connection, [row for row, _ in found.values()], tenant=tenant)
        return {name: _job(row, exceeds, needed.get(row.job_id)) for name, (row, exceeds) in found.items()}

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        found: list[tuple[str, Live]] = []
        while len(found) < limit:  # pages of the list may consist of workflows
            rows = await jobs.list_jobs(connection, tenant=tenant, after=after, limit=limit)
            needed = await _needed(connection, rows, tenant=tenant)
            found += [(row.name, _job(row, False, needed.get(row.job_id))) for row in rows if not is_workflow(row)]
            if len(rows) < limit:
                break
            after = rows[-1].name
        return found[:limit]

    async def write(self, writer: Writer, name: str, definition: JobSpec, live: Live | None) -> Written:
        raise AssertionError("jobs are written together")

    async def write_all(self, writer: Writer, writes: list[JobWrite]) -> list[Written]:
        """Write many jobs; each with the version that was read."""
        found = await write_many(
            writer.connection, writes, tenant=writer.tenant, by=writer.by, may_exceed=writer.may_exceed
        )
        return [Written(one.job_id, one.version) for one in found]

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        assert live.object_id is not None
        await job_intake.delete(
            writer.database, live.object_id, tenant=writer.tenant, by=writer.by, reason=PRUNED, seen=live.version
        )

    def comparable(self, values: dict[str, Any]) -> dict[str, Any]:
        """Durations of dependencies in one spelling; always with `needs`, so that each one is a difference."""
        return {**values, "needs": {name: _need(need) for name, need in values.get("needs", {}).items()}}


class Workflows(Adapter):
    locks_shards = True

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        found = {}
        for name, (row, exceeds) in (await jobs.jobs_by_names(connection, tenant=tenant, names=list(wanted))).items():
            found[name] = await _workflow(connection, row, exceeds)
        return found

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        names = [
            row.name for row in await workflows.list_workflows(connection, tenant=tenant, after=after, limit=limit)
        ]
        rows = await jobs.jobs_by_names(connection, tenant=tenant, names=names)
        return [(name, await _workflow(connection, *rows[name])) for name in names if name in rows]

    async def write(self, writer: Writer, name: str, definition: WorkflowSpec, live: Live | None) -> Written:
        seen = 0 if live is None else live.version
        found, _ = await workflow_intake.apply(
            writer.database, definition, tenant=writer.tenant, by=writer.by, seen=seen, may_exceed=writer.may_exceed
        )
        return Written(found.job_id, found.version)

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await workflow_intake.delete(
            writer.database, name, tenant=writer.tenant, by=writer.by, reason=PRUNED, seen=live.version
        )


PRUNED = "pruned: no longer in the manifests of its owner"


def is_workflow(row: JobRow) -> bool:
    return isinstance(row.spec.task, WorkflowTask)


async def _needed(connection: Connection, rows: Sequence[JobRow], *, tenant: int) -> dict[UUID, dict[str, Any]]:
    """What each of these jobs needs, as its manifest says it."""
    children = [row.job_id for row in rows if row.needs]
    if not children:
        return {}
    found: dict[UUID, dict[str, Any]] = {}
    for need in await needs.needs_of_jobs(connection, tenant=tenant, children=children):
        limits = {"timeout": need.timeout_s, "wait": need.wait_s}
        shown = {name: format_duration(seconds) for name, seconds in limits.items() if seconds is not None}
        found.setdefault(need.child, {})[need.parent] = shown
    return found


def _need(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _spelled(given) for name, given in values.items() if given is not None}


def _spelled(duration: Any) -> Any:
    try:
        return format_duration(parse_duration(duration))
    except ValueError:  # the plan refuses it
        return duration


def _job(row: JobRow, exceeds: bool, needed: dict[str, Any] | None = None) -> Live:
    spec = msgspec.structs.replace(row.spec, paused=row.paused_at is not None)
    values = without_defaults(spec)
    del values["name"]
    if needed:
        values["needs"] = needed
    return Live(values, row.job_id, row.version, JobWrite(spec, row, exceeds))


async def _workflow(connection: Connection, row: JobRow, exceeds: bool) -> Live:
    version = await workflows.workflow_version(connection, tenant=row.tenant, job_id=row.job_id, version=row.version)
    if version is None:  # a job; the plan refuses that
        return _job(row, exceeds)
    spec = msgspec.structs.replace(version.spec, paused=row.paused_at is not None)
    values = without_defaults(spec)
    del values["name"]
    return Live(values, row.job_id, row.version, JobWrite(row.spec, row, exceeds))
