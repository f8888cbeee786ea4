"""Actions of buttons and confirmations on jobs, backfills, executions and runs. Each redirects to a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import quote
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.intake import backfills, executions, jobs
from mainspring.intake import runs as run_actions
from mainspring.views import backfills as backfill_views
from mainspring.views import refs
from mainspring.views.runs import parse_run_id
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.instant import parse_future
from mainspring.web.urls import local_path

MAX_REASON_CHARS = 1000


def reason_of(request: PageRequest) -> str:
    return request.form.get("reason", "")[:MAX_REASON_CHARS]


# Jobs and backfills ---------------------------------------------------------------------------------------


async def pause(request: PageRequest) -> Response:
    row = await refs.job_row(request.context.database, request.ref, tenant=request.caller.tenant)
    await jobs.pause(
        request.context.database,
        row.job_id,
        tenant=request.caller.tenant,
        reason=reason_of(request),
        until=parse_future(request.form.get("until", ""), "/until", request.caller.zone),
        by=request.caller.name,
    )
    return _back(request, f"/jobs/{quote(row.name)}")


async def resume(request: PageRequest) -> Response:
    row = await refs.job_row(request.context.database, request.ref, tenant=request.caller.tenant)
    caught_up = request.form.get("catch_up", "") in ("true", "1")
    await jobs.resume(
        request.context.database, row.job_id, tenant=request.caller.tenant, caught_up=caught_up, by=request.caller.name
    )
    return _back(request, f"/jobs/{quote(row.name)}")


async def delete(request: PageRequest) -> Response:
    row = await refs.job_row(request.context.database, request.ref, tenant=request.caller.tenant)
    await jobs.delete(
        request.context.database,
        row.job_id,
        tenant=request.caller.tenant,
        by=request.caller.name,
        reason=reason_of(request),
        detach=request.form.get("detach", "") in ("true", "1"),
    )
    return RedirectResponse("/jobs", 303, render.HEADERS)


async def pause_backfill(request: PageRequest) -> Response:
    return await _change_backfill(request, partial(backfills.pause, by=request.caller.name))


async def resume_backfill(request: PageRequest) -> Response:
    return await _change_backfill(request, partial(backfills.resume, by=request.caller.name))


async def cancel_backfill(request: PageRequest) -> Response:
    return await _change_backfill(request, partial(backfills.cancel, by=request.caller.name))


async def _change_backfill(request: PageRequest, change: Callable[..., Awaitable[None]]) -> Response:
    if not refs.is_id(request.ref):
        raise NotFound(f"there is no backfill {request.ref!r}")
    database, tenant, backfill_id = request.context.database, request.caller.tenant, UUID(request.ref)
    await change(database, backfill_id, tenant=tenant)
    found = await backfill_views.get(database, backfill_id, tenant=tenant)
    return _back(request, f"/jobs/{found.job_id}")


# Executions and runs --------------------------------------------------------------------------------------


async def cancel(request: PageRequest) -> Response:
    tenant, database = request.caller.tenant, request.context.database
    execution_id = await refs.execution_id(database, request.ref, tenant=tenant)
    await executions.cancel(database, execution_id, tenant=tenant, by=request.caller.name, reason=reason_of(request))
    return _back(request, f"/executions/{execution_id}")


async def cancel_run(request: PageRequest) -> Response:
    run_id = parse_run_id(request.ref)
    await run_actions.cancel(
        request.context.runs, run_id, tenant=request.caller.tenant, by=request.caller.name, reason=reason_of(request)
    )
    return RedirectResponse(f"/runs/{run_id}", 303, render.HEADERS)


async def rerun(request: PageRequest) -> Response:
    begin = wire.Rerun(from_step=request.form.get("from_step") or None)
    found = await run_actions.rerun(
        request.context.runs, parse_run_id(request.ref), begin, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse(f"/runs/{found.run_id}", 303, render.HEADERS)


async def decide(request: PageRequest) -> Response:
    """Approve, reject, skip or complete a step; the form names the step and the decision."""
    run_id, runs = parse_run_id(request.ref), request.context.runs
    step, what, reason = (request.form.get(name, "") for name in ("step", "what", "reason"))
    tenant, by, scopes = request.caller.tenant, request.caller.name, sorted(request.caller.scopes)
    if what in ("skip", "complete"):
        request.caller.demand("operate")
    if what == "skip":
        found = await run_actions.skip(runs, run_id, step, reason, tenant=tenant, by=by, scopes=scopes)
    elif what == "complete":
        found = await run_actions.force_complete(runs, run_id, step, reason, None, tenant=tenant, by=by, scopes=scopes)
    else:
        note = wire.Decision(note=reason[:MAX_REASON_CHARS])
        found = await run_actions.decide(
            runs, run_id, step, note, tenant=tenant, by=by, scopes=scopes, approved=what == "approve"
        )
    # Of a run that had ended, a new one continues.
    return RedirectResponse(f"/runs/{found.run_id}#step-{quote(step)}", 303, render.HEADERS)


def _back(request: PageRequest, default: str) -> Response:
    """Redirect to the page that the form names in `back`, if it is on this server."""
    return RedirectResponse(local_path(request.form.get("back", ""), default), 303, render.HEADERS)
