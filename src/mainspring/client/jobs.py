"""Client methods for jobs: definitions, schedules, dependencies, backfills."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from mainspring import wire
from mainspring.client.paths import Ref, deletion, job_path, path_of
from mainspring.client.transport import Connected, Params, new_key
from mainspring.domain.job import JobSpec


class JobMethods(Connected):
    async def create_job(self, spec: JobSpec | dict[str, Any]) -> wire.Job:
        """Create a job; the server fills in defaults for what a dictionary omits."""
        return await self._transport.request(wire.Job, "POST", "/api/v1/jobs", body=spec, creates=True)

    async def jobs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        prefix: str | None = None,
        filter: str | None = None,
    ) -> wire.Page[wire.Job]:
        params: Params = {"limit": limit, "cursor": cursor, "prefix": prefix, "filter": filter}
        return await self._transport.request(wire.Page[wire.Job], "GET", "/api/v1/jobs", params=params)

    async def job(self, ref: Ref) -> wire.Job:
        return await self._transport.request(wire.Job, "GET", job_path(ref))

    async def patch_job(self, ref: Ref, patch: dict[str, Any]) -> wire.Job:
        """Change the fields in `patch` (RFC 7396 merge patch); null resets a field to its default."""
        return await self._transport.request(wire.Job, "PATCH", job_path(ref), body=patch)

    async def try_patch(self, ref: Ref, patch: dict[str, Any]) -> wire.Change:
        """Return what `patch_job` would change, without changing it."""
        params: Params = {"dry_run": "true"}
        return await self._transport.request(wire.Change, "PATCH", job_path(ref), body=patch, params=params)

    async def delete_job(self, ref: Ref, *, reason: str = "", detach: bool = False) -> None:
        """Delete a job. While other jobs depend on it, this fails unless `detach` removes those dependencies."""
        await self._transport.send("DELETE", job_path(ref), params=deletion(reason, detach))

    async def pause_job(self, ref: Ref, reason: str = "", *, until: datetime | None = None) -> wire.Job:
        """Stop firing until the job is resumed, or until `until`."""
        body = wire.Pause(reason=reason, until=until)
        return await self._transport.request(wire.Job, "POST", job_path(ref, "pause"), body=body)

    async def resume_job(self, ref: Ref, *, catch_up: bool = False) -> wire.Job:
        """Resume firing; with `catch_up`, apply the misfire policy to fires missed during the pause."""
        body = wire.Resume(catch_up=catch_up)
        return await self._transport.request(wire.Job, "POST", job_path(ref, "resume"), body=body)

    async def trigger(self, ref: Ref, request: wire.RunNow | None = None) -> wire.Execution:
        """Run a job now, or when `request` says; the same `request.key` returns the same execution."""
        body = request or wire.RunNow()
        if not body.key:
            body = msgspec.structs.replace(body, key=new_key())
        return await self._transport.request(
            wire.Execution, "POST", job_path(ref, "trigger"), body=body, repeatable=True
        )

    async def fires(self, ref: Ref, *, count: int = 10, after: datetime | None = None) -> wire.Fires:
        params: Params = {"count": count, "after": None if after is None else after.isoformat()}
        return await self._transport.request(wire.Fires, "GET", job_path(ref, "fires"), params=params)

    async def history(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Execution]:
        """List the executions of one job, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = job_path(ref, "executions")
        return await self._transport.request(wire.Page[wire.Execution], "GET", path, params=params)

    async def ledger(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.LedgerEntry]:
        """List every due instant of a job and its outcome, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.LedgerEntry], "GET", job_path(ref, "ledger"), params=params)

    async def versions(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Version]:
        """List every version of a job, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Version], "GET", job_path(ref, "versions"), params=params)

    async def job_size(self, ref: Ref) -> wire.JobSize:
        """Return the memory, CPU and timeout that past attempts of a job suggest, with the evidence."""
        return await self._transport.request(wire.JobSize, "GET", job_path(ref, "size"))

    async def stats(self, ref: Ref, *, since: str | None = None) -> wire.JobStats:
        """Return statistics of a job in the last day, or since `since`, such as `7d` ago."""
        params: Params = {"since": since}
        return await self._transport.request(wire.JobStats, "GET", job_path(ref, "stats"), params=params)

    async def rollback(self, ref: Ref, version: int) -> wire.Job:
        """Restore an earlier version as a new one."""
        body = wire.Rollback(version=version)
        return await self._transport.request(wire.Job, "POST", job_path(ref, "rollback"), body=body, creates=True)

    async def preview(self, request: wire.PreviewRequest) -> wire.Preview:
        """Describe a schedule: a sentence, its next fires, and notes such as skipped hours."""
        return await self._transport.request(wire.Preview, "POST", "/api/v1/schedules:preview", body=request)

    async def why_job(self, ref: Ref) -> wire.Why:
        """Explain why a job's next execution does not run yet."""
        return await self._transport.request(wire.Why, "GET", job_path(ref, "why"))

    async def needs(self, ref: Ref) -> wire.Dependencies:
        """Return what a job depends on, the state of each dependency, and the order of all connected jobs."""
        return await self._transport.request(wire.Dependencies, "GET", job_path(ref, "dependencies"))

    async def add_need(
        self, ref: Ref, parent: str, *, timeout: str | float | None = None, wait: str | float | None = None
    ) -> wire.Dependencies:
        """Make a job run after another has succeeded.

        Successes older than `timeout` do not count. Fires of a job with a schedule wait for the other job, at most
        `wait`. A cycle is rejected, and the error names it.
        """
        body = wire.NewDependency(job=parent, timeout=timeout, wait=wait)
        return await self._transport.request(
            wire.Dependencies, "POST", job_path(ref, "dependencies"), body=body, creates=True
        )

    async def remove_need(self, ref: Ref, parent: Ref) -> None:
        """Remove a dependency. Fires that waited only for it are released."""
        await self._transport.send("DELETE", job_path(ref, f"dependencies/{quote(str(parent), safe='')}"))

    async def force_complete_job(self, ref: Ref, reason: str) -> wire.Job:
        """Release the jobs that depend on this one, as if it had succeeded."""
        body = wire.Release(reason=reason)
        return await self._transport.request(wire.Job, "POST", job_path(ref, "force-complete"), body=body)

    async def skip_job(self, ref: Ref, reason: str) -> wire.Job:
        """Release the jobs that depend on this one, without it."""
        return await self._transport.request(wire.Job, "POST", job_path(ref, "skip"), body=wire.Release(reason=reason))

    async def start_backfill(self, ref: Ref, request: wire.BackfillRequest) -> wire.Backfill:
        """Execute a range of a job's past fires."""
        return await self._transport.request(
            wire.Backfill, "POST", job_path(ref, "backfill"), body=request, creates=True
        )

    async def plan_backfill(self, ref: Ref, request: wire.BackfillRequest) -> wire.BackfillPlan:
        """Return what `start_backfill` would do, without doing it."""
        body = msgspec.structs.replace(request, dry_run=True)
        return await self._transport.request(wire.BackfillPlan, "POST", job_path(ref, "backfill"), body=body)

    async def backfills(
        self, *, job: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Backfill]:
        params: Params = {"job": job, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Backfill], "GET", "/api/v1/backfills", params=params)

    async def backfill(self, backfill_id: Ref) -> wire.Backfill:
        """Return a backfill with the number of executions in each state."""
        return await self._transport.request(wire.Backfill, "GET", path_of("backfills", backfill_id))

    async def pause_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return await self._transport.request(wire.Backfill, "POST", path_of("backfills", backfill_id, "pause"))

    async def resume_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return await self._transport.request(wire.Backfill, "POST", path_of("backfills", backfill_id, "resume"))

    async def cancel_backfill(self, backfill_id: Ref) -> wire.Backfill:
        """End a backfill and cancel its unfinished executions."""
        return await self._transport.request(wire.Backfill, "POST", path_of("backfills", backfill_id, "cancel"))
