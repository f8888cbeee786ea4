"""Bulk actions on all jobs or executions that match a filter: preview first, then chunk by chunk.

The server keeps no state between chunks: the form carries the progress, and the script submits it again. A bulk action
can be stopped after any chunk and continues after a restart of the server.
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
from mainspring.domain.filter import job_filter
from mainspring.intake import executions, jobs
from mainspring.intake.executions import Submission, SubmissionAudit
from mainspring.intake.requeue import requeue
from mainspring.intake.validate.params import check_params
from mainspring.views import refs, search
from mainspring.web import render
from mainspring.web.endpoint import PageRequest, refuse_nul
from mainspring.web.forms.actions import reason_of
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.instant import parse_future
from mainspring.web.pages.failures import SCOPE

MAX_ITEMS = 10_000
"""The most items that one bulk action takes; a filter that matches more has to be narrowed."""
CHUNK_ITEMS = 50
SAMPLE_ITEMS = 20
MAX_PICKED = 200
"""Jobs that can be selected one by one; for more there is the filter."""
MAX_FAILURES_LISTED = 20
"""Failures that are listed one by one; the rest are only counted."""


@dataclass(frozen=True, slots=True)
class BulkItem:
    """A job or an execution with its name and the path of its page."""

    id: UUID
    name: str
    path: str


@dataclass(slots=True)
class Progress:
    """The progress of a bulk action, carried by the form. `begun` identifies the action."""

    begun: str
    done: int = 0
    failed: int = 0
    cursor: str = ""
    failures: list[list[str]] = field(default_factory=list)
    """Name, path and error of the first failures."""


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A bulk action. `do` applies it to one item; `text` explains its effect."""

    verb: str
    button: str
    text: str
    do: Callable[[PageRequest, BulkItem], Awaitable[object]]
    tone: str = "primary"
    scope: str = "write"


async def _pause(request: PageRequest, item: BulkItem) -> None:
    until = parse_future(request.form.get("until", ""), "/until", request.caller.zone)
    await jobs.pause(
        request.context.database,
        item.id,
        tenant=request.caller.tenant,
        reason=reason_of(request),
        until=until,
        by=request.caller.name,
    )


async def _resume(request: PageRequest, item: BulkItem) -> None:
    await jobs.resume(request.context.database, item.id, tenant=request.caller.tenant, by=request.caller.name)


async def _run(request: PageRequest, item: BulkItem) -> None:
    row = await refs.job_row(request.context.database, str(item.id), tenant=request.caller.tenant)
    check_params(row.spec, None)
    given = Submission(request.caller.tenant, request.caller.name, item.id, audit=SubmissionAudit.of(row))
    await request.context.submitter.submit_once(given, f"bulk:{_progress(request.form.get('progress', '')).begun}")


async def _delete(request: PageRequest, item: BulkItem) -> None:
    await jobs.delete(
        request.context.database,
        item.id,
        tenant=request.caller.tenant,
        by=request.caller.name,
        reason=reason_of(request),
    )


async def _cancel(request: PageRequest, item: BulkItem) -> None:
    await executions.cancel(
        request.context.database,
        item.id,
        tenant=request.caller.tenant,
        by=request.caller.name,
        reason=reason_of(request),
    )


async def _requeue(request: PageRequest, item: BulkItem) -> None:
    await requeue(
        request.context.database,
        request.context.submitter,
        item.id,
        wire.Requeue(reason=reason_of(request)),
        tenant=request.caller.tenant,
        by=request.caller.name,
    )


JOB_ACTIONS = {
    action.verb: action
    for action in (
        BulkAction(
            "pause", "Pause", "The jobs do not fire while paused. Queued and running executions continue.", _pause
        ),
        BulkAction(
            "resume", "Resume", "The jobs fire again from now on. Fires missed during the pause are skipped.", _resume
        ),
        BulkAction("run", "Run", "Each job gets one execution now, with default parameters.", _run),
        BulkAction(
            "delete",
            "Delete",
            "The jobs stop firing. Running executions continue; the history is kept.",
            _delete,
            "danger",
        ),
    )
}
EXECUTION_ACTIONS = {
    action.verb: action
    for action in (
        BulkAction(
            "cancel",
            "Cancel",
            "Executions that have not started are dropped; running ones are asked to stop.",
            _cancel,
            "danger",
        ),
        BulkAction(
            "requeue",
            "Requeue",
            "Ended executions run again with the current definition, the same parameters and the same fire times.",
            _requeue,
            scope=SCOPE,
        ),
    )
}


