"""Routes of jobs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.api import etag, status_reads
from mainspring.api.read_cache import Label, final_label, job_label, live_label
from mainspring.api.route import Call, JsonResponse, Table
from mainspring.codec import encode
from mainspring.domain.bounds import Values
from mainspring.domain.job import JobSpec
from mainspring.intake import dependencies, jobs
from mainspring.views import dependencies as dependency_views
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import job_size, refs, search, why_execution
from mainspring.views import jobs as job_views
from mainspring.views import schedules as schedule_views

table = Table()
JOBS = "/api/v1/jobs"
JOB = JOBS + "/{ref}"
DAY_S = 86_400.0
MAX_STATS_S = 366 * DAY_S


def _new_execution(call: Call) -> Iterable[Label]:
    return (job_label(call.tenant, call.path("ref")),)


def _edited_job(call: Call) -> Iterable[Label]:
    ref = call.path("ref")
    labels = (job_label(call.tenant, ref), live_label(call.tenant, ref))
    renamed = isinstance(call.body, dict) and "name" in call.body
    return (*labels, final_label(call.tenant, ref)) if renamed else labels


@table.route(
    "POST",
    JOBS,
    scope="write",
    body=JobSpec,
    response=wire.Job,
    status=201,
    creates=True,
    checks_grants=True,
)
async def create(call: Call) -> Response:
    """Create a job."""
    job_id = await jobs.create(
        call.context.database, call.body, tenant=call.tenant, by=call.caller.name, may_exceed=call.caller.may_exceed
    )
    found = await job_views.get(call.context.database, str(job_id), tenant=call.tenant)
    return etag.with_etag(await _with_warnings(call, found), 201)


@table.route(
    "GET",
    JOBS,
    scope="read",
    response=wire.Page[wire.Job],
    query=("limit", "cursor", "prefix", "filter"),
    cached=status_reads.JOBS,
    replica=True,
)
async def list_jobs(call: Call) -> wire.Page[wire.Job]:
    """List jobs by name.

    `filter` is a search such as `state:paused queue:long label:team=finance night`.
    """
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


@table.route("GET", JOB, scope="read", response=wire.Job, cached=status_reads.JOB)
async def get(call: Call) -> wire.Job:
    """Get a job by name or id.

    Send its ETag as `If-Match` with a change, and the change is rejected if the job was edited in between.
    """
    return await job_views.get(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route(
    "PATCH",
    JOB,
    scope="write",
    body=Values,
    response=wire.Job,
    query=("dry_run",),
    changes=_edited_job,
    checks_grants=True,
)
async def patch(call: Call) -> Response | wire.Change:
    """Change a job with a JSON merge patch.

    The result is a new version. With `dry_run=true` nothing is written and the response shows the change.
    """
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    seen = etag.expected_version(call, row.job_id, row.version)
    if call.query("dry_run") in ("true", "1"):
        return await jobs.preview_patch(
            call.context.database, row.job_id, call.body, tenant=call.tenant, may_exceed=call.caller.may_exceed
        )
    await etag.guard(
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
    return etag.with_etag(await _with_warnings(call, found))


@table.route("GET", JOB + "/dependencies", scope="read", response=wire.Dependencies)
async def dependencies_of(call: Call) -> wire.Dependencies:
    """Get the dependencies of a job.

    Each has its state; `order` lists all connected jobs, each after those it depends on.
    """
    return await dependency_views.dependencies_of(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route(
    "POST",
    JOB + "/dependencies",
    scope="write",
    body=wire.NewDependency,
    response=wire.Dependencies,
    status=201,
    creates=True,
)
async def add_dependency(call: Call) -> wire.Dependencies:
    """Add a dependency: the job runs after another has succeeded.

    A cycle is rejected, and the error names it.
    """
    return await dependencies.add(
        call.context.database, call.path("ref"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", JOB + "/dependencies/{parent}", scope="write", status=204)
async def remove_dependency(call: Call) -> None:
    """Remove a dependency."""
    await dependencies.remove(
        call.context.database, call.path("ref"), call.path("parent"), tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", JOB + "/force-complete", scope="operate", body=wire.Release, response=wire.Job)
async def force_complete(call: Call) -> wire.Job:
    """Release the jobs that depend on this one, as if it had succeeded.

    The newest unfinished execution of the job is ended.
    """
    return await _release(call, "forced")


@table.route("POST", JOB + "/skip", scope="operate", body=wire.Release, response=wire.Job)
async def skip(call: Call) -> wire.Job:
    """Release the jobs that depend on this one without running it.

    They can see that it was skipped.
    """
    return await _release(call, "skipped")


async def _release(call: Call, freed_as: str) -> wire.Job:
    await dependencies.free(
        call.context.database,
        call.path("ref"),
        call.body.reason,
        freed_as=freed_as,
        tenant=call.tenant,
        by=call.caller.name,
    )
    return await job_views.get(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route("GET", JOB + "/size", scope="read", response=wire.JobSize, replica=True)
async def size(call: Call) -> wire.JobSize:
    """Get the memory, CPU and timeout that the attempts of the last two weeks suggest for a job, with the evidence."""
    return await job_size.size(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route("GET", JOB + "/stats", scope="read", response=wire.JobStats, query=("since",), replica=True)
async def stats(call: Call) -> wire.JobStats:
    """Get statistics of a job: successes, failures and durations in the last day, or since `since=7d`."""
    since_s = call.seconds("since", DAY_S, MAX_STATS_S)
    return await job_views.stats(call.context.database, call.path("ref"), tenant=call.tenant, since_s=since_s)


@table.route(
    "GET", JOB + "/versions", scope="read", response=wire.Page[wire.Version], query=("limit", "cursor"), replica=True
)
async def versions(call: Call) -> wire.Page[wire.Version]:
    """List the versions of a job, newest first."""
    return await job_views.list_versions(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
    )


@table.route(
    "POST",
    JOB + "/rollback",
    scope="write",
    body=wire.Rollback,
    response=wire.Job,
    creates=True,
    checks_grants=True,
)
async def rollback(call: Call) -> wire.Job:
    """Restore an earlier version as a new one."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    await jobs.rollback(
        call.context.database,
        row.job_id,
        call.body.version,
        tenant=call.tenant,
        by=call.caller.name,
        may_exceed=call.caller.may_exceed,
    )
    found = await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)
    return await _with_warnings(call, found)


