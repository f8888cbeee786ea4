"""The versions of a job's definition: what each one changed, and the rollback to one."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.intake import jobs
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.draw.diff import DiffLine, changed_fields, difference
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.proposal import patch_back, propose
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.urls import link

VERSIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A version with its difference to the one before; the first version has none."""

    version: wire.Version
    fields: list[str]
    lines: list[DiffLine]


async def versions(request: PageRequest) -> Response:
    """GET /jobs/{ref}/versions."""
    database, tenant = request.context.database, request.caller.tenant
    job = await job_views.get(database, request.ref, tenant=tenant)
    cursor = request.query("cursor") or None
    # One more than is shown: the last one shown is compared with it.
    found = await job_views.list_versions(
        database, str(job.job_id), tenant=tenant, cursor=cursor, limit=VERSIONS_SHOWN + 1
    )
    changes = await calculated(_changes, found.items)
    more = len(found.items) > VERSIONS_SHOWN
    next_page = link(request.http.url.path, cursor=str(changes[-1].version.version)) if more else ""
    return render.page(
        "job_versions.html", request.caller, job=job, changes=changes, cursor=cursor, next_page=next_page
    )


def _changes(versions: list[wire.Version]) -> list[VersionChange]:
    return [
        VersionChange(new, changed_fields(old.spec, new.spec), difference(old.spec, new.spec))
        if old
        else VersionChange(new, [], [])
        for new, old in zip(versions, [*versions[1:], None], strict=True)
    ][:VERSIONS_SHOWN]


async def rollback_page(request: PageRequest) -> Response:
    """GET /jobs/{ref}/rollback: preview what restoring a version changes."""
    return await _page(request, version_number(request.query("version")))


async def rollback(request: PageRequest) -> Response:
    """POST /jobs/{ref}/rollback."""
    row = await refs.job_row(request.context.database, request.ref, tenant=request.caller.tenant)
    wanted = version_number(request.form.get("to", ""))
    try:
        await jobs.rollback(
            request.context.database,
            row.job_id,
            wanted,
            tenant=request.caller.tenant,
            by=request.caller.name,
            seen=seen_version(request),
            may_exceed=request.caller.may_exceed,
        )
    except Conflict as conflict:
        return await _page(request, wanted, status=409, conflict_text=conflict.message)
    return RedirectResponse(f"/jobs/{row.job_id}", 303, render.HEADERS)


async def _page(request: PageRequest, wanted: int, *, status: int = 200, conflict_text: str = "") -> Response:
    database, tenant = request.context.database, request.caller.tenant
    job = await job_views.get(database, request.ref, tenant=tenant)
    spec = await job_views.version_of(database, job.job_id, wanted, tenant=tenant)
    proposal, refused = None, ""
    try:
        proposal = await propose(request, job, patch_back(job, spec))
    except Invalid as error:
        refused = error.message
    fires = await fire_views.of_job(database, str(job.job_id), tenant=tenant, count=1)
    return render.page(
        "job_rollback.html",
        request.caller,
        status=status,
        job=job,
        wanted=wanted,
        proposal=proposal,
        refused=refused,
        zone=fires.timezone,
        conflict_text=conflict_text,
    )


def version_number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise NotFound(f"{text!r} is not a version number")
    return int(text)
