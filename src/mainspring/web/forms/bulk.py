"""One action on everything that fits a filter: counted and sampled first, then done in chunks, each told.

Nothing is kept on the server between the chunks: the page brings along how far it is, and the script sends it on. So it
can be stopped at any chunk, and goes on after a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_hex
from uuid import UUID

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.domain.errors import Invalid, MainspringError, invalid
from mainspring.domain.execution import LIVE
from mainspring.domain.filter import job_filter
from mainspring.intake import dead_letters, executions, jobs, replays
from mainspring.intake.executions import Submission, SubmissionAudit
from mainspring.intake.validate.params import check_params
from mainspring.views import executions as execution_views
from mainspring.views import refs, search
from mainspring.web import render
from mainspring.web.access import Visit, refuse_nul
from mainspring.web.forms.changes import MAX_REASON
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.instant import moment_to_come
from mainspring.web.pages.failures import SCOPE

MOST = 10_000
"""So many are acted on at most; a filter that finds more is to be narrowed."""
CHUNK = 50
SAMPLE = 20
KEPT = 20
"""So many failures are told one by one; the rest are counted."""


@dataclass(frozen=True, slots=True)
class One:
    """What is acted on: a job or an execution, with a name to tell it by and a place to look at it."""

    id: UUID
    name: str
    path: str


@dataclass(slots=True)
class Progress:
    """How far it is; travels with the form. `begun` tells this action from another one like it."""

    begun: str
    done: int = 0
    failed: int = 0
    cursor: str = ""
    told: list[list[str]] = field(default_factory=list)
    """Of the first that failed: name, path and why."""


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on many: `do` does it to one. `says` tells what it means."""

    verb: str
    button: str
    says: str
    do: Callable[[Visit, One], Awaitable[object]]
    hue: str = "primary"
    scope: str = "write"


async def _pause(visit: Visit, one: One) -> None:
    until = moment_to_come(visit.form.get("until", ""), "/until")
    reason = visit.form.get("reason", "")[:MAX_REASON]
    await jobs.pause(
        visit.context.database,
        one.id,
        tenant=visit.caller.tenant,
        reason=reason,
        until=until,
        by=visit.caller.name,
    )


async def _resume(visit: Visit, one: One) -> None:
    await jobs.resume(visit.context.database, one.id, tenant=visit.caller.tenant, by=visit.caller.name)


async def _run(visit: Visit, one: One) -> None:
    row = await refs.job_row(visit.context.database, str(one.id), tenant=visit.caller.tenant)
    check_params(row.spec, None)
    given = Submission(visit.caller.tenant, visit.caller.name, one.id, audit=SubmissionAudit.of(row))
    await visit.context.submitter.submit_once(given, f"bulk:{_progress(visit.form.get('progress', '')).begun}")


async def _delete(visit: Visit, one: One) -> None:
    reason = visit.form.get("reason", "")[:MAX_REASON]
    await jobs.delete(visit.context.database, one.id, tenant=visit.caller.tenant, by=visit.caller.name, reason=reason)


async def _cancel(visit: Visit, one: One) -> None:
    reason = visit.form.get("reason", "")[:MAX_REASON]
    await executions.cancel(
        visit.context.database, one.id, tenant=visit.caller.tenant, by=visit.caller.name, reason=reason
    )


async def _requeue(visit: Visit, one: One) -> None:
    """By its dead letter, if it has one: that is then resolved, and a second time does nothing."""
    database, tenant = visit.context.database, visit.caller.tenant
    found = await execution_views.get(database, one.id, tenant=tenant)
    if found.state in LIVE:
        raise invalid("/state", f"it is {found.state}", hint="only what has ended can be requeued")
    if found.state in ("failed", "timed_out", "lost"):
        letter_id = await dead_letters.find(database, str(one.id), tenant=tenant)
        await replays.replay_one(database, letter_id, wire.ReplayOne(), tenant=tenant, by=visit.caller.name)
        return
    params = found.params if isinstance(found.params, dict) else None
    entry = SubmissionAudit("execution.requeue", found.job, subject=one.id)
    given = Submission(tenant, visit.caller.name, found.job_id, None, params, found.fire_at, entry)
    # By the execution it repeats: the same chunk sent twice makes it once.
    await visit.context.submitter.submit_once(given, f"requeue:{one.id}")


JOB_DEEDS = {
    deed.verb: deed
    for deed in (
        Deed("pause", "Pause", "They do not fire while they are paused. What is queued or running goes on.", _pause),
        Deed("resume", "Resume", "They fire again from now on. What came due meanwhile counts as skipped.", _resume),
        Deed("run", "Run", "Each gets one execution now, with its default parameters.", _run),
        Deed(
            "delete", "Delete", "They will not fire any more. What runs goes on; the history stays.", _delete, "danger"
        ),
    )
}
EXECUTION_DEEDS = {
    deed.verb: deed
    for deed in (
        Deed("cancel", "Cancel", "What has not started never will; what runs is asked to end.", _cancel, "danger"),
        Deed(
            "requeue",
            "Requeue",
            "Those that have ended are executed again, as their jobs are now, with the same "
            "parameters and for the same times.",
            _requeue,
            scope=SCOPE,
        ),
    )
}


