"""The form that runs a job or workflow manually: parameters, time and idempotency key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem
from mainspring.domain.job import WorkflowTask, needed_params
from mainspring.domain.params import Param
from mainspring.domain.task import PythonTask
from mainspring.intake import runs as run_actions
from mainspring.intake.executions import Submission, SubmissionAudit
from mainspring.intake.granted import check_granted
from mainspring.intake.validate.params import check_params
from mainspring.store.jobs import JobRow
from mainspring.views import executions as execution_views
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.endpoint import PageRequest, refuse_nul
from mainspring.web.forms import command_line, field_values
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.instant import parse_time

MAX_KEY_CHARS = 200
_FIXED_FIELDS = ("at", "fire_at", "key", "params")
ACCEPTS = ("like", *_FIXED_FIELDS, "p_*")
"""Query parameters of the form: an execution to copy, and values of fields."""


@dataclass(frozen=True, slots=True)
class ParamField:
    """A parameter with its field."""

    name: str
    about: Param
    required: bool

    @property
    def default(self) -> str:
        missing = self.about.default is msgspec.UNSET
        return "" if missing else field_values.text_of(self.about.type, self.about.default)

    @property
    def options(self) -> list[str]:
        if self.about.type == "boolean" and not self.about.enum:
            return ["true", "false"]
        return [field_values.text_of(self.about.type, value) for value in self.about.enum]


@dataclass(slots=True)
class RunDraft:
    """The state of the form: the job, its parameters, and the submitted values."""

    job: JobRow
    params: list[ParamField]
    values: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    status: int = 200
    command: str = ""

    @property
    def free(self) -> bool:
        """Whether any parameters are accepted: the job declares none."""
        return not self.params


async def form(request: PageRequest) -> Response:
    """GET /jobs/{ref}/run; `like` copies the parameters of an execution, and the query fills fields."""
    draft = await _new_draft(request)
    if like := request.query("like"):
        known = await execution_views.get(request.context.database, like, tenant=request.caller.tenant)
        if known.job_id != draft.job.job_id:
            raise NotFound(f"the execution {like!r} does not belong to {draft.job.name!r}")
        draft.values = _values_of(draft, known)
    given = {k: v.strip() for k, v in request.http.query_params.items() if v.strip() and k != "like"}
    draft.values |= given
    return _page(request, draft)


async def run(request: PageRequest) -> Response:
    """POST /jobs/{ref}/run: redirect to the new execution or run."""
    draft = await _new_draft(request)
    draft.values = {k: v.replace("\r\n", "\n").strip() for k, v in request.form.items() if k != "csrf" and v.strip()}
    try:
        refuse_nul(request.form)
        check_granted(request.caller.name, draft.job.spec)
        params = _params(draft)
        at, fire_at = (
            parse_time(draft.values.get(name, ""), f"/{name}", request.caller.zone) for name in ("at", "fire_at")
        )
        key = draft.values.get("key", "")[:MAX_KEY_CHARS]
        check_params(draft.job.spec, params)
        if isinstance(draft.job.spec.task, WorkflowTask) and at is None:
            started = await run_actions.start(
                request.context.runs,
                str(draft.job.job_id),
                wire.RunRequest(params=params, key=key or None, reason=""),
                tenant=request.caller.tenant,
                by=request.caller.name,
            )
            return RedirectResponse(f"/runs/{started.run_id}", 303, render.HEADERS)
        submission = Submission(
            request.caller.tenant,
            request.caller.name,
            draft.job.job_id,
            at,
            params,
            fire_at,
            SubmissionAudit.of(draft.job),
        )
        submit = request.context.submitter
        execution_id = await (submit.submit_once(submission, key) if key else submit.submit(submission))
        return RedirectResponse(f"/executions/{execution_id}", 303, render.HEADERS)
    except (Invalid, Conflict) as error:
        draft.problems, draft.status = [*problems_of(error)], 422 if isinstance(error, Invalid) else 409
        return _page(request, draft)


async def _new_draft(request: PageRequest) -> RunDraft:
    row = await refs.job_row(request.context.database, request.ref, tenant=request.caller.tenant)
    if row.deleted_at is not None:
        raise NotFound(f"the job {row.name!r} is deleted")
    spec = row.spec
    also = tuple(spec.task.args) if isinstance(spec.task, PythonTask) else ()
    fields = [ParamField(name, about, about.default is msgspec.UNSET) for name, about in spec.params.items()]
    fields += [ParamField(n, Param(), required=True) for n in sorted(needed_params(spec.task)) if n not in spec.params]
    fields += [ParamField(n, Param(), required=False) for n in also if fields and n not in {a.name for a in fields}]
    return RunDraft(row, fields)


def _params(draft: RunDraft) -> dict[str, Any] | None:
    """Parse the parameters; an empty field keeps its default."""
    if draft.free:
        text = draft.values.get("params", "")
        found = field_values.from_json(text, "/params") if text else None
        if found is not None and not isinstance(found, dict):
            problem = Problem("/params", "parameters must be a JSON object", 'such as {"n": 5}')
            raise Invalid(problem.message, problems=(problem,))
        return found
    params: dict[str, Any] = {}
    problems: list[Problem] = []
    for one in draft.params:
        if text := draft.values.get(f"p_{one.name}", ""):
            try:
                params[one.name] = field_values.value_of(one.about.type, text, f"/params/{one.name}")
            except Invalid as error:
                problems += error.problems
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))
    return params or None


def _values_of(draft: RunDraft, known: wire.Execution) -> dict[str, str]:
    values = {"fire_at": known.fire_at.isoformat()}
    given = known.params if isinstance(known.params, dict) else {}
    if draft.free:
        return values | ({"params": field_values.to_json(given)} if given else {})
    types = {one.name: one.about.type for one in draft.params}
    return values | {f"p_{n}": field_values.text_of(types[n], v) for n, v in given.items() if n in types}


def _page(request: PageRequest, draft: RunDraft) -> Response:
    errors: dict[str, list[Problem]] = {}
    others: list[Problem] = []
    for problem in draft.problems:
        name = problem.pointer.strip("/")
        if name.startswith("params/") and not draft.free:
            errors.setdefault(f"p_{name.removeprefix('params/').split('/')[0]}", []).append(problem)
        elif name.split("/")[0] in _FIXED_FIELDS:
            errors.setdefault(name.split("/")[0], []).append(problem)
        else:
            others.append(problem)
    try:
        given = _params(draft) or {}
    except Invalid:
        given = {}
    line = command_line.run(
        draft.job.name,
        given,
        at=draft.values.get("at", ""),
        key=draft.values.get("key", ""),
        workflow=isinstance(draft.job.spec.task, WorkflowTask),
    )
    return render.page(
        "run_form.html",
        request.caller,
        status=draft.status,
        draft=draft,
        job=draft.job,
        values=draft.values,
        errors=errors,
        problems=others,
        command=line,
        is_workflow=isinstance(draft.job.spec.task, WorkflowTask),
    )