@table.route(
    "GET", JOB + "/ledger", scope="read", response=wire.Page[wire.LedgerEntry], query=("limit", "cursor"), replica=True
)
async def ledger(call: Call) -> wire.Page[wire.LedgerEntry]:
    """List every due instant of a job with its outcome, newest first."""
    return await fire_views.ledger(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
    )


@table.route("POST", "/api/v1/schedules:preview", scope="read", body=wire.PreviewRequest, response=wire.Preview)
async def preview(call: Call) -> wire.Preview:
    """Preview a schedule: a description, its next fires, and notes on anything unusual."""
    return await schedule_views.preview(call.context.database, call.body, tenant=call.tenant)


@table.route("DELETE", JOB, scope="write", status=204, query=("cascade", "reason"), checks_grants=True)
async def delete(call: Call) -> None:
    """Delete a job; its history is kept.

    A job that others depend on is deleted only with `cascade=detach`, which removes those dependencies.
    """
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    seen = etag.expected_version(call, row.job_id, row.version)
    change = jobs.delete(
        call.context.database,
        row.job_id,
        tenant=call.tenant,
        by=call.caller.name,
        detach=call.detaches(),
        reason=call.reason(),
        seen=seen,
    )
    await etag.guard(call, change)


@table.route(
    "POST", JOB + "/pause", scope="write", body=wire.Pause, response=wire.Job, changes=_edited_job, checks_grants=True
)
async def pause(call: Call) -> wire.Job:
    """Pause a job: it does not fire until it is resumed, or until `until`."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    body: wire.Pause = call.body
    await jobs.pause(
        call.context.database, row.job_id, tenant=call.tenant, reason=body.reason, until=body.until, by=call.caller.name
    )
    return await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)


@table.route(
    "POST", JOB + "/resume", scope="write", body=wire.Resume, response=wire.Job, changes=_edited_job, checks_grants=True
)
async def resume(call: Call) -> wire.Job:
    """Resume a paused job.

    With `catch_up`, its misfire policy applies to the fires missed during the pause; otherwise they are skipped.
    """
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    await jobs.resume(
        call.context.database, row.job_id, tenant=call.tenant, caught_up=call.body.catch_up, by=call.caller.name
    )
    return await job_views.get(call.context.database, str(row.job_id), tenant=call.tenant)


@table.route(
    "POST",
    JOB + "/trigger",
    scope="write",
    body=wire.RunNow,
    response=wire.Execution,
    status=201,
    changes=_new_execution,
    creates=True,
    checks_grants=True,
)
async def trigger(call: Call) -> Response:
    """Run a job now, or at `at`; its schedule is not affected."""
    body: wire.RunNow = call.body
    trigger = call.context.submitter.trigger(
        call.path("ref"),
        body,
        key=body.key or None,
        tenant=call.tenant,
        by=call.caller.name,
    )
    made = await call.submitting(trigger, lambda made: [made.execution_id])
    return JsonResponse(encode(made), 201, (b"location", b"/api/v1/executions/%b" % str(made.execution_id).encode()))


@table.route("GET", JOB + "/fires", scope="read", response=wire.Fires, query=("count", "after"))
async def fires(call: Call) -> wire.Fires:
    """List the next fires of a job."""
    return await fire_views.of_job(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        count=call.number("count", 10),
        after=call.instant("after"),
    )


@table.route(
    "GET",
    JOB + "/executions",
    scope="read",
    response=wire.Page[wire.Execution],
    query=("limit", "cursor", "state"),
    cached=status_reads.EXECUTIONS_OF_JOB,
    replica=True,
)
async def executions(call: Call) -> wire.Page[wire.Execution]:
    """List the executions of a job, newest first."""
    return await execution_views.list_executions(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.path("ref"),
        states=call.request.query_params.getlist("state"),
    )


async def _with_warnings(call: Call, job: wire.Job) -> wire.Job:
    """Add what is valid but will keep the job from running, such as resources that no worker has."""
    warnings = await why_execution.unfit(call.context.database, job.spec, tenant=call.tenant)
    if job.declared is not None and job.declared.edited:
        function = job.declared.function
        warnings = [*warnings, f"code declares this job ({function}): the next load of the code undoes the edit"]
    return msgspec.structs.replace(job, warnings=warnings) if warnings else job
