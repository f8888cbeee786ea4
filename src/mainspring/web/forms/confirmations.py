"""Actions with a confirmation: GET shows what will happen and asks for a reason, POST does it.

The script shows the page as a dialog. GET never changes anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.views import executions as execution_views
from mainspring.views import refs
from mainspring.views.dependencies import needed_by
from mainspring.views.runs import parse_run_id
from mainspring.web import render
from mainspring.web.draw.filters import plural, short
from mainspring.web.endpoint import Handle, PageRequest, refuse_nul
from mainspring.web.forms import actions
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.fields import Field

MAX_STEPS_OFFERED = 500
REASON = Field("reason", "/reason", "Reason", help="Recorded in the audit log.", size="grow")
REQUIRED_REASON = Field("reason", "/reason", "Reason", hint="required", help="Recorded in the audit log.", size="grow")
NOTE = Field("reason", "/note", "Note", help="Recorded with the decision.", size="grow")
UNTIL = Field("until", "/until", "Until", hint="resumed manually", help="For example 2h, or 2027-01-01T09:00.")
DETACH = Field("detach", "/cascade", "Delete anyway: dependent jobs continue without it", "flag")
CATCH_UP = Field("catch_up", "/catch_up", "Catch up on missed fires, by the misfire policy", "flag")
Crumbs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a confirmation shows. The form is sent to `path`; `home` is the page to return to."""

    title: str
    text: str
    path: str
    home: str
    crumbs: Crumbs
    button: str
    tone: str = "primary"
    fields: tuple[Field, ...] = ()
    hidden: dict[str, str] = field(default_factory=dict)
    command: str = ""
    scope: str = "write"


class ConfirmedAction:
    """An action with its confirmation: `page` is the GET handler, `act` the POST handler."""

    def __init__(self, ask: Callable[[PageRequest], Awaitable[Confirmation]], do: Handle) -> None:
        self._ask, self._do = ask, do

    async def page(self, request: PageRequest) -> Response:
        return await self._page(request, dict(request.http.query_params))

    async def act(self, request: PageRequest) -> Response:
        try:
            refuse_nul(request.form)
            return await self._do(request)
        except Invalid as error:
            return await self._page(request, request.form, problems_of(error), 422)
        except Conflict as error:
            if error.code != "needed":
                raise
            return await self._page(request, request.form, problems_of(error), 409)

    async def _page(
        self, request: PageRequest, values: dict[str, str], problems: tuple[Problem, ...] = (), status: int = 200
    ) -> Response:
        confirmation = await self._ask(request)
        errors: dict[str, list[Problem]] = {}
        others = []
        for problem in problems:
            name = next((f.name for f in confirmation.fields if f.pointer == problem.pointer), None)
            errors.setdefault(name, []).append(problem) if name else others.append(problem)
        return render.page(
            "confirm.html",
            request.caller,
            status=status,
            confirmation=confirmation,
            values=values,
            errors=errors,
            problems=others,
        )


# Jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _JobAction:
    """The job that an action concerns, and what every confirmation of a job has."""

    name: str
    path: str
    home: str
    command: str

    @property
    def crumbs(self) -> Crumbs:
        return (("Jobs", "/jobs"), (self.name, self.home))


async def _job_action(request: PageRequest, verb: str) -> _JobAction:
    row = await refs.job_row(request.context.database, request.ref, tenant=request.caller.tenant)
    if row.deleted_at is not None:
        raise NotFound(f"the job {row.name!r} is deleted")
    home = f"/jobs/{row.job_id}"
    return _JobAction(row.name, f"{home}/{verb}", home, f"mainspring jobs {verb} {shlex.quote(row.name)}")


async def confirm_pause(request: PageRequest) -> Confirmation:
    job = await _job_action(request, "pause")
    return Confirmation(
        f"Pause {job.name}",
        "The job does not fire while it is paused. Queued and running executions continue.",
        job.path,
        job.home,
        job.crumbs,
        "Pause",
        fields=(REASON, UNTIL),
        command=job.command,
    )


async def confirm_resume(request: PageRequest) -> Confirmation:
    job = await _job_action(request, "resume")
    return Confirmation(
        f"Resume {job.name}",
        "The job fires again from now on. Fires missed during the pause are recorded as skipped unless you catch up.",
        job.path,
        job.home,
        job.crumbs,
        "Resume",
        fields=(CATCH_UP,),
        command=job.command,
    )


async def confirm_delete(request: PageRequest) -> Confirmation:
    job = await _job_action(request, "delete")
    text = (
        "The job no longer fires, and executions that have not started are cancelled. "
        "Running executions continue; the history is kept."
    )
    children = await needed_by(request.context.database, request.ref, tenant=request.caller.tenant)
    if children:
        text += f" These jobs depend on it: {', '.join(children)}."
    return Confirmation(
        f"Delete {job.name}",
        text,
        job.path,
        job.home,
        job.crumbs,
        f"Delete {job.name}",
        "danger",
        (REASON, DETACH) if children else (REASON,),
        command=job.command,
    )


