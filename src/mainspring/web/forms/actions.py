"""Actions that ask first: each is a page that says what will happen and wants to know why; the script shows it as a
dialog. Looking never changes anything."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.views import executions as execution_views
from mainspring.views import refs
from mainspring.views.dependencies import needed_by
from mainspring.views.runs import parse_run_id
from mainspring.web import render
from mainspring.web.access import Handle, Visit, refuse_nul
from mainspring.web.draw.labels import plural, short
from mainspring.web.forms import changes
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.fields import Field
from mainspring.web.pages import workflows

MOST_CHOICES = 500
REASON = Field("reason", "/reason", "Why?", help="Others will see it.", size="grow")
MUST = Field("reason", "/reason", "Why? Others will want to know.", hint="required", size="grow")
NOTE = Field("reason", "/note", "Note", help="It is kept with the decision.", size="grow")
UNTIL = Field("until", "/until", "Until", hint="somebody resumes it", help="Such as 2h, or 2027-01-01T09:00 in UTC.")
DETACH = Field("detach", "/cascade", "delete it all the same: those that need it go on without it", "flag")
CATCH_UP = Field("catch_up", "/catch_up", "make up for what was missed, by its misfire policy", "flag")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: `path` is where the answer goes, `home` where one is without it."""

    title: str
    says: str
    path: str
    home: str
    crumbs: tuple[tuple[str, str], ...]
    button: str
    hue: str = "primary"
    fields: tuple[Field, ...] = ()
    hidden: dict[str, str] = field(default_factory=dict)
    command: str = ""


class Confirm:
    """A GET that asks and a POST that does."""

    def __init__(self, ask: Callable[[Visit], Awaitable[Question]], do: Handle) -> None:
        self._ask, self._do = ask, do

    async def page(self, visit: Visit) -> Response:
        return await self._page(visit, dict(visit.request.query_params))

    async def act(self, visit: Visit) -> Response:
        try:
            refuse_nul(visit.form)
            return await self._do(visit)
        except Invalid as error:
            return await self._page(visit, visit.form, problems_of(error), 422)
        except Conflict as error:
            if error.code != "needed":
                raise
            return await self._page(visit, visit.form, problems_of(error), 409)

    async def _page(
        self, visit: Visit, values: dict[str, str], problems: tuple[Problem, ...] = (), status: int = 200
    ) -> Response:
        question = await self._ask(visit)
        wrong: dict[str, list[Problem]] = {}
        others = []
        for problem in problems:
            name = next((f.name for f in question.fields if f.pointer == problem.pointer), None)
            wrong.setdefault(name, []).append(problem) if name else others.append(problem)
        return render.page(
            "confirm.html", visit.caller, status=status, question=question, values=values, wrong=wrong, problems=others
        )


