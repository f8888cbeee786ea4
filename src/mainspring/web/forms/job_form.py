"""The form to create, copy and edit a job.

An edit is saved only after its review, and only for the version that was reviewed.
"""

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
from mainspring.intake import jobs
from mainspring.views import calendars as calendar_views
from mainspring.views import jobs as job_views
from mainspring.views import plugins as plugin_views
from mainspring.views import why_execution
from mainspring.views import workers as worker_views
from mainspring.web import render
from mainspring.web.draw.diff import DiffLine, difference
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_density_cache import FireDensityCache
from mainspring.web.forms import command_line
from mainspring.web.forms.definition import (
    MAX_ROWS,
    PLUGIN,
    Plugins,
    by_field,
    definition,
    form_values,
    kind_of,
    plugin_fields,
    problems_of,
    task_fields,
)
from mainspring.web.forms.fields import (
    DESCRIPTION,
    EXPRESSION,
    GROUPS,
    METADATA,
    NAME,
    NOTIFICATION_EVENTS,
    PARAM_TYPES,
    PLAIN,
    SCHEDULE,
    TASKS,
    ZONE,
    Field,
)
from mainspring.web.forms.proposal import Proposal, patch_to, propose
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.forms.schedule_preview import ScheduleInput, preview_schedule
from mainspring.web.pages.job import manifest_owner
from mainspring.web.pages.playground import all_zones, part, shown_zones

MAX_SUGGESTIONS = 100
MAX_VALUE_CHARS = 20_000
MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True)
class Review:
    """What saving would do. `digest` identifies the reviewed form: a form changed since then is reviewed again."""

    spec: JobSpec
    digest: str
    proposal: Proposal | None = None
    warnings: list[str] = field(default_factory=list)
    command: str = ""
    body: str = ""


@dataclass(slots=True)
class JobFormState:
    """The values of the form, its problems and its review."""

    values: dict[str, str]
    plugins: Plugins
    job: wire.Job | None = None
    problems: list[Problem] = field(default_factory=list)
    review: Review | None = None
    others_changes: list[DiffLine] = field(default_factory=list)
    seen: int = 0
    status: int = 200
    conflict_text: str = ""

    @property
    def fields(self) -> list[Field]:
        return [*PLAIN, *task_fields(kind_of(self.values), self.plugins), *SCHEDULE]

    def rows(self, prefix: str, part: str) -> int:
        """Return the number of filled rows, plus an empty one."""
        filled = [n for n in range(MAX_ROWS) if self.values.get(f"{prefix}_{n}_{part}")]
        return min(MAX_ROWS, (filled[-1] + 1 if filled else 0) + 1)


class JobForm:
    """GET and POST /new and /jobs/{ref}/edit."""

    def __init__(self, density: FireDensityCache) -> None:
        self._density = density

    async def new(self, request: PageRequest) -> Response:
        """GET /new; `like` copies a job, and the query fills fields."""
        known = await _plugins(request)
        values: dict[str, str] = {}
        if like := request.query("like"):
            job = await job_views.get(request.context.database, like, tenant=request.caller.tenant)
            _refuse_workflow(job)
            values = {**form_values(job.spec, known), NAME.name: f"{job.name}-copy"[:MAX_NAME_CHARS]}
        given = {k: v[:MAX_VALUE_CHARS].strip() for k, v in request.http.query_params.items() if v.strip()}
        return await self._page(request, JobFormState({**values, **given}, known))

    async def create(self, request: PageRequest) -> Response:
        """POST /new."""
        state = JobFormState(_submitted(request), await _plugins(request))
        try:
            spec = _spec(state)
            if request.form.get("do") == "review":
                state.review = await review_of(request, state.job, spec)
            else:
                await jobs.create(
                    request.context.database,
                    spec,
                    tenant=request.caller.tenant,
                    by=request.caller.name,
                    may_exceed=request.caller.may_exceed,
                )
                return RedirectResponse(f"/jobs/{quote(spec.name)}", 303, render.HEADERS)
        except (Invalid, Conflict) as error:
            state.problems, state.status = [*problems_of(error)], 409 if isinstance(error, Conflict) else 422
        return await self._page(request, state)

    async def edit(self, request: PageRequest) -> Response:
        """GET /jobs/{ref}/edit."""
        job, known = await changeable(request), await _plugins(request)
        values = form_values(job.spec, known)
        if request.query("part"):
            values |= {name: request.query(name) for name in ("expression", "zone")}
        return await self._page(request, JobFormState(values, known, job, seen=job.version))

    async def save(self, request: PageRequest) -> Response:
        """POST /jobs/{ref}/edit: show the review; save when the form was reviewed."""
        job = await changeable(request)
        state = JobFormState(_submitted(request), await _plugins(request), job, seen=seen_version(request))
        try:
            if state.seen != job.version:
                await _show_conflict(request, state, job)
            spec = _spec(state)
            state.review = await review_of(request, state.job, spec)
            is_reviewed = request.form.get("do") == "save" and request.form.get("reviewed") == state.review.digest
            patch = state.review.proposal.patch if state.review.proposal else {}
            if is_reviewed and not state.conflict_text:
                if patch:
                    await jobs.patch(
                        request.context.database,
                        job.job_id,
                        patch,
                        tenant=request.caller.tenant,
                        by=request.caller.name,
                        seen=state.seen,
                        may_exceed=request.caller.may_exceed,
                    )
                return RedirectResponse(f"/jobs/{job.job_id}", 303, render.HEADERS)
        except Invalid as error:
            state.problems, state.status = [*problems_of(error)], 422
        except Conflict as conflict:
            state.problems, state.status = [*problems_of(conflict)], 409
            if conflict.code == "version_changed":
                state.problems, state.job = [], await changeable(request)
                await _show_conflict(request, state, state.job)
                state.review = await review_of(request, state.job, _spec(state))
        return await self._page(request, state)

    async def _page(self, request: PageRequest, state: JobFormState) -> Response:
        values, job = state.values, state.job
        name = job.name if job is not None else values.get(NAME.name, "")
        typed = ScheduleInput(values.get(EXPRESSION.name, ""), values.get(ZONE.name, ""), name)
        preview = await preview_schedule(request, self._density, typed) if typed.text else None
        zones = shown_zones(request, preview)
        if request.query("part"):
            return part("explained", request, preview=preview, zones=zones, command=None, create_link="")
        # Errors in the expression are shown below it, with a caret.
        shown = [p for p in state.problems if not (preview and preview.error and _about_expression(p))]
        at_field, others = by_field(shown, state.fields)
        if state.problems and preview and preview.error:
            at_field.setdefault(EXPRESSION.name, [])  # so that the summary at the top links to it
        kinds = [*TASKS, *(PLUGIN + type_ for type_ in state.plugins)]
        return render.page(
            "job_form.html",
            request.caller,
            status=state.status,
            state=state,
            values=values,
            job=job,
            manifest_owner=await manifest_owner(request, job) if job is not None else None,
            review=state.review,
            errors=at_field,
            problems=others,
            preview=preview,
            zones=zones,
            kinds=kinds,
            kind=kind_of(values),
            kind_fields={kind: task_fields(kind, state.plugins) for kind in kinds},
            groups=GROUPS,
            schedule=SCHEDULE,
            name_field=NAME,
            description_field=DESCRIPTION,
            expression_field=EXPRESSION,
            zone_field=ZONE,
            metadata_field=METADATA,
            events=NOTIFICATION_EVENTS,
            param_types=PARAM_TYPES,
            known=await _suggestions(request),
            all_zones=all_zones(),
        )


