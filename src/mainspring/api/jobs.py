"""Jobs over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.api import etag
from mainspring.api.route import Call, Table
from mainspring.codec import encode
from mainspring.domain.job import JobSpec
from mainspring.intake import dependencies, jobs
from mainspring.intake.executions import Note, Submission
from mainspring.intake.validate.params import check_params
from mainspring.views import dependencies as dependency_views
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs, search, why_execution

table = Table()
JOBS = "/api/v1/jobs"
JOB = JOBS + "/{ref}"


@table.route("POST", JOBS, scope="write", body=JobSpec, answer=wire.Job, status=201)
async def create(call: Call) -> Response:
    """Create a job."""
    async with call.making(call.body.schedule is not None):
        job_id = await jobs.create(
            call.context.database, call.body, tenant=call.tenant, by=call.caller.name, may_exceed=call.caller.may_exceed
        )
    found = await job_views.get(call.context.database, str(job_id), tenant=call.tenant)
    return etag.tagged(await _with_warnings(call, found), 201)


@table.route("GET", JOBS, scope="read", answer=wire.Page[wire.Job], query=("limit", "cursor", "prefix", "filter"))
async def list_jobs(call: Call) -> wire.Page[wire.Job]:
    """List jobs by name; `filter` is such as `state:paused queue:long label:team=finance night`."""
    if (text := call.query("filter")) is not None:
        return await search.jobs(
            call.context.database,
            text,
            tenant=call.tenant,
            cursor=call.query("cursor"),
            limit=call.number("limit", 50),
        )
    return await job_views.list_jobs(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        prefix=call.query("prefix"),
    )


@table.route("GET", JOB, scope="read", answer=wire.Job)
async def get(call: Call) -> Response:
    """Get a job by name or id; its ETag, sent back as If-Match, guards a change against those of others."""
    return etag.tagged(await job_views.get(call.context.database, call.path("ref"), tenant=call.tenant))


@table.route("PATCH", JOB, scope="write", body=dict[str, Any], answer=wire.Job, query=("dry_run",))
async def patch(call: Call) -> Response | wire.Change:
    """Change a job: a merge patch of its definition, kept as a new version; `dry_run=true` only shows what would be."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    seen = etag.seen(call, row.job_id, row.version)
    if call.query("dry_run") in ("true", "1"):
        return await jobs.try_patch(
            call.context.database, row.job_id, call.body, tenant=call.tenant, may_exceed=call.caller.may_exceed
        )
    async with call.making(row.spec.schedule is None and call.body.get("schedule") is not None):
        await etag.matched(
            call,
            jobs.patch(
                call.context.database,
                row.job_id,
                call.body,
                tenant=call.tenant,
                by=call.caller.name,
                seen=seen,
                may_exceed=call.caller.may_exceed,
            ),
        )
    found = await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)
    return etag.tagged(await _with_warnings(call, found))