class Bulk:
    """GET and POST /jobs:bulk and /executions:bulk."""

    def __init__(self, noun: str, actions: dict[str, BulkAction]) -> None:
        self._noun, self._actions = noun, actions

    async def page(self, request: PageRequest) -> Response:
        """Show the number of matches, a sample, and the actions."""
        action = self._actions.get(request.query("do"))
        return await self._page(request, request.query("q"), action, dict(request.http.query_params))

    async def act(self, request: PageRequest) -> Response:
        """Process one chunk; the response submits the next."""
        action = self._actions.get(request.form.get("do", ""))
        if action is None:
            raise invalid("/do", "unknown bulk action", hint=f"one of {', '.join(self._actions)}")
        request.caller.demand(action.scope)
        text, progress = request.form.get("q", ""), _progress(request.form.get("progress", ""))
        try:
            refuse_nul(request.form)
            parse_future(request.form.get("until", ""), "/until", request.caller.zone)
            chunk, next_page = await self._matching(request, text, progress.cursor, CHUNK_ITEMS)
        except Invalid as error:
            return await self._page(request, text, action, request.form, error)
        for item in chunk:
            await _apply(request, action, item, progress)
        full = progress.done + progress.failed >= MAX_ITEMS
        progress.cursor = next_page or ""
        return render.page(
            "bulk_progress.html",
            request.caller,
            noun=self._noun,
            action=action,
            text=text,
            progress=progress,
            next_page=bool(next_page) and not full,
            full=full and bool(next_page),
            packed=_packed(progress),
            values=request.form,
            picked=request.form.get("picked", ""),
            total=_total(request.form.get("total", "")),
        )

    async def _page(
        self,
        request: PageRequest,
        text: str,
        action: BulkAction | None,
        values: dict[str, str],
        error: Invalid | None = None,
    ) -> Response:
        sample: list[BulkItem] = []
        count, exact, start = 0, True, ""
        try:
            sample, _ = await self._matching(request, text, "", SAMPLE_ITEMS)
            count, exact, start = await self._count(request, text)
        except Invalid as refused:
            error = refused
        return render.page(
            "bulk.html",
            request.caller,
            status=422 if error else 200,
            noun=self._noun,
            actions=self._actions,
            action=action,
            text=text,
            sample=sample,
            count=count,
            exact=exact,
            most=MAX_ITEMS,
            values=values,
            picked=_picked_text(request),
            problems=problems_of(error) if error else (),
            start=_packed(Progress(token_hex(8), cursor=start)),
        )

    async def _count(self, request: PageRequest, text: str) -> tuple[int, bool, str]:
        """Return the number of matches, whether it is exact, and the cursor to start from."""
        database, tenant = request.context.database, request.caller.tenant
        if self._noun == "job" and (picked := _picked(request)):
            return len(await search.names_of_jobs(database, picked, tenant=tenant)), True, ""
        if self._noun == "job":
            found = await search.count_jobs(database, text, tenant=tenant, most=MAX_ITEMS)
            return found[0], found[1], ""
        count, exact, newest = await search.count_executions(database, text, tenant=tenant, most=MAX_ITEMS)
        # Executions created later, also by the action itself, are left out.
        return count, exact, "" if newest is None else str(UUID(int=newest.int + 1))

    async def _matching(
        self, request: PageRequest, text: str, cursor: str, limit: int
    ) -> tuple[list[BulkItem], str | None]:
        database, tenant = request.context.database, request.caller.tenant
        if self._noun == "job":
            if picked := _picked(request):
                rest = [job_id for job_id in sorted(picked) if str(job_id) > cursor]
                found = await search.names_of_jobs(database, rest[:limit], tenant=tenant)
                next_page = str(rest[limit - 1]) if len(rest) > limit else None
            else:
                found, next_page = await search.job_ids(
                    database, job_filter(text), tenant=tenant, after=cursor, limit=limit
                )
            return [BulkItem(job_id, name, f"/jobs/{job_id}") for job_id, name in found], next_page
        page = await search.find_executions(database, text, tenant=tenant, cursor=cursor or None, limit=limit)
        return [
            BulkItem(e.execution_id, f"{e.title}, {e.state.replace('_', ' ')}", f"/executions/{e.execution_id}")
            for e in page.items
        ], page.next_cursor


def _picked_text(request: PageRequest) -> str:
    return request.form.get("picked", "") or ",".join(request.http.query_params.getlist("job"))


def _picked(request: PageRequest) -> list[UUID]:
    """The jobs that were selected one by one: `job` in the address, `picked` in the form. Empty: use the filter."""
    words = [word for word in _picked_text(request).split(",") if word]
    if len(words) > MAX_PICKED:
        raise invalid("/job", f"more than {MAX_PICKED} jobs are selected", hint="use the filter instead")
    try:
        return [UUID(word) for word in words]
    except ValueError:
        raise invalid("/job", "a selected job is not an id", hint="select jobs in the list") from None


async def _apply(request: PageRequest, action: BulkAction, item: BulkItem, progress: Progress) -> None:
    try:
        await action.do(request, item)
        progress.done += 1
    except MainspringError as error:
        progress.failed += 1
        if len(progress.failures) < MAX_FAILURES_LISTED:
            progress.failures.append([item.name, item.path, error.message[:300]])


def _packed(progress: Progress) -> str:
    return msgspec.json.encode(progress).decode()


def _progress(text: str) -> Progress:
    try:
        return msgspec.json.decode(text.encode(), type=Progress)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise invalid("/progress", "the progress is missing or invalid", hint="start again from the list") from None


def _total(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


JOBS = Bulk("job", JOB_ACTIONS)
EXECUTIONS = Bulk("execution", EXECUTION_ACTIONS)