# Executions and runs --------------------------------------------------------------------------------------


async def confirm_cancel(request: PageRequest) -> Confirmation:
    found = await execution_views.get(request.context.database, request.ref, tenant=request.caller.tenant)
    if found.finished_at is not None:
        raise Conflict(f"the execution has already ended: {found.state}", code="already_final")
    running = found.state == "running"
    home = f"/executions/{found.execution_id}"
    return Confirmation(
        f"Cancel an execution of {found.job}",
        "It is running: the worker is asked to stop it." if running else "It has not started, and will not start.",
        f"{home}/cancel",
        home,
        (("Executions", "/executions"), (short(found.execution_id), home)),
        "Cancel execution",
        "danger",
        (REASON,),
        command=f"mainspring executions cancel {found.execution_id}",
    )


async def confirm_cancel_run(request: PageRequest) -> Confirmation:
    found = await _run(request)
    home = f"/runs/{found.run_id}"
    text = "The run has not started, and will not start."
    if found.state != "queued":
        open_steps = f"{plural(found.open_steps, 'step')} {'has' if found.open_steps == 1 else 'have'} not ended."
        text = f"{open_steps} Steps that have not started are cancelled; running steps are asked to stop."
    return Confirmation(
        f"Cancel this run of {found.workflow}",
        text,
        f"{home}/cancel",
        home,
        _run_crumbs(found),
        "Cancel run",
        "danger",
        (REASON,),
        command=f"mainspring runs cancel {found.run_id}",
    )


_DECISIONS = {
    "approve": ("Approve", "The steps that depend on it continue.", NOTE, "primary", "approve"),
    "reject": ("Reject", "The step counts as failed. Dependent steps follow their rules.", NOTE, "danger", "reject"),
    "skip": ("Skip", "The step is not executed. Dependent steps continue.", REQUIRED_REASON, "primary", "skip"),
    "complete": (
        "Complete", "The step counts as succeeded, whatever its outcome.", REQUIRED_REASON, "primary", "force-complete",
    ),
}  # fmt: skip


async def confirm_decision(request: PageRequest) -> Confirmation:
    """`step` and `what` are in the link, or in the submitted form."""
    step, what = (request.form.get(name) or request.query(name) for name in ("step", "what"))
    if what not in _DECISIONS:
        raise invalid("/what", f"unknown decision {what!r}", hint=f"one of {', '.join(_DECISIONS)}")
    found = await _run(request)
    messages = {s.name: s.message for s in found.steps}
    if step not in messages:
        raise NotFound(f"the run has no step {step!r}")
    word, text, asked, tone, verb = _DECISIONS[what]
    if messages[step] and what in ("approve", "reject"):
        text = f"{messages[step]} · {text}"
    if what in ("skip", "complete") and found.finished_at is not None:
        text += " The run has ended: a new run keeps what had succeeded, and continues behind this step."
    home = f"/runs/{found.run_id}"
    return Confirmation(
        f"{word} {step}",
        text,
        f"{home}/decide",
        home,
        _run_crumbs(found),
        f"{word} {step}",
        tone,
        (asked,),
        {"step": step, "what": what},
        f"mainspring runs {verb} {found.run_id} {shlex.quote(step)}",
        "operate" if what in ("skip", "complete") else "write",
    )


async def confirm_rerun(request: PageRequest) -> Confirmation:
    found = await _run(request)
    home = f"/runs/{found.run_id}"
    steps = tuple(step.name for step in found.steps[:MAX_STEPS_OFFERED])
    begin = Field("from_step", "/from_step", "Start from", "choice", "steps that did not succeed", options=steps)
    return Confirmation(
        f"Rerun {found.workflow}",
        "A new run starts. It reuses the results of the steps before the starting point.",
        f"{home}/rerun",
        home,
        _run_crumbs(found),
        "Rerun",
        fields=(begin,),
        command=f"mainspring runs rerun {found.run_id}",
        scope="operate",
    )


async def _run(request: PageRequest) -> wire.Run:
    return await request.context.run_views.get(parse_run_id(request.ref), tenant=request.caller.tenant)


def _run_crumbs(run: wire.Run) -> Crumbs:
    return (
        ("Workflows", "/workflows"),
        (run.workflow, f"/workflows/{run.job_id}"),
        (short(run.run_id), f"/runs/{run.run_id}"),
    )


PAUSE = ConfirmedAction(confirm_pause, actions.pause)
RESUME = ConfirmedAction(confirm_resume, actions.resume)
DELETE = ConfirmedAction(confirm_delete, actions.delete)
CANCEL = ConfirmedAction(confirm_cancel, actions.cancel)
CANCEL_RUN = ConfirmedAction(confirm_cancel_run, actions.cancel_run)
RERUN = ConfirmedAction(confirm_rerun, actions.rerun)
DECIDE = ConfirmedAction(confirm_decision, actions.decide)
