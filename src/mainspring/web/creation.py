"""A new job from a form: a name, a command, and a schedule as in the playground."""

from __future__ import annotations

import shlex
from typing import Any, get_args

from starlette.responses import RedirectResponse, Response

from mainspring.codec import decode, encode
from mainspring.domain.errors import Conflict, Invalid, Problem, invalid
from mainspring.domain.execution import Delivery
from mainspring.domain.job import JobSpec
from mainspring.domain.retry import Jitter
from mainspring.intake import jobs
from mainspring.web import expression, render
from mainspring.web.crowds import Crowds
from mainspring.web.gate import Visit
from mainspring.web.playground import all_zones, part, shown_zones
from mainspring.web.trial import Typed, try_out

POLICIES = ("retries", "retry_base", "retry_cap", "retry_jitter", "delivery")
FIELDS = ("job", "command", "expression", "zone", "description", *POLICIES)


class Creation:
    """GET and POST /new."""

    def __init__(self, crowds: Crowds) -> None:
        self._crowds = crowds

    async def form(self, visit: Visit) -> Response:
        return await self._page(visit, {name: visit.query(name) for name in FIELDS})

    async def create(self, visit: Visit) -> Response:
        given = {name: visit.form.get(name, "").strip() for name in FIELDS}
        try:
            spec = decode(encode(_definition(given, shell="shell" in visit.form)), JobSpec)
            await jobs.create(
                visit.context.database, spec, tenant=visit.caller.tenant, by=visit.caller.name,
                may_exceed=visit.caller.may_exceed,
            )  # fmt: skip
        except (Invalid, Conflict) as error:
            problems = error.problems or (Problem("", error.message),)
            return await self._page(visit, given, status=409 if isinstance(error, Conflict) else 422, problems=problems)
        return RedirectResponse(f"/jobs/{spec.name}", 303, render.HEADERS)

    async def _page(
        self, visit: Visit, given: dict[str, str], *, status: int = 200, problems: tuple[Problem, ...] = ()
    ) -> Response:
        typed = Typed(given["expression"], given["zone"], given["job"])
        trial = await try_out(visit, self._crowds, typed) if typed.text else None
        zones = shown_zones(visit, trial)
        if visit.query("part"):
            return part("explained", visit, trial=trial, zones=zones, command=None, onward="")
        # What is wrong with the schedule is shown below it, with a caret.
        others = [p for p in problems if not p.pointer.startswith("/schedule")]
        return render.page(
            "new.html", visit.caller, status=status, given=given, shell="shell" in visit.form, typed=typed, trial=trial,
            zones=zones, problems=others, all_zones=all_zones(),
            jitters=get_args(Jitter), deliveries=get_args(Delivery),
        )  # fmt: skip


def _definition(given: dict[str, str], *, shell: bool) -> dict[str, Any]:
    if not given["command"]:
        raise invalid("/command", "the command is missing", hint="write what to run, such as ./report.sh --all")
    try:
        argv = [given["command"]] if shell else shlex.split(given["command"])
    except ValueError as error:
        raise invalid("/command", f"the command can't be split into words: {error}", hint="close the quotes") from None
    spec: dict[str, Any] = {"name": given["job"], "task": {"kind": "shell", "argv": argv, "shell": shell}}
    if given["description"]:
        spec["description"] = given["description"]
    if retries := _retries(given):
        spec["retries"] = retries
    if given["delivery"]:
        spec["delivery"] = given["delivery"]
    if given["expression"]:
        spec["schedule"] = expression.read(given["expression"], given["zone"])
    return spec


def _retries(given: dict[str, str]) -> dict[str, Any]:
    """What the form says about retries; what it leaves out has its default."""
    found: dict[str, Any] = {
        name: given[f"retry_{name}"] for name in ("base", "cap", "jitter") if given[f"retry_{name}"]
    }
    if given["retries"]:
        if not given["retries"].isdecimal():
            raise invalid("/retries/max", f"{given['retries']!r} is not a number of retries", hint="such as 3, or 0")
        found["max"] = int(given["retries"])
    return found
