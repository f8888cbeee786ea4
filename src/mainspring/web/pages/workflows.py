"""The list of workflows, the page of one, its versions, and the start of a run."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows as intake
from mainspring.views import workflows as workflow_views
from mainspring.web import render
from mainspring.web.draw.dag import STEP_STYLES, draw, of_workflow
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.pages.job_versions import version_number
from mainspring.web.pages.runs import MAX_STEPS_DRAWN
from mainspring.web.render import now, page
from mainspring.web.urls import link

WORKFLOWS_SHOWN = 50
RUNS_SHOWN = 20
STEPS_SHOWN = 200


async def workflows(request: PageRequest) -> Response:
    """GET /workflows."""
    cursor = request.query("cursor")
    found = await workflow_views.list_workflows(
        request.context.database, tenant=request.caller.tenant, cursor=cursor or None, limit=WORKFLOWS_SHOWN
    )
    latest = await workflow_views.latest_of(
        request.context.database, [w.job_id for w in found.items], tenant=request.caller.tenant
    )
    recent = await request.context.run_views.list_runs(tenant=request.caller.tenant, limit=RUNS_SHOWN)
    return page(
        "workflows.html",
        request.caller,
        workflows=found.items,
        latest=latest,
        runs=recent.items,
        styles=STEP_STYLES,
        cursor=cursor,
        next_page=found.next_cursor and link("/workflows", cursor=found.next_cursor),
    )


async def workflow(request: PageRequest) -> Response:
    """GET /workflows/{ref}; `page` selects a page of steps, `open` unfolded stacks, `draw` a large graph."""
    found = await workflow_views.get(request.context.database, request.ref, tenant=request.caller.tenant)
    recent = await request.context.run_views.list_runs(
        tenant=request.caller.tenant, workflow=str(found.job_id), limit=RUNS_SHOWN
    )
    opened = request.http.query_params.getlist("open")
    number = request.query("page")
    start = int(number) * STEPS_SHOWN if number.isascii() and number.isdigit() and len(number) < 7 else 0
    drawing = None
    if len(found.order) <= MAX_STEPS_DRAWN or opened or request.query("draw"):
        graph = of_workflow(found.spec, found.order)
        drawing = await calculated(draw, graph, now(), opened=opened, here="?")
    return page(
        "workflow.html",
        request.caller,
        w=found,
        runs=recent.items,
        styles=STEP_STYLES,
        start=start,
        shown=STEPS_SHOWN,
        drawing=drawing,
    )


async def versions(request: PageRequest) -> Response:
    """GET /workflows/{ref}/versions."""
    database, tenant = request.context.database, request.caller.tenant
    found = await workflow_views.get(database, request.ref, tenant=tenant)
    cursor = request.query("cursor") or None
    listed = await workflow_views.list_versions(database, str(found.job_id), tenant=tenant, cursor=cursor)
    next_page = listed.next_cursor and link(request.http.url.path, cursor=listed.next_cursor)
    return page(
        "workflow_versions.html", request.caller, w=found, versions=listed.items, cursor=cursor, next_page=next_page
    )


async def rollback(request: PageRequest) -> Response:
    """POST /workflows/{ref}/rollback."""
    found = await intake.rollback(
        request.context.database,
        request.ref,
        version_number(request.form.get("to", "")),
        tenant=request.caller.tenant,
        by=request.caller.name,
        seen=seen_version(request),
        may_exceed=request.caller.may_exceed,
    )
    return RedirectResponse(f"/workflows/{found.job_id}", 303, render.HEADERS)


async def start(request: PageRequest) -> Response:
    """POST /workflows/{ref}/run: start a run without parameters."""
    found = await run_actions.start(
        request.context.runs,
        request.ref,
        wire.RunRequest(reason=""),
        tenant=request.caller.tenant,
        by=request.caller.name,
    )
    return RedirectResponse(f"/runs/{found.run_id}", 303, render.HEADERS)
