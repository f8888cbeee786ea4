"""Running a job or a workflow by hand: a field for each of its parameters, now or at a time, once per key."""

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
from mainspring.intake.validate.params import check_params
from mainspring.store.jobs import JobRow
from mainspring.views import executions as execution_views
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.access import Visit, refuse_nul
from mainspring.web.forms import command_line, field_values
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.instant import moment

MOST_KEY = 200
_OWN = ("at", "fire_at", "key", "params")


@dataclass(frozen=True, slots=True)
class Asked:
    """One parameter of the form."""

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
class Order:
    """One showing of the form: which job, what it asks for, and what was typed."""

    job: JobRow
    asked: list[Asked]
    values: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    status: int = 200
    command: str = ""

    @property
    def free(self) -> bool:
        """A job that declares nothing takes anything."""
        return not self.asked


async def form(visit: Visit) -> Response:
    """GET /jobs/{ref}/run; `like` takes over what an execution was given, and links may fill fields."""
    order = await _order(visit)
    if like := visit.query("like"):
        known = await execution_views.get(visit.context.database, like, tenant=visit.caller.tenant)
        if known.job_id != order.job.job_id:
            raise NotFound(f"the execution {like!r} is not of {order.job.name!r}")
        order.values = _taken_over(order, known)
    given = {k: v.strip() for k, v in visit.request.query_params.items() if v.strip() and k != "like"}
    order.values |= given
    return _page(visit, order)


async def run(visit: Visit) -> Response:
    """POST /jobs/{ref}/run: ends at the execution that was made, or at the run."""
    order = await _order(visit)
    order.values = {k: v.replace("\r\n", "\n").strip() for k, v in visit.form.items() if k != "csrf" and v.strip()}
    try:
        refuse_nul(visit.form)
        params = _params(order)
        at, fire_at = (moment(order.values.get(name, ""), f"/{name}") for name in ("at", "fire_at"))
        key = order.values.get("key", "")[:MOST_KEY]
        check_params(order.job.spec, params)
        if isinstance(order.job.spec.task, WorkflowTask) and at is None:
            made = await run_actions.start(
                visit.context.runs,
                str(order.job.job_id),
                wire.RunRequest(params=params, key=key or None, reason=""),
                tenant=visit.caller.tenant,
                by=visit.caller.name,
            )
            return RedirectResponse(f"/runs/{made.run_id}", 303, render.HEADERS)
        submission = Submission(
            visit.caller.tenant, visit.caller.name, order.job.job_id, at, params, fire_at, SubmissionAudit.of(order.job)
        )
        submit = visit.context.submitter
        execution_id = await (submit.submit_once(submission, key) if key else submit.submit(submission))
        return RedirectResponse(f"/executions/{execution_id}", 303, render.HEADERS)
    except (Invalid, Conflict) as error:
        order.problems, order.status = [*problems_of(error)], 422 if isinstance(error, Invalid) else 409
        return _page(visit, order)


async def _order(visit: Visit) -> Order:
    row = await refs.job_row(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    if row.deleted_at is not None:
        raise NotFound(f"the job {row.name!r} is deleted")
    spec = row.spec
    also = tuple(spec.task.args) if isinstance(spec.task, PythonTask) else ()
    asked = [Asked(name, about, about.default is msgspec.UNSET) for name, about in spec.params.items()]
    asked += [Asked(n, Param(), required=True) for n in sorted(needed_params(spec.task)) if n not in spec.params]
    asked += [Asked(n, Param(), required=False) for n in also if asked and n not in {a.name for a in asked}]
    return Order(row, asked)


def _params(order: Order) -> dict[str, Any] | None:
    """What was given; what was left empty has its default."""
    if order.free:
        text = order.values.get("params", "")
        found = field_values.from_json(text, "/params") if text else None
        if found is not None and not isinstance(found, dict):
            problem = Problem("/params", "parameters are a JSON object", 'such as {"n": 5}')
            raise Invalid(problem.message, problems=(problem,))
        return found
    params: dict[str, Any] = {}
    problems: list[Problem] = []
    for one in order.asked:
        if text := order.values.get(f"p_{one.name}", ""):
            try:
                params[one.name] = field_values.value_of(one.about.type, text, f"/params/{one.name}")
            except Invalid as error:
                problems += error.problems
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))
    return params or None


def _taken_over(order: Order, known: wire.Execution) -> dict[str, str]:
    values = {"fire_at": known.fire_at.isoformat()}
    given = known.params if isinstance(known.params, dict) else {}
    if order.free:
        return values | ({"params": field_values.to_json(given)} if given else {})
    types = {one.name: one.about.type for one in order.asked}
    return values | {f"p_{n}": field_values.text_of(types[n], v) for n, v in given.items() if n in types}


def _page(visit: Visit, order: Order) -> Response:
    wrong: dict[str, list[Problem]] = {}
    others: list[Problem] = []
    for problem in order.problems:
        name = problem.pointer.strip("/")
        if name.startswith("params/") and not order.free:
            wrong.setdefault(f"p_{name.removeprefix('params/').split('/')[0]}", []).append(problem)
        elif name.split("/")[0] in _OWN:
            wrong.setdefault(name.split("/")[0], []).append(problem)
        else:
            others.append(problem)
    try:
        given = _params(order) or {}
    except Invalid:
        given = {}
    line = command_line.run(
        order.job.name,
        given,
        at=order.values.get("at", ""),
        key=order.values.get("key", ""),
        workflow=isinstance(order.job.spec.task, WorkflowTask),
    )
    return render.page(
        "run_form.html",
        visit.caller,
        status=order.status,
        order=order,
        job=order.job,
        values=order.values,
        wrong=wrong,
        problems=others,
        command=line,
        flow=isinstance(order.job.spec.task, WorkflowTask),
    )
