"""The editor of a job's schedule: preview the change, then save it for the version that was previewed."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid
from mainspring.intake import jobs
from mainspring.views import jobs as job_views
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_density_cache import FireDensityCache
from mainspring.web.forms import schedule_text
from mainspring.web.forms.input_error import locate_error
from mainspring.web.forms.proposal import Proposal, patch_to, propose
from mainspring.web.forms.schedule_preview import ScheduleInput, SchedulePreview, preview_schedule
from mainspring.web.pages.job import manifest_owner
from mainspring.web.pages.playground import all_zones, part, shown_zones


class ScheduleEdit:
    """GET and POST /jobs/{ref}/schedule."""

    def __init__(self, density: FireDensityCache) -> None:
        self._density = density

    async def edit(self, request: PageRequest) -> Response:
        job = await _job(request)
        text, zone = schedule_text.spell(job.spec.schedule)
        if "expression" in request.http.query_params:
            text, zone = request.query("expression"), request.query("zone")
        return await self._page(request, job, ScheduleInput(text, zone, job.name))

    async def save(self, request: PageRequest) -> Response:
        job = await _job(request)
        typed = ScheduleInput(
            request.form.get("expression", "").strip(), request.form.get("zone", "").strip(), job.name
        )
        try:
            patch = patch_to(job, {"schedule": schedule_text.read(typed.text, typed.zone) if typed.text else None})
            if patch:
                await jobs.patch(
                    request.context.database,
                    job.job_id,
                    patch,
                    tenant=request.caller.tenant,
                    by=request.caller.name,
                    seen=seen_version(request),
                    may_exceed=request.caller.may_exceed,
                )
        except Invalid:
            return await self._page(request, job, typed, status=422)  # the page finds the same error, and shows it
        except Conflict as conflict:
            return await self._page(request, await _job(request), typed, status=409, conflict_text=conflict.message)
        return RedirectResponse(f"/jobs/{job.job_id}", 303, render.HEADERS)

    async def _page(
        self, request: PageRequest, job: wire.Job, typed: ScheduleInput, *, status: int = 200, conflict_text: str = ""
    ) -> Response:
        preview, proposal = await self._proposed(request, job, typed)
        values = {
            "job": job,
            "preview": preview,
            "proposal": proposal,
            "zones": shown_zones(request, preview),
            "typed": typed,
        }
        if request.query("part"):
            return part("proposed", request, **values)
        return render.page(
            "job_schedule.html",
            request.caller,
            status=status,
            conflict_text=conflict_text,
            manifest_owner=await manifest_owner(request, job),
            all_zones=all_zones(),
            **values,
        )

    async def _proposed(
        self, request: PageRequest, job: wire.Job, typed: ScheduleInput
    ) -> tuple[SchedulePreview | None, Proposal | None]:
        if not typed.text:
            return None, await propose(request, job, patch_to(job, {"schedule": None}))
        preview = await preview_schedule(request, self._density, typed)
        if preview.error is not None:
            return preview, None
        try:
            return preview, await propose(request, job, patch_to(job, {"schedule": preview.schedule}))
        except Invalid as error:
            return SchedulePreview(typed, error=locate_error(error, typed.text, typed.zone)), None


def seen_version(request: PageRequest) -> int:
    """Return the version that the submitted form was made for."""
    text = request.form.get("version", "")
    if not text.isdecimal() or len(text) > 9:
        raise Invalid("the form has no version; reload the page and try again")
    return int(text)


async def _job(request: PageRequest) -> wire.Job:
    return await job_views.get(request.context.database, request.ref, tenant=request.caller.tenant)