class Bulk:
    """GET and POST /jobs:bulk and /executions:bulk."""

    def __init__(self, noun: str, deeds: dict[str, Deed]) -> None:
        self._noun, self._deeds = noun, deeds

    async def ask(self, visit: Visit) -> Response:
        """How many fit, some of them, and what can be done to them all."""
        deed = self._deeds.get(visit.query("do"))
        return await self._page(visit, visit.query("q"), deed, dict(visit.request.query_params))

    async def act(self, visit: Visit) -> Response:
        """One chunk; the page that comes back sends the next."""
        deed = self._deeds.get(visit.form.get("do", ""))
        if deed is None:
            raise invalid("/do", "this can't be done to all", hint=f"one of {', '.join(self._deeds)}")
        visit.caller.demand(deed.scope)
        text, progress = visit.form.get("q", ""), _progress(visit.form.get("progress", ""))
        try:
            refuse_nul(visit.form)
            moment_to_come(visit.form.get("until", ""), "/until")
            chunk, onward = await self._some(visit, text, progress.cursor, CHUNK)
        except Invalid as error:
            return await self._page(visit, text, deed, visit.form, error)
        for one in chunk:
            await _to_one(visit, deed, one, progress)
        over = progress.done + progress.failed >= MOST
        progress.cursor = onward or ""
        return render.page(
            "bulk_done.html",
            visit.caller,
            noun=self._noun,
            deed=deed,
            text=text,
            progress=progress,
            onward=bool(onward) and not over,
            over=over and bool(onward),
            packed=_packed(progress),
            values=visit.form,
            total=_total(visit.form.get("total", "")),
        )

    async def _page(
        self, visit: Visit, text: str, deed: Deed | None, values: dict[str, str], error: Invalid | None = None
    ) -> Response:
        sample: list[One] = []
        count, exact, start = 0, True, ""
        try:
            sample, _ = await self._some(visit, text, "", SAMPLE)
            count, exact, start = await self._count(visit, text)
        except Invalid as wrong:
            error = wrong
        return render.page(
            "bulk.html",
            visit.caller,
            status=422 if error else 200,
            noun=self._noun,
            deeds=self._deeds,
            deed=deed,
            text=text,
            sample=sample,
            count=count,
            exact=exact,
            most=MOST,
            values=values,
            problems=problems_of(error) if error else (),
            start=_packed(Progress(token_hex(8), cursor=start)),
        )

    async def _count(self, visit: Visit, text: str) -> tuple[int, bool, str]:
        """How many fit, as far as one look goes; whether that is all; and where to begin."""
        database, tenant = visit.context.database, visit.caller.tenant
        if self._noun == "job":
            found = await search.count_jobs(database, text, tenant=tenant, most=MOST)
            return found[0], found[1], ""
        count, exact, newest = await search.count_executions(database, text, tenant=tenant, most=MOST)
        # What is made after this look, by the action itself too, is not acted on.
        return count, exact, "" if newest is None else str(UUID(int=newest.int + 1))

    async def _some(self, visit: Visit, text: str, cursor: str, limit: int) -> tuple[list[One], str | None]:
        database, tenant = visit.context.database, visit.caller.tenant
        if self._noun == "job":
            found, onward = await search.job_ids(database, job_filter(text), tenant=tenant, after=cursor, limit=limit)
            return [One(job_id, name, f"/jobs/{job_id}") for job_id, name in found], onward
        page = await search.find_executions(database, text, tenant=tenant, cursor=cursor or None, limit=limit)
        return [
            One(e.execution_id, f"{e.title}, {e.state.replace('_', ' ')}", f"/executions/{e.execution_id}")
            for e in page.items
        ], page.next_cursor


async def _to_one(visit: Visit, deed: Deed, one: One, progress: Progress) -> None:
    try:
        await deed.do(visit, one)
        progress.done += 1
    except MainspringError as error:
        progress.failed += 1
        if len(progress.told) < KEPT:
            progress.told.append([one.name, one.path, error.message[:300]])


def _packed(progress: Progress) -> str:
    return msgspec.json.encode(progress).decode()


def _progress(text: str) -> Progress:
    try:
        return msgspec.json.decode(text.encode(), type=Progress)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise invalid("/progress", "this form does not say how far it is", hint="begin again from the list") from None


def _total(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


JOBS = Bulk("job", JOB_DEEDS)
EXECUTIONS = Bulk("execution", EXECUTION_DEEDS)
