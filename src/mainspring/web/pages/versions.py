"""What a job's definition was, what each version changed, and the way back to one."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.intake import jobs
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.draw.diff import Line, changed_fields, difference
from mainspring.web.forms.proposal import patch_back, propose
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.pages.jobs import link

VERSIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Told:
    """A version, the fields it changed, and how; the first one changed nothing."""

    version: wire.Version
    fields: list[str]
    lines: list[Line]


async def versions(visit: Visit) -> Response:
    """GET /jobs/{ref}/versions."""
    database, tenant = visit.context.database, visit.caller.tenant
    job = await job_views.get(database, visit.ref, tenant=tenant)
    cursor = visit.query("cursor") or None
    # One more than is shown: the last of the page is compared with it.
    found = await job_views.list_versions(
        database, str(job.job_id), tenant=tenant, cursor=cursor, limit=VERSIONS_SHOWN + 1
    )
    told = [
        Told(new, changed_fields(old.spec, new.spec), difference(old.spec, new.spec)) if old else Told(new, [], [])
        for new, old in zip(found.items, [*found.items[1:], None], strict=True)
    ][:VERSIONS_SHOWN]
    more = len(found.items) > VERSIONS_SHOWN
    onward = link(visit.request.url.path, cursor=str(told[-1].version.version)) if more else ""
    return render.page("versions.html", visit.caller, job=job, told=told, cursor=cursor, onward=onward)


async def look_back(visit: Visit) -> Response:
    """GET /jobs/{ref}/rollback: what bringing a version back would do."""
    return await _page(visit, _version(visit.query("version")))


async def bring_back(visit: Visit) -> Response:
    """POST /jobs/{ref}/rollback."""
    row = await refs.job_row(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    wanted = _version(visit.form.get("to", ""))
    try:
        await jobs.rollback(
            visit.context.database,
            row.job_id,
            wanted,
            tenant=visit.caller.tenant,
            by=visit.caller.name,
            seen=seen_version(visit),
            may_exceed=visit.caller.may_exceed,
        )
    except Conflict as conflict:
        return await _page(visit, wanted, status=409, notice=conflict.message)
    return RedirectResponse(f"/jobs/{row.job_id}", 303, render.HEADERS)


async def _page(visit: Visit, wanted: int, *, status: int = 200, notice: str = "") -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    job = await job_views.get(database, visit.ref, tenant=tenant)
    spec = await job_views.version_of(database, job.job_id, wanted, tenant=tenant)
    proposal, refused = None, ""
    try:
        proposal = await propose(visit, job, patch_back(job, spec))
    except Invalid as error:
        refused = error.message
    fires = await fire_views.of_job(database, str(job.job_id), tenant=tenant, count=1)
    return render.page(
        "rollback.html",
        visit.caller,
        status=status,
        job=job,
        wanted=wanted,
        proposal=proposal,
        refused=refused,
        zone=fires.timezone,
        notice=notice,
    )


def _version(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise NotFound(f"{text!r} is not the number of a version")
    return int(text)
