"""Routes of workflows."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import wire
from mainspring.api import etag
from mainspring.api.route import Call, Table
from mainspring.codec import encode
from mainspring.domain.errors import NotFound
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows
from mainspring.views import refs
from mainspring.views import workflows as workflow_views

table = Table()
WORKFLOWS = "/api/v1/workflows"
WORKFLOW = WORKFLOWS + "/{ref}"
MOST_BYTES = 16_000_000
"""A workflow with thousands of steps is sent in one request."""


@table.route(
    "POST",
    WORKFLOWS,
    scope="write",
    body=WorkflowSpec,
    response=wire.Workflow,
    status=201,
    limit=MOST_BYTES,
    query=("dry_run",),
    creates=True,
)
async def apply(call: Call) -> Response:
    """Create a workflow (201), or update the one with that name (200).

    With `dry_run=true` the workflow is only validated, and the response is a WorkflowOrder.
    """
    if call.query("dry_run") == "true":
        order = await workflows.check(call.body)
        return Response(encode(wire.WorkflowOrder(order=order)), media_type="application/json")
    found, change = await etag.guard(
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
    return etag.with_etag(found, status, Location=f"{WORKFLOWS}/{found.name}", Mainspring_Change=change)


async def _seen(call: Call) -> int | None:
    if etag.if_match(call) is None:
        return None
    row = await refs.job_row(call.context.database, call.body.name, tenant=call.tenant)
    return etag.expected_version(call, row.job_id, row.version)


@table.route(
    "GET", WORKFLOWS, scope="read", response=wire.Page[wire.WorkflowLine], query=("limit", "cursor"), replica=True
)
async def list_workflows(call: Call) -> wire.Page[wire.WorkflowLine]:
    """List workflows by name."""
    return await workflow_views.list_workflows(
        call.context.database, tenant=call.tenant, cursor=call.query("cursor"), limit=call.number("limit", 50)
    )


@table.route("GET", WORKFLOW, scope="read", response=wire.Workflow)
async def get(call: Call) -> Response:
    """Get a workflow.

    Send its ETag as `If-Match` with a change, and the change is rejected if the workflow was edited in between.
    """
    return etag.with_etag(await workflow_views.get(call.context.database, call.path("ref"), tenant=call.tenant))


@table.route("GET", WORKFLOW + "/grid", scope="read", response=wire.Grid, query=("runs",), replica=True)
async def grid(call: Call) -> wire.Grid:
    """Get the latest runs of a workflow with the state of each step, newest first."""
    return await call.context.run_views.grid(call.path("ref"), tenant=call.tenant, count=call.number("runs", 25))


@table.route(
    "GET", WORKFLOW + "/versions", scope="read", response=wire.Page[wire.WorkflowChange], query=("limit", "cursor")
)
async def versions(call: Call) -> wire.Page[wire.WorkflowChange]:
    """List the versions of a workflow with what each changed, newest first; at most 50 per page."""
    return await workflow_views.list_versions(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 20),
    )


@table.route("GET", WORKFLOW + "/versions/{version}", scope="read", response=wire.WorkflowVersion)
async def version(call: Call) -> wire.WorkflowVersion:
    """Get one version of a workflow."""
    text = call.path("version")
    if not text.isdecimal() or len(text) > 9:
        raise NotFound(f"{text!r} is not a version number")
    return await workflow_views.version(call.context.database, call.path("ref"), int(text), tenant=call.tenant)


@table.route("POST", WORKFLOW + "/rollback", scope="write", body=wire.Rollback, response=wire.Workflow, creates=True)
async def rollback(call: Call) -> Response:
    """Restore an earlier version as a new one; runs that have started keep theirs."""
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    change = workflows.rollback(
        call.context.database,
        call.path("ref"),
        call.body.version,
        tenant=call.tenant,
        by=call.caller.name,
        seen=etag.expected_version(call, row.job_id, row.version),
        may_exceed=call.caller.may_exceed,
    )
    return etag.with_etag(await etag.guard(call, change))


@table.route("DELETE", WORKFLOW, scope="write", status=204, query=("cascade", "reason"))
async def delete(call: Call) -> None:
    """Delete a workflow; its runs continue and stay readable.

    A workflow that jobs depend on is deleted only with `cascade=detach`, which removes those dependencies.
    """
    row = await refs.job_row(call.context.database, call.path("ref"), tenant=call.tenant)
    seen = etag.expected_version(call, row.job_id, row.version)
    change = workflows.delete(
        call.context.database,
        call.path("ref"),
        tenant=call.tenant,
        by=call.caller.name,
        detach=call.detaches(),
        reason=call.reason(),
        seen=seen,
    )
    await etag.guard(call, change)


@table.route(
    "POST", WORKFLOW + "/run", scope="write", body=wire.RunRequest, response=wire.Run, status=201, creates=True
)
async def run(call: Call) -> Response:
    """Start a run now; for a day, the same `key` returns the same run."""
    found = await run_actions.start(
        call.context.runs, call.path("ref"), call.body, tenant=call.tenant, by=call.caller.name
    )
    return Response(encode(found), 201, {"Location": f"/api/v1/runs/{found.run_id}"}, media_type="application/json")