@table.route("GET", JOB + "/dependencies", scope="read", answer=wire.Dependencies)
async def dependencies_of(call: Call) -> wire.Dependencies:
    """What a job needs and whether it is met, and all jobs that hang together with it in order."""
    return await dependency_views.dependencies_of(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route(
    "POST", JOB + "/dependencies", scope="write", body=wire.NewDependency, answer=wire.Dependencies, status=201
)
async def add_dependency(call: Call) -> wire.Dependencies:
    """Execute the job when another has succeeded, with all it needs; a cycle is refused and named."""
    return await dependencies.add(
        call.context.database, call.path("ref"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", JOB + "/dependencies/{parent}", scope="write", status=204)
async def remove_dependency(call: Call) -> None:
    """The job does not need the other any more."""
    await dependencies.remove(
        call.context.database, call.path("ref"), call.path("parent"), tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", JOB + "/force-complete", scope="write", body=wire.Release, answer=wire.Job)
async def force_complete(call: Call) -> wire.Job:
    """Let the jobs that need this one go as if it had succeeded; its newest execution that lives is ended."""
    return await _free(call, "forced")


@table.route("POST", JOB + "/skip", scope="write", body=wire.Release, answer=wire.Job)
async def skip(call: Call) -> wire.Job:
    """Let the jobs that need this one go without it; they can see that it was not run."""
    return await _free(call, "skipped")


async def _free(call: Call, freed_as: str) -> wire.Job:
    await dependencies.free(
        call.context.database,
        call.path("ref"),
        call.body.reason,
        freed_as=freed_as,
        tenant=call.tenant,
        by=call.caller.name,
    )
    return await job_views.get(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route("GET", JOB + "/versions", scope="read", answer=wire.Page[wire.Version], query=("limit", "cursor"))
async def versions(call: Call) -> wire.Page[wire.Version]:
    """Every version of a job, newest first."""
    return await job_views.list_versions(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
    )


@table.route("POST", JOB + "/rollback", scope="write", body=wire.Rollback, answer=wire.Job)
async def rollback(call: Call) -> wire.Job:
    """Bring an earlier version back, as a new one."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    await jobs.rollback(
        call.context.database,
        row.job_id,
        call.body.version,
        tenant=call.tenant,
        by=call.caller.name,
        may_exceed=call.caller.may_exceed,
    )
    return await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)


@table.route("GET", JOB + "/ledger", scope="read", answer=wire.Page[wire.LedgerEntry], query=("limit", "cursor"))
async def ledger(call: Call) -> wire.Page[wire.LedgerEntry]:
    """What became of each due instant of a job, newest first."""
    return await fire_views.ledger(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
    )


@table.route("POST", "/api/v1/schedules:preview", scope="read", body=wire.PreviewRequest, answer=wire.Preview)
async def preview(call: Call) -> wire.Preview:
    """What a schedule means: a sentence, its next fires, and anything unusual."""
    return await jobs.preview(call.context.database, call.body, tenant=call.tenant)


@table.route("DELETE", JOB, scope="write", status=204, query=("cascade", "reason"))
async def delete(call: Call) -> None:
    """Delete a job: it never fires again, its history stays. If others need it, only with `cascade=detach`."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    seen = etag.seen(call, row.job_id, row.version)
    change = jobs.delete(
        call.context.database,
        row.job_id,
        tenant=call.tenant,
        by=call.caller.name,
        detach=call.detaches(),
        reason=call.reason(),
        seen=seen,
    )
    await etag.matched(call, change)


@table.route("POST", JOB + "/pause", scope="write", body=wire.Pause, answer=wire.Job)
async def pause(call: Call) -> wire.Job:
    """Pause a job: no fires until it is resumed, by someone or by itself at `until`."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    body: wire.Pause = call.body
    await jobs.pause(
        call.context.database, row.job_id, tenant=call.tenant, reason=body.reason, until=body.until, by=call.caller.name
    )
    return await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)


@table.route("POST", JOB + "/resume", scope="write", body=wire.Resume, answer=wire.Job)
async def resume(call: Call) -> wire.Job:
    """Resume a paused job: it fires again from now on; `catch_up` applies its misfire policy to the pause."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    await jobs.resume(
        call.context.database, row.job_id, tenant=call.tenant, caught_up=call.body.catch_up, by=call.caller.name
    )
    return await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)


@table.route("POST", JOB + "/trigger", scope="write", body=wire.RunNow, answer=wire.Execution, status=201)
async def trigger(call: Call) -> Response:
    """Run a job now or at a time; its cadence does not move."""
    body: wire.RunNow = call.body
    key = body.key or call.request.headers.get("idempotency-key")
    submit, ref, by = call.context.submitter, call.path("ref"), call.caller.name
    execution_id = None
    if key is None and body == wire.RunNow():
        execution_id = await submit.submit_known(ref, tenant=call.tenant, by=by)
    if execution_id is None:
        row = await refs.job_row(call.context.database, ref, tenant=call.tenant)
        check_params(row.spec, body.params)
        note = None if body.reason is None else Note.of(row, body.reason)
        submission = Submission(call.tenant, by, row.job_id, body.at, body.params, body.fire_at, note)
        execution_id = await (submit.submit_once(submission, key) if key else submit.submit(submission))
        submit.seen(ref, row, tenant=call.tenant)
    found = await execution_views.get(call.context.database, execution_id, tenant=call.tenant)
    return Response(
        encode(found), 201, {"Location": f"/api/v1/executions/{execution_id}"}, media_type="application/json"
    )


@table.route("GET", JOB + "/fires", scope="read", answer=wire.Fires, query=("count", "after"))
async def fires(call: Call) -> wire.Fires:
    """The next fires of a job."""
    return await fire_views.of_job(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        count=call.number("count", 10),
        after=call.instant("after"),
    )


@table.route(
    "GET", JOB + "/executions", scope="read", answer=wire.Page[wire.Execution], query=("limit", "cursor", "state")
)
async def executions(call: Call) -> wire.Page[wire.Execution]:
    """The executions of a job, newest first."""
    return await execution_views.list_executions(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.path("ref"),
        states=call.request.query_params.getlist("state"),
    )


async def _with_warnings(call: Call, job: wire.Job) -> wire.Job:
    """What is no error, and yet will keep the job from running."""
    warnings = await why_execution.unfit(call.context.database, job.spec, tenant=call.tenant)
    return msgspec.structs.replace(job, warnings=warnings) if warnings else job
