"""Pages of workflows, and what can be decided about their runs."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows
from mainspring.views import workflows as workflow_views
from mainspring.views.runs import parse_run_id
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.draw.dag import LOOKS, draw, of_workflow
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.pages.jobs import link
from mainspring.web.pages.runs import AT_ONCE
from mainspring.web.render import now, page

SHOWN = 50
STEPS = 200


async def listing(visit: Visit) -> Response:
    cursor = visit.query("cursor")
    found = await workflow_views.list_workflows(
        visit.context.database, tenant=visit.caller.tenant, cursor=cursor or None, limit=SHOWN
    )
    recent = await visit.context.run_views.list_runs(tenant=visit.caller.tenant, limit=20)
    return page(
        "workflows.html",
        visit.caller,
        workflows=found.items,
        runs=recent.items,
        looks=LOOKS,
        cursor=cursor,
        onward=found.next_cursor and link("/workflows", cursor=found.next_cursor),
    )


async def workflow(visit: Visit) -> Response:
    found = await workflow_views.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    recent = await visit.context.run_views.list_runs(tenant=visit.caller.tenant, workflow=str(found.job_id), limit=20)
    opened = visit.request.query_params.getlist("open")
    number = visit.query("page")
    start = int(number) * STEPS if number.isascii() and number.isdigit() and len(number) < 7 else 0
    drawing = None
    if len(found.order) <= AT_ONCE or opened or visit.query("draw"):
        graph = of_workflow(found.spec, found.order)
        drawing = await asyncio.to_thread(draw, graph, now(), opened=opened, here="?")
    return page(
        "workflow.html",
        visit.caller,
        w=found,
        runs=recent.items,
        looks=LOOKS,
        start=start,
        shown=STEPS,
        drawing=drawing,
    )


async def versions(visit: Visit) -> Response:
    """GET /workflows/{ref}/versions."""
    database, tenant = visit.context.database, visit.caller.tenant
    found = await workflow_views.get(database, visit.ref, tenant=tenant)
    cursor = visit.query("cursor") or None
    told = await workflow_views.list_versions(database, str(found.job_id), tenant=tenant, cursor=cursor)
    onward = told.next_cursor and link(visit.request.url.path, cursor=told.next_cursor)
    return page("flow_versions.html", visit.caller, w=found, told=told.items, cursor=cursor, onward=onward)


async def bring_back(visit: Visit) -> Response:
    """POST /workflows/{ref}/rollback."""
    wanted = visit.form.get("to", "")
    if not wanted.isdecimal() or len(wanted) > 9:
        raise NotFound(f"{wanted!r} is not the number of a version")
    found = await workflows.rollback(
        visit.context.database,
        visit.ref,
        int(wanted),
        tenant=visit.caller.tenant,
        by=visit.caller.name,
        seen=seen_version(visit),
        may_exceed=visit.caller.may_exceed,
    )
    return _to(f"/workflows/{found.job_id}")


# What the buttons do ------------------------------------------------------------------------------------


async def start(visit: Visit) -> Response:
    found = await run_actions.start(
        visit.context.runs, visit.ref, wire.RunRequest(reason=""), tenant=visit.caller.tenant, by=visit.caller.name
    )
    return _to(f"/runs/{found.run_id}")


async def cancel(visit: Visit) -> Response:
    run_id = parse_run_id(visit.ref)
    await run_actions.cancel(
        visit.context.runs,
        run_id,
        tenant=visit.caller.tenant,
        by=visit.caller.name,
        reason=visit.form.get("reason", "")[:1000],
    )
    return _to(f"/runs/{run_id}")


async def rerun(visit: Visit) -> Response:
    begin = wire.Rerun(from_step=visit.form.get("from_step") or None)
    found = await run_actions.rerun(
        visit.context.runs, parse_run_id(visit.ref), begin, tenant=visit.caller.tenant, by=visit.caller.name
    )
    return _to(f"/runs/{found.run_id}")


async def decide(visit: Visit) -> Response:
    """Approves, rejects, skips or completes the step that the form names."""
    run_id, runs = parse_run_id(visit.ref), visit.context.runs
    step, what, reason = (visit.form.get(name, "") for name in ("step", "what", "reason"))
    tenant, by, scopes = visit.caller.tenant, visit.caller.name, sorted(visit.caller.scopes)
    if what == "skip":
        await run_actions.skip(runs, run_id, step, reason, tenant=tenant, by=by, scopes=scopes)
    elif what == "complete":
        await run_actions.force_complete(runs, run_id, step, reason, None, tenant=tenant, by=by, scopes=scopes)
    else:
        note = wire.Decision(note=reason[:1000])
        await run_actions.decide(
            runs, run_id, step, note, tenant=tenant, by=by, scopes=scopes, approved=what == "approve"
        )
    return _to(f"/runs/{run_id}#step-{quote(step)}")


def _to(path: str) -> Response:
    return RedirectResponse(path, 303, render.HEADERS)
