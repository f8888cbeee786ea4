"""Workflows over HTTP."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import wire
from mainspring.api import etag
from mainspring.api.route import Call, Table
from mainspring.codec import encode
from mainspring.domain.errors import NotFound
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.intake import workflow_versions, workflows
from mainspring.views import refs

table = Table()
WORKFLOWS = "/api/v1/workflows"
WORKFLOW = WORKFLOWS + "/{ref}"
MOST_BYTES = 16_000_000
"""Workflows of many thousand steps are written as a whole."""


@table.route(
    "POST",
    WORKFLOWS,
    scope="write",
    body=WorkflowSpec,
    answer=wire.Workflow,
    status=201,
    limit=MOST_BYTES,
    query=("dry_run",),
)
async def apply(call: Call) -> Response:
    """Add a workflow, or make the one of that name like this (200); `dry_run=true` only says whether it is right."""
    if call.query("dry_run") == "true":
        order = await workflows.check(call.body)
        return Response(encode(wire.WorkflowOrder(order=order)), media_type="application/json")
    async with call.making(call.body.schedule is not None and not await _exists(call)):
        found, change = await etag.matched(
            call,
            workflows.apply(
                call.context.database,
                call.body,
                tenant=call.tenant,
                by=call.caller.name,
                seen=await _seen(call),
                may_exceed=call.caller.may_exceed,
            ),
        )
    status = 201 if change == "created" else 200
    return etag.tagged(found, status, Location=f"{WORKFLOWS}/{found.name}", Mainspring_Change=change)


async def _exists(call: Call) -> bool:
    try:
        await refs.job_row(call.context.database, call.body.name, tenant=call.tenant)
    except NotFound:
        return False
    return True


async def _seen(call: Call) -> int | None:
    if etag.wanted(call) is None:
        return None
    row = await refs.job_row(call.context.database, call.body.name, tenant=call.tenant)
    return etag.seen(call, row.job_id, row.version)


@table.route("GET", WORKFLOWS, scope="read", answer=wire.Page[wire.WorkflowLine], query=("limit", "cursor"))
async def list_workflows(call: Call) -> wire.Page[wire.WorkflowLine]:
    """List workflows by name."""
    return await workflows.list_workflows(
        call.context.database, tenant=call.tenant, cursor=call.query("cursor"), limit=call.number("limit", 50)
    )


@table.route("GET", WORKFLOW, scope="read", answer=wire.Workflow)
async def get(call: Call) -> Response:
    """Get a workflow, with its steps in the order they can be executed; its ETag, sent as If-Match, guards a change."""
    return etag.tagged(await workflows.get(call.context.database, call.path("ref"), tenant=call.tenant))


@table.route("GET", WORKFLOW + "/grid", scope="read", answer=wire.Grid, query=("runs",))
async def grid(call: Call) -> wire.Grid:
    """The last runs of a workflow, newest first, with the state of each step."""
    return await call.context.runs.grid(call.path("ref"), tenant=call.tenant, count=call.number("runs", 25))


@table.route(
    "GET", WORKFLOW + "/versions", scope="read", answer=wire.Page[wire.WorkflowChange], query=("limit", "cursor")
)
async def versions(call: Call) -> wire.Page[wire.WorkflowChange]:
    """The versions of a workflow, newest first, and what each changed; at most 50 at a time."""
    return await workflow_versions.versions(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 20),
    )


@table.route("GET", WORKFLOW + "/versions/{version}", scope="read", answer=wire.WorkflowVersion)
async def version(call: Call) -> wire.WorkflowVersion:
    """What one version of a workflow says."""
    text = call.path("version")
    if not text.isdecimal() or len(text) > 9:
        raise NotFound(f"{text!r} is not the number of a version")
    return await workflow_versions.version(call.context.database, call.path("ref"), int(text), tenant=call.tenant)


@table.route("POST", WORKFLOW + "/rollback", scope="write", body=wire.Rollback, answer=wire.Workflow)
async def rollback(call: Call) -> Response:
    """Bring an earlier version back, as a new one; runs that have begun stay as they are."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    change = workflow_versions.rollback(
        call.context.database,
        call.path("ref"),
        call.body.version,
        tenant=call.tenant,
        by=call.caller.name,
        seen=etag.seen(call, row.job_id, row.version),
        may_exceed=call.caller.may_exceed,
    )
    return etag.tagged(await etag.matched(call, change))


@table.route("DELETE", WORKFLOW, scope="write", status=204, query=("cascade", "reason"))
async def delete(call: Call) -> None:
    """Delete a workflow; its runs go on and stay readable. If others need it, only with `cascade=detach`."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    seen = etag.seen(call, row.job_id, row.version)
    change = workflows.delete(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        by=call.caller.name,
        detach=call.detaches(),
        reason=call.reason(),
        seen=seen,
    )
    await etag.matched(call, change)


@table.route("POST", WORKFLOW + "/run", scope="write", body=wire.RunRequest, answer=wire.Run, status=201)
async def run(call: Call) -> Response:
    """Start a run now; the same `key` is answered with the same run for a day."""
    found = await call.context.runs.start(call.path("ref"), call.body, tenant=call.tenant, by=call.caller.name)
    return Response(encode(found), 201, {"Location": f"/api/v1/runs/{found.run_id}"}, media_type="application/json")
