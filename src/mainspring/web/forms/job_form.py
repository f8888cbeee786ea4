"""A job as a form: added, copied or changed. Nothing is saved that was not looked at, or that somebody else changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.alerts import channels
from mainspring.codec import decode, encode
from mainspring.display.definitions import as_json
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.domain.job import JobSpec, WorkflowTask, check
from mainspring.intake import calendars, jobs
from mainspring.intake.validate import plugins
from mainspring.views import jobs as job_views
from mainspring.views import why_execution
from mainspring.views import workers as worker_views
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.density_cache import DensityCache
from mainspring.web.draw.diff import Line, difference
from mainspring.web.forms import command_line
from mainspring.web.forms.definition import (
    MOST_ROWS,
    PLUGIN,
    Plugins,
    definition,
    kind_of,
    placed,
    plugin_fields,
    problems_of,
    spelled,
    task_fields,
)
from mainspring.web.forms.fields import (
    DESCRIPTION,
    EXPRESSION,
    GROUPS,
    METADATA,
    NAME,
    NOTICES,
    PARAM_TYPES,
    PLAIN,
    SCHEDULE,
    TASKS,
    ZONE,
    Field,
)
from mainspring.web.forms.proposal import Proposal, patch_to, propose
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.forms.schedule_preview import Typed, try_out
from mainspring.web.pages.playground import all_zones, part, shown_zones

LISTED = 100
MOST_VALUE = 20_000


@dataclass(frozen=True, slots=True)
class Review:
    """What saving would do. `digest` says which form it was: one that was changed since is looked at again."""

    spec: JobSpec
    digest: str
    proposal: Proposal | None = None
    warnings: list[str] = field(default_factory=list)
    command: str = ""
    body: str = ""


@dataclass(slots=True)
class Sheet:
    """One showing of the form: what stands in it, what is wrong with it, and what it would do."""

    values: dict[str, str]
    plugins: Plugins
    job: wire.Job | None = None
    problems: list[Problem] = field(default_factory=list)
    review: Review | None = None
    theirs: list[Line] = field(default_factory=list)
    seen: int = 0
    status: int = 200
    notice: str = ""

    @property
    def fields(self) -> list[Field]:
        return [*PLAIN, *task_fields(kind_of(self.values), self.plugins), *SCHEDULE]

    def rows(self, prefix: str, part: str) -> int:
        """As many as are filled, and one more to fill."""
        filled = [n for n in range(MOST_ROWS) if self.values.get(f"{prefix}_{n}_{part}")]
        return min(MOST_ROWS, (filled[-1] + 1 if filled else 0) + 1)


class JobForm:
    """GET and POST /new and /jobs/{ref}/edit."""

    def __init__(self, crowds: DensityCache) -> None:
        self._crowds = crowds

    async def fresh(self, visit: Visit) -> Response:
        """An empty form; with `like`, a copy of a job; fields may be filled by the link."""
        known = await _plugins(visit)
        values: dict[str, str] = {}
        if like := visit.query("like"):
            job = await job_views.get(visit.context.database, like, tenant=visit.caller.tenant)
            _refuse_workflow(job)
            values = {**spelled(job.spec, known), NAME.name: f"{job.name}-copy"[:128]}
        given = {k: v[:MOST_VALUE].strip() for k, v in visit.request.query_params.items() if v.strip()}
        return await self._page(visit, Sheet({**values, **given}, known))

    async def create(self, visit: Visit) -> Response:
        sheet = Sheet(_given(visit), await _plugins(visit))
        try:
            spec = _spec(sheet)
            if visit.form.get("do") == "look":
                sheet.review = await reviewed(visit, sheet.job, spec)
            else:
                async with visit.making(spec.schedule is not None):
                    await jobs.create(
                        visit.context.database,
                        spec,
                        tenant=visit.caller.tenant,
                        by=visit.caller.name,
                        may_exceed=visit.caller.may_exceed,
                    )
                return RedirectResponse(f"/jobs/{quote(spec.name)}", 303, render.HEADERS)
        except (Invalid, Conflict) as error:
            sheet.problems, sheet.status = [*problems_of(error)], 409 if isinstance(error, Conflict) else 422
        return await self._page(visit, sheet)

    async def edit(self, visit: Visit) -> Response:
        job, known = await changeable(visit), await _plugins(visit)
        values = spelled(job.spec, known)
        if visit.query("part"):
            values |= {name: visit.query(name) for name in ("expression", "zone")}
        return await self._page(visit, Sheet(values, known, job, seen=job.version))

    async def save(self, visit: Visit) -> Response:
        """Shows what would change; once that was seen, saves it."""
        job = await changeable(visit)
        sheet = Sheet(_given(visit), await _plugins(visit), job, seen=seen_version(visit))
        try:
            if sheet.seen != job.version:
                await _show_theirs(visit, sheet, job)
            spec = _spec(sheet)
            sheet.review = await reviewed(visit, sheet.job, spec)
            looked = visit.form.get("do") == "save" and visit.form.get("looked") == sheet.review.digest
            patch = sheet.review.proposal.patch if sheet.review.proposal else {}
            if looked and not sheet.notice:
                if patch:
                    await jobs.patch(
                        visit.context.database,
                        job.job_id,
                        patch,
                        tenant=visit.caller.tenant,
                        by=visit.caller.name,
                        seen=sheet.seen,
                        may_exceed=visit.caller.may_exceed,
                    )
                return RedirectResponse(f"/jobs/{job.job_id}", 303, render.HEADERS)
        except Invalid as error:
            sheet.problems, sheet.status = [*problems_of(error)], 422
        except Conflict as conflict:
            sheet.problems, sheet.status = [*problems_of(conflict)], 409
            if conflict.code == "version_changed":
                sheet.problems, sheet.job = [], await changeable(visit)
                await _show_theirs(visit, sheet, sheet.job)
                sheet.review = await reviewed(visit, sheet.job, _spec(sheet))
        return await self._page(visit, sheet)

    async def _page(self, visit: Visit, sheet: Sheet) -> Response:
        values, job = sheet.values, sheet.job
        name = job.name if job is not None else values.get(NAME.name, "")
        typed = Typed(values.get(EXPRESSION.name, ""), values.get(ZONE.name, ""), name)
        trial = await try_out(visit, self._crowds, typed) if typed.text else None
        zones = shown_zones(visit, trial)
        if visit.query("part"):
            return part("explained", visit, trial=trial, zones=zones, command=None, onward="")
        # What is wrong with the expression is shown below it, with a caret.
        told = [p for p in sheet.problems if not (trial and trial.slip and _about_expression(p))]
        at_field, others = placed(told, sheet.fields)
        if sheet.problems and trial and trial.slip:
            at_field.setdefault(EXPRESSION.name, [])  # the summary at the top leads to it, like to any other
        kinds = [*TASKS, *(PLUGIN + type_ for type_ in sheet.plugins)]
        return render.page(
            "job_form.html",
            visit.caller,
            status=sheet.status,
            sheet=sheet,
            values=values,
            job=job,
            review=sheet.review,
            wrong=at_field,
            problems=others,
            trial=trial,
            zones=zones,
            kinds=kinds,
            kind=kind_of(values),
            kind_fields={kind: task_fields(kind, sheet.plugins) for kind in kinds},
            groups=GROUPS,
            schedule=SCHEDULE,
            name_field=NAME,
            description_field=DESCRIPTION,
            expression_field=EXPRESSION,
            zone_field=ZONE,
            metadata_field=METADATA,
            notices=NOTICES,
            param_types=PARAM_TYPES,
            known=await _known(visit),
            all_zones=all_zones(),
        )


async def reviewed(visit: Visit, job: wire.Job | None, spec: JobSpec) -> Review:
    """What saving a definition would do, by the checks that saving makes."""
    check(spec)
    values = {name: value for name, value in as_json(spec).items() if name != "paused"}
    proposal = await propose(visit, job, patch_to(job, values)) if job is not None else None
    seen = job.version if job is not None else 0
    return Review(
        spec,
        hashlib.sha256(encode([seen, values])).hexdigest()[:16],
        proposal,
        await why_execution.unfit(visit.context.database, spec, tenant=visit.caller.tenant),
        command_line.add(spec, replace=job is not None) or "",
        command_line.body(spec),
    )


def _about_expression(problem: Problem) -> bool:
    own = {f.pointer for f in SCHEDULE}
    return problem.pointer.startswith("/schedule") and problem.pointer not in own


def _spec(sheet: Sheet) -> JobSpec:
    kind = kind_of(sheet.values)
    if kind not in TASKS and kind.removeprefix(PLUGIN) not in sheet.plugins:
        raise invalid("/task/kind", f"there is no kind {kind!r}", hint=f"one of {', '.join(TASKS)}, or a plug-in's")
    base = sheet.job.spec if sheet.job is not None else None
    return decode(encode(definition(sheet.values, base, sheet.plugins)), JobSpec)


async def _show_theirs(visit: Visit, sheet: Sheet, job: wire.Job) -> None:
    """Says that somebody changed the job meanwhile, and what; the next look is for what is there now."""
    before = await job_views.version_of(visit.context.database, job.job_id, sheet.seen, tenant=visit.caller.tenant)
    sheet.theirs = difference(before, job.spec)
    sheet.notice = f"the job has version {job.version} by now; this change was made for version {sheet.seen}"
    sheet.seen, sheet.status = job.version, 409


def _given(visit: Visit) -> dict[str, str]:
    """What was typed; browsers end lines with two characters."""
    gone = ("csrf", "version", "looked", "do")
    return {k: v.replace("\r\n", "\n").strip() for k, v in visit.form.items() if k not in gone and v.strip()}


async def _plugins(visit: Visit) -> Plugins:
    found = await plugins.list_schemas(visit.context.database, tenant=visit.caller.tenant)
    return {type_: plugin_fields(type_, schema) for type_, schema in found.items()}


async def _known(visit: Visit) -> dict[str, list[str]]:
    """Names that fields offer."""
    database, tenant = visit.context.database, visit.caller.tenant
    workers = await worker_views.list_workers(database, tenant=tenant)
    named = await calendars.list_all(database, tenant=tenant, limit=LISTED)
    told = await channels.list_all(database, tenant=tenant)
    return {
        "queues": sorted({"short", "long", *(queue for worker in workers for queue in worker.queues)}),
        "calendars": [calendar.name for calendar in named.items],
        "channels": [channel.name for channel in told.items[:LISTED]],
    }


async def changeable(visit: Visit) -> wire.Job:
    job = await job_views.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    if job.state == "deleted":
        raise NotFound(f"the job {job.name!r} is deleted")
    _refuse_workflow(job)
    return job


def _refuse_workflow(job: wire.Job) -> None:
    if isinstance(job.spec.task, WorkflowTask):
        raise invalid("/task/kind", "a workflow is written as a whole", hint="change it on its own page")
