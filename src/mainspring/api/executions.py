"""Routes of executions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from uuid import UUID

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.api import sse, status_reads
from mainspring.api.read_cache import Label, job_label
from mainspring.api.route import Call, Table
from mainspring.domain.events import event_of
from mainspring.intake import executions as intake
from mainspring.intake import requeue as intake_requeue
from mainspring.views import executions as execution_views
from mainspring.views import logs as log_views
from mainspring.views import refs, search
from mainspring.views.execution_timeline import events_of

table = Table()
EXECUTIONS = "/api/v1/executions"
EXECUTION = EXECUTIONS + "/{ref}"
LONGEST_WAIT_S = 60.0


def _jobs_of_batch(call: Call) -> Iterable[Label]:
    return (job_label(call.tenant, ref) for ref in {item.job for item in call.body.items})


@table.route(
    "POST",
    EXECUTIONS + ":batch",
    scope="write",
    body=wire.Batch,
    response=wire.BatchAnswer,
    changes=_jobs_of_batch,
    creates=True,
    checks_grants=True,
)
async def submit_batch(call: Call) -> wire.BatchAnswer:
    """Submit up to 1,000 executions; each item has its own status, in order."""
    submission = call.context.submitter.submit_batch(call.body, tenant=call.tenant, by=call.caller.name)
    return await call.submitting(submission, lambda answer: [i.execution_id for i in answer.items if i.execution_id])


@table.route(
    "GET",
    EXECUTIONS,
    scope="read",
    response=wire.Page[wire.Execution],
    query=("job", "state", "limit", "cursor", "filter"),
    cached=status_reads.EXECUTIONS,
    replica=True,
)
async def list_executions(call: Call) -> wire.Page[wire.Execution]:
    """List executions, latest fire first.

    `filter` is a search such as `state:failed job:report queue:long since:24h`.
    """
    if (text := call.query("filter")) is not None:
        return await search.find_executions(
            call.context.database,
            text,
            tenant=call.tenant,
            cursor=call.query("cursor"),
            limit=call.number("limit", 50),
        )
    return await execution_views.list_executions(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.query("job"),
        states=call.request.query_params.getlist("state"),
    )


@table.route("GET", EXECUTIONS + ":last", scope="read", response=wire.Execution)
async def last(call: Call) -> wire.Execution:
    """Get the execution that the caller requested last; if there is none, the one that was due last."""
    return await execution_views.latest(call.context.database, tenant=call.tenant, by=call.caller.name)


@table.route("GET", EXECUTION, scope="read", response=wire.Execution, query=("wait",), cached=status_reads.EXECUTION)
async def get(call: Call) -> wire.Execution:
    """Get an execution.

    With `wait=30s`, the response is delayed until the execution is final or the wait has passed.
    """
    execution_id = await _id(call)
    wait_s = call.seconds("wait", 0.0, LONGEST_WAIT_S)
    if wait_s > 0:
        with call.context.streams.waiting(call.caller, call.request):
            found = await call.context.live.until_final(execution_id, tenant=call.tenant, wait_s=wait_s)
        call.context.reads.observed([execution_id])
        return found
    return await execution_views.get(call.context.database, execution_id, tenant=call.tenant)


@table.route("GET", EXECUTION + "/events", scope="read", response=wire.Page[wire.LifecycleEvent])
async def events(call: Call) -> wire.Page[wire.LifecycleEvent]:
    """List the lifecycle events of an execution in order."""
    found = await execution_views.get(call.context.database, await _id(call), tenant=call.tenant)
    return wire.Page(items=events_of(found))


@table.route(
    "POST", EXECUTION + "/cancel", scope="write", body=wire.Cancel, response=wire.Execution, checks_grants=True
)
async def cancel(call: Call) -> wire.Execution:
    """Cancel an execution.

    One that has not started is cancelled at once; a running one is cancelled through its worker.
    """
    execution_id = await _id(call)
    await intake.cancel(
        call.context.database, execution_id, tenant=call.tenant, by=call.caller.name, reason=call.body.reason
    )
    return await execution_views.get(call.context.database, execution_id, tenant=call.tenant)


@table.route(
    "POST",
    EXECUTION + "/requeue",
    scope="operate",
    body=wire.Requeue,
    response=wire.Execution,
    status=201,
    creates=True,
    checks_grants=True,
)
async def requeue(call: Call) -> wire.Execution:
    """Run an ended execution again: a new execution with the same parameters and fire time.

    An open dead letter is replayed, which resolves it. For a day, repeated requests return the same execution.
    """
    new_id = await intake_requeue.requeue(
        call.context.database,
        call.context.submitter,
        await _id(call),
        call.body,
        tenant=call.tenant,
        by=call.caller.name,
    )
    return await execution_views.get(call.context.database, new_id, tenant=call.tenant)


@table.route("GET", EXECUTION + "/logs", scope="read", response=wire.Logs, query=("place", "follow"))
async def logs(call: Call) -> wire.Logs | Response:
    """Get the log of an execution.

    With `follow=true`, the response is a stream of server-sent events until the execution is final.
    """
    execution_id = await _id(call)
    place = call.query("place") or call.request.headers.get("last-event-id")
    if call.query("follow") in ("true", "1"):
        log_views.parse_place(place)
        await execution_views.get(call.context.database, execution_id, tenant=call.tenant)
        return sse.stream(call, _follow(call, execution_id, place))
    return await log_views.read_logs(call.context.database, execution_id, tenant=call.tenant, place=place)


@table.route("GET", "/api/v1/stream", scope="read", response=wire.StreamedExecution)
async def watch(call: Call) -> Response:
    """Stream executions as they start and end, as server-sent events."""
    return sse.stream(call, _changes(call))


async def _follow(call: Call, execution_id: UUID, place: str | None) -> AsyncIterator[bytes]:
    sent: wire.Progress | None = None
    retried: wire.Retry | None = None
    async for logs in call.context.live.output(execution_id, tenant=call.tenant, place=place):
        for chunk in logs.chunks:
            yield sse.event("chunk", chunk, id_=f"{chunk.attempt}.{chunk.seq}")
        if logs.progress is not None and logs.progress != sent:
            sent = logs.progress
            yield sse.event("progress", sent)
        if logs.retry is not None and logs.retry != retried:
            retried = logs.retry
            yield sse.event("retry", retried)
        if logs.complete:
            found = await execution_views.get(call.context.database, execution_id, tenant=call.tenant)
            yield sse.event("end", {"state": found.state})
        elif not logs.chunks:
            yield sse.COMMENT


async def _changes(call: Call) -> AsyncIterator[bytes]:
    yield sse.COMMENT
    async for executions in call.context.live.changes(tenant=call.tenant):
        for e in executions:
            named = {**msgspec.structs.asdict(e), "event": event_of(e.state, e.attempt)}
            yield sse.event("execution", wire.StreamedExecution(**named))
        if not executions:
            yield sse.COMMENT


async def _id(call: Call) -> UUID:
    return await refs.execution_id(call.context.database, call.path("ref"), tenant=call.tenant)
