"""A job as YAML, for who would rather write than fill in: checked, looked at, and saved as the form does it."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.codec import decode, encode
from mainspring.domain.errors import Conflict, Invalid, MainspringError
from mainspring.domain.job import JobSpec
from mainspring.intake import jobs
from mainspring.manifest import read_job, write_job
from mainspring.views import jobs as job_views
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.draw.diff import Line, difference
from mainspring.web.forms import command_line
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.job_form import Review, changeable, reviewed
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.forms.yaml_location import Place, place

EXAMPLE = """\
kind: Job
metadata: {name: nightly-report, team: finance}
spec:
  task: {kind: shell, argv: [./report.sh, --all]}
  schedule: {cron: "0 2 * * *", timezone: Europe/Berlin}
  retries: {max: 3, base: 10s}
  timeout: 10m
"""


@dataclass(slots=True)
class Text:
    """One showing of the text."""

    text: str
    job: wire.Job | None = None
    places: list[Place] = field(default_factory=list)
    review: Review | None = None
    theirs: list[Line] = field(default_factory=list)
    notice: str = ""
    status: int = 200

    @property
    def seen(self) -> int:
        return self.job.version if self.job is not None else 0

    def refuse(self, error: MainspringError) -> None:
        self.places = [place(self.text, problem) for problem in problems_of(error)]
        self.status = 409 if isinstance(error, Conflict) else 422


async def fresh(visit: Visit) -> Response:
    """GET /new.yaml."""
    return _page(visit, Text(EXAMPLE))


async def create(visit: Visit) -> Response:
    """POST /new.yaml."""
    return await _answer(visit, Text(_typed(visit)))


async def edit(visit: Visit) -> Response:
    """GET /jobs/{ref}/yaml."""
    job = await changeable(visit)
    return _page(visit, Text(_written(job.spec), job))


async def save(visit: Visit) -> Response:
    """POST /jobs/{ref}/yaml."""
    job, seen = await changeable(visit), seen_version(visit)
    text = Text(_typed(visit), job)
    if seen != job.version:
        before = await job_views.version_of(visit.context.database, job.job_id, seen, tenant=visit.caller.tenant)
        text.theirs, text.status = difference(before, job.spec), 409
        text.notice = f"the job has version {job.version} by now; this change was made for version {seen}"
    return await _answer(visit, text)


async def _answer(visit: Visit, text: Text) -> Response:
    """What it would do; once that was seen, it is done."""
    database, tenant, by = visit.context.database, visit.caller.tenant, visit.caller.name
    try:
        # As from the API: what the database can't hold is refused with a pointer.
        spec = decode(encode(read_job(text.text)), JobSpec)
        text.review = await reviewed(visit, text.job, spec)
        if visit.form.get("do") == "save" and visit.form.get("looked") == text.review.digest and not text.notice:
            if text.job is None:
                async with visit.making(spec.schedule is not None):
                    job_id = await jobs.create(database, spec, tenant=tenant, by=by)
                return RedirectResponse(f"/jobs/{job_id}", 303, render.HEADERS)
            if text.review.proposal is not None and text.review.proposal.patch:
                patch = text.review.proposal.patch
                await jobs.patch(database, text.job.job_id, patch, tenant=tenant, by=by, seen=text.seen)
            return RedirectResponse(f"/jobs/{text.job.job_id}", 303, render.HEADERS)
    except (Invalid, Conflict) as error:
        text.refuse(error)
    return _page(visit, text)


def _typed(visit: Visit) -> str:
    return visit.form.get("text", "").replace("\r\n", "\n")


def _written(spec: JobSpec) -> str:
    return write_job({name: value for name, value in command_line.spoken(spec).items() if name != "paused"})


def _page(visit: Visit, text: Text) -> Response:
    job, review = text.job, text.review
    return render.page(
        "job_text.html",
        visit.caller,
        status=text.status,
        script=text,
        job=job,
        review=review,
        path=f"/jobs/{job.job_id}/yaml" if job is not None else "/new.yaml",
    )