async def review_of(request: PageRequest, job: wire.Job | None, spec: JobSpec) -> Review:
    """Review a definition with the same checks as saving it."""
    check(spec)
    values = {name: value for name, value in as_json(spec).items() if name != "paused"}
    proposal = await propose(request, job, patch_to(job, values)) if job is not None else None
    seen = job.version if job is not None else 0
    return Review(
        spec,
        hashlib.sha256(encode([seen, values])).hexdigest()[:16],
        proposal,
        await why_execution.unfit(request.context.database, spec, tenant=request.caller.tenant),
        command_line.add(spec, replace=job is not None) or "",
        command_line.body(spec),
    )


def _about_expression(problem: Problem) -> bool:
    own = {f.pointer for f in SCHEDULE}
    return problem.pointer.startswith("/schedule") and problem.pointer not in own


def _spec(state: JobFormState) -> JobSpec:
    kind = kind_of(state.values)
    if kind not in TASKS and kind.removeprefix(PLUGIN) not in state.plugins:
        raise invalid("/task/kind", f"unknown task kind {kind!r}", hint=f"one of {', '.join(TASKS)}, or a plug-in")
    base = state.job.spec if state.job is not None else None
    return decode(encode(definition(state.values, base, state.plugins)), JobSpec)


async def _show_conflict(request: PageRequest, state: JobFormState, job: wire.Job) -> None:
    """Show what another user has saved meanwhile; the next review is for the current version."""
    before = await job_views.version_of(request.context.database, job.job_id, state.seen, tenant=request.caller.tenant)
    state.others_changes = difference(before, job.spec)
    state.conflict_text = f"version {job.version} was saved while you edited version {state.seen}"
    state.seen, state.status = job.version, 409


def _submitted(request: PageRequest) -> dict[str, str]:
    """Return the submitted values without empty ones, with CRLF as LF."""
    not_values = ("csrf", "version", "reviewed", "do")
    return {k: v.replace("\r\n", "\n").strip() for k, v in request.form.items() if k not in not_values and v.strip()}


async def _plugins(request: PageRequest) -> Plugins:
    found = await plugin_views.list_schemas(request.context.database, tenant=request.caller.tenant)
    return {type_: plugin_fields(type_, schema) for type_, schema in found.items()}


async def _suggestions(request: PageRequest) -> dict[str, list[str]]:
    """Return the suggestions for fields."""
    database, tenant = request.context.database, request.caller.tenant
    workers = await worker_views.list_workers(database, tenant=tenant)
    named = await calendar_views.list_calendars(database, tenant=tenant, limit=MAX_SUGGESTIONS)
    notified = await channels.list_all(database, tenant=tenant)
    return {
        "queues": sorted({"short", "long", *(queue for worker in workers for queue in worker.queues)}),
        "calendars": [calendar.name for calendar in named.items],
        "channels": [channel.name for channel in notified.items[:MAX_SUGGESTIONS]],
    }


async def changeable(request: PageRequest) -> wire.Job:
    """Return the job of the address; refuse a deleted one and a workflow."""
    return await changeable_job(request, request.ref)


async def changeable_job(request: PageRequest, ref: str) -> wire.Job:
    """Return a job by name or id; refuse a deleted one and a workflow."""
    job = await job_views.get(request.context.database, ref, tenant=request.caller.tenant)
    if job.state == "deleted":
        raise NotFound(f"the job {job.name!r} is deleted")
    _refuse_workflow(job)
    return job


def _refuse_workflow(job: wire.Job) -> None:
    if isinstance(job.spec.task, WorkflowTask):
        raise invalid("/task/kind", "a workflow can't be edited as a job", hint="edit it on the page of the workflow")
