"""What the buttons do. Each ends with a page that shows what has become of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import quote
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from mainspring.domain.errors import NotFound
from mainspring.intake import backfills, executions, jobs
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.access import Visit, own_path
from mainspring.web.forms.instant import moment_to_come

MAX_REASON = 1000


async def pause(visit: Visit) -> Response:
    row = await refs.job_row(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    reason = visit.form.get("reason", "")[:MAX_REASON]
    until = moment_to_come(visit.form.get("until", ""), "/until")
    await jobs.pause(
        visit.context.database,
        row.job_id,
        tenant=visit.caller.tenant,
        reason=reason,
        until=until,
        by=visit.caller.name,
    )
    return _back(visit, f"/jobs/{quote(row.name)}")


async def resume(visit: Visit) -> Response:
    row = await refs.job_row(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    caught_up = visit.form.get("catch_up", "") in ("true", "1")
    await jobs.resume(
        visit.context.database, row.job_id, tenant=visit.caller.tenant, caught_up=caught_up, by=visit.caller.name
    )
    return _back(visit, f"/jobs/{quote(row.name)}")


async def pause_backfill(visit: Visit) -> Response:
    return await _change_backfill(visit, partial(backfills.pause, by=visit.caller.name))


async def resume_backfill(visit: Visit) -> Response:
    return await _change_backfill(visit, partial(backfills.resume, by=visit.caller.name))


async def cancel_backfill(visit: Visit) -> Response:
    return await _change_backfill(visit, partial(backfills.cancel, by=visit.caller.name))


async def _change_backfill(visit: Visit, change: Callable[..., Awaitable[None]]) -> Response:
    if not refs.is_id(visit.ref):
        raise NotFound(f"there is no backfill {visit.ref!r}")
    database, tenant, backfill_id = visit.context.database, visit.caller.tenant, UUID(visit.ref)
    await change(database, backfill_id, tenant=tenant)
    found = await backfills.get(database, backfill_id, tenant=tenant)
    return _back(visit, f"/jobs/{found.job_id}")


async def delete(visit: Visit) -> Response:
    row = await refs.job_row(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    reason = visit.form.get("reason", "")[:MAX_REASON]
    await jobs.delete(
        visit.context.database,
        row.job_id,
        tenant=visit.caller.tenant,
        by=visit.caller.name,
        reason=reason,
        detach=visit.form.get("detach", "") in ("true", "1"),
    )
    return RedirectResponse("/jobs", 303, render.HEADERS)


async def cancel(visit: Visit) -> Response:
    tenant, database = visit.caller.tenant, visit.context.database
    execution_id = await refs.execution_id(database, visit.ref, tenant=tenant)
    reason = visit.form.get("reason", "")[:MAX_REASON]
    await executions.cancel(database, execution_id, tenant=tenant, by=visit.caller.name, reason=reason)
    return _back(visit, f"/executions/{execution_id}")


def _back(visit: Visit, default: str) -> Response:
    return RedirectResponse(own_path(visit.form.get("back", ""), default), 303, render.HEADERS)