async def _of_job(visit: Visit, verb: str) -> tuple[str, str, Question]:
    row = await refs.job_row(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    if row.deleted_at is not None:
        raise NotFound(f"the job {row.name!r} is deleted")
    home = f"/jobs/{row.job_id}"
    blank = Question("", "", f"{home}/{verb}", home, (("Jobs", "/jobs"), (row.name, home)), "")
    return row.name, f"mainspring jobs {verb} {shlex.quote(row.name)}", blank


def _asking(blank: Question, title: str, says: str, button: str, **more: Any) -> Question:
    values = {name: getattr(blank, name) for name in ("path", "home", "crumbs", "hidden")}
    return Question(title=title, says=says, button=button, **{**values, **more})


async def ask_pause(visit: Visit) -> Question:
    name, command, blank = await _of_job(visit, "pause")
    says = "It does not fire while it is paused. What is queued or running goes on."
    return _asking(blank, f"Pause {name}", says, "Pause", fields=(REASON, UNTIL), command=command)


async def ask_resume(visit: Visit) -> Question:
    name, command, blank = await _of_job(visit, "resume")
    says = (
        "It fires again from now on. What came due during the pause is recorded as skipped, unless you say otherwise."
    )
    return _asking(blank, f"Resume {name}", says, "Resume", fields=(CATCH_UP,), command=command)


async def ask_delete(visit: Visit) -> Question:
    name, command, blank = await _of_job(visit, "delete")
    says = "It will not fire any more, and what has not started is cancelled. What runs goes on; the history stays."
    children = await needed_by(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    if children:
        says += f" It is needed by {', '.join(children)}."
    fields = (REASON, DETACH) if children else (REASON,)
    return _asking(blank, f"Delete {name}", says, f"Delete {name}", hue="danger", fields=fields, command=command)


async def ask_cancel(visit: Visit) -> Question:
    found = await execution_views.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    home = f"/executions/{found.execution_id}"
    says = (
        "It runs: its worker is asked to end it." if found.state == "running" else "It has not started, and never will."
    )
    if found.finished_at is not None:
        raise Conflict(f"the execution has already ended: {found.state}", code="already_final")
    crumbs = (("Executions", "/executions"), (short(found.execution_id), home))
    return Question(
        f"Cancel an execution of {found.job}",
        says,
        f"{home}/cancel",
        home,
        crumbs,
        "Cancel the execution",
        "danger",
        (REASON,),
        command=f"mainspring executions cancel {found.execution_id}",
    )


async def ask_cancel_run(visit: Visit) -> Question:
    run_id = parse_run_id(visit.ref)
    found = await visit.context.run_views.get(run_id, tenant=visit.caller.tenant)
    home = f"/runs/{run_id}"
    says = "It has not begun, and never will."
    if found.state != "queued":
        left = f"{plural(found.open_steps, 'step')} {'has' if found.open_steps == 1 else 'have'} not ended"
        says = f"{left}. What has not begun never will, what runs is asked to end."
    crumbs = (("Workflows", "/workflows"), (found.workflow, f"/workflows/{found.job_id}"), (short(run_id), home))
    return Question(
        f"Cancel this run of {found.workflow}",
        says,
        f"{home}/cancel",
        home,
        crumbs,
        "Cancel the run",
        "danger",
        (REASON,),
        command=f"mainspring runs cancel {run_id}",
    )


_DECISIONS = {
    "approve": ("Approve", "The steps behind it go on.", NOTE, "primary", "approve"),
    "reject": ("Reject", "It counts as failed, and the steps behind it act by their rules.", NOTE, "danger", "reject"),
    "skip": ("Skip", "It is not executed, and the steps behind it go on as if it had been.", MUST, "primary", "skip"),
    "complete": ("Complete", "It counts as succeeded, whatever becomes of it.", MUST, "primary", "force-complete"),
}


async def ask_decision(visit: Visit) -> Question:
    """`step` and `what` are in the link, or in the form that came back."""
    step, what = (visit.form.get(name) or visit.query(name) for name in ("step", "what"))
    if what not in _DECISIONS:
        raise invalid("/what", f"{what!r} can't be decided", hint=f"one of {', '.join(_DECISIONS)}")
    run_id = parse_run_id(visit.ref)
    found = await visit.context.run_views.get(run_id, tenant=visit.caller.tenant)
    (asks,) = [s.message for s in found.steps if s.name == step] or [None]
    if step not in {s.name for s in found.steps}:
        raise NotFound(f"the run has no step {step!r}")
    word, says, asked, hue, verb = _DECISIONS[what]
    says = f"{asks} · {says}" if asks and what in ("approve", "reject") else says
    home = f"/runs/{run_id}"
    crumbs = (("Workflows", "/workflows"), (found.workflow, f"/workflows/{found.job_id}"), (short(run_id), home))
    return Question(
        f"{word} {step}",
        says,
        f"{home}/decide",
        home,
        crumbs,
        f"{word} {step}",
        hue,
        (asked,),
        {"step": step, "what": what},
        f"mainspring runs {verb} {run_id} {shlex.quote(step)}",
    )


async def ask_rerun(visit: Visit) -> Question:
    run_id = parse_run_id(visit.ref)
    found = await visit.context.run_views.get(run_id, tenant=visit.caller.tenant)
    home = f"/runs/{run_id}"
    steps = tuple(step.name for step in found.steps[:MOST_CHOICES])
    begin = Field("from_step", "/from_step", "From", "choice", "those that did not succeed", options=steps)
    crumbs = (("Workflows", "/workflows"), (found.workflow, f"/workflows/{found.job_id}"), (short(run_id), home))
    return Question(
        f"Repeat this run of {found.workflow}",
        "A new run; the results of the steps before are kept.",
        f"{home}/rerun",
        home,
        crumbs,
        "Repeat",
        fields=(begin,),
        command=f"mainspring runs rerun {run_id}",
    )


PAUSE = Confirm(ask_pause, changes.pause)
RESUME = Confirm(ask_resume, changes.resume)
DELETE = Confirm(ask_delete, changes.delete)
CANCEL = Confirm(ask_cancel, changes.cancel)
CANCEL_RUN = Confirm(ask_cancel_run, workflows.cancel)
RERUN = Confirm(ask_rerun, workflows.rerun)
DECIDE = Confirm(ask_decision, workflows.decide)
