"""Changing a job's schedule: typed, looked at, then saved for the version that was looked at."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid
from mainspring.intake import jobs
from mainspring.views import jobs as job_views
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.density_cache import DensityCache
from mainspring.web.forms import schedule_text
from mainspring.web.forms.proposal import Proposal, patch_to, propose
from mainspring.web.forms.schedule_error import slip_of
from mainspring.web.forms.schedule_preview import Trial, Typed, try_out
from mainspring.web.pages.playground import all_zones, part, shown_zones


class ScheduleEdit:
    """GET and POST /jobs/{ref}/schedule."""

    def __init__(self, crowds: DensityCache) -> None:
        self._crowds = crowds

    async def look(self, visit: Visit) -> Response:
        job = await _job(visit)
        text, zone = schedule_text.spell(job.spec.schedule)
        if "expression" in visit.request.query_params:
            text, zone = visit.query("expression"), visit.query("zone")
        return await self._page(visit, job, Typed(text, zone, job.name))

    async def save(self, visit: Visit) -> Response:
        job = await _job(visit)
        typed = Typed(visit.form.get("expression", "").strip(), visit.form.get("zone", "").strip(), job.name)
        try:
            patch = patch_to(job, {"schedule": schedule_text.read(typed.text, typed.zone) if typed.text else None})
            if patch:
                await jobs.patch(
                    visit.context.database,
                    job.job_id,
                    patch,
                    tenant=visit.caller.tenant,
                    by=visit.caller.name,
                    seen=seen_version(visit),
                    may_exceed=visit.caller.may_exceed,
                )
        except Invalid:
            return await self._page(visit, job, typed, status=422)  # the page finds the same slip, and shows it
        except Conflict as conflict:
            return await self._page(visit, await _job(visit), typed, status=409, notice=conflict.message)
        return RedirectResponse(f"/jobs/{job.job_id}", 303, render.HEADERS)

    async def _page(
        self, visit: Visit, job: wire.Job, typed: Typed, *, status: int = 200, notice: str = ""
    ) -> Response:
        trial, proposal = await self._proposed(visit, job, typed)
        values = {"job": job, "trial": trial, "proposal": proposal, "zones": shown_zones(visit, trial), "typed": typed}
        if visit.query("part"):
            return part("proposed", visit, **values)
        return render.page("edit.html", visit.caller, status=status, notice=notice, all_zones=all_zones(), **values)

    async def _proposed(self, visit: Visit, job: wire.Job, typed: Typed) -> tuple[Trial | None, Proposal | None]:
        if not typed.text:
            return None, await propose(visit, job, patch_to(job, {"schedule": None}))
        trial = await try_out(visit, self._crowds, typed)
        if trial.slip is not None:
            return trial, None
        try:
            return trial, await propose(visit, job, patch_to(job, {"schedule": trial.schedule}))
        except Invalid as error:
            return Trial(typed, slip=slip_of(error, typed.text, typed.zone)), None


def seen_version(visit: Visit) -> int:
    text = visit.form.get("version", "")
    if not text.isdecimal() or len(text) > 9:
        raise Invalid("this form does not say which version it is for; reload the page and try again")
    return int(text)


async def _job(visit: Visit) -> wire.Job:
    return await job_views.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
