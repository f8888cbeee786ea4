"""The pages, one function each: read, then render."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.clock import millis
from mainspring.domain.errors import Invalid, NotFound
from mainspring.domain.filter import EXECUTION_FIELDS, JOB_FIELDS, ExecutionFilter, execution_filter, spell
from mainspring.intake import backfills
from mainspring.store.search import Stats
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import search
from mainspring.web.access import Visit
from mainspring.web.forms.schedule_error import Slip, slip_of
from mainspring.web.render import now, page

JOBS_SHOWN = 50
FIRES_SHOWN = 10
FEED_SHOWN = 25
BACKFILLS_SHOWN = 5

STATE_FILTERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("All", ()),
    ("Running", ("running",)),
    ("Queued", ("queued",)),
    ("Waiting", ("waiting", "blocked")),
    ("Succeeded", ("succeeded",)),
    ("Failed", ("failed", "timed_out", "lost")),
    ("Cancelled", ("cancelled",)),
    ("Skipped", ("skipped",)),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A page of jobs with how they went; or what is wrong with the filter."""

    page: wire.Page[wire.Job]
    stats: dict[UUID, Stats] = field(default_factory=dict)
    wrong: Slip | None = None


async def jobs(visit: Visit) -> Response:
    text, cursor = visit.query("q") or spell(name=visit.query("prefix")), visit.query("cursor")
    shown = await shown_jobs(visit)
    onward = shown.page.next_cursor and link("/jobs", q=text, cursor=shown.page.next_cursor)
    return page(
        "jobs.html",
        visit.caller,
        status=422 if shown.wrong else 200,
        jobs=shown.page.items,
        stats=shown.stats,
        text=text,
        wrong=shown.wrong,
        fields=JOB_FIELDS,
        cursor=cursor,
        onward=onward,
        back=link("/jobs", q=text, cursor=cursor),
        bulk=link("/jobs:bulk", q=text),
        command=shlex.join(["mainspring", "jobs", "list", *([text] if text else [])]),
        stream=link("/ui/stream", view="jobs", q=text, cursor=cursor),
    )


async def job(visit: Visit) -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    found = await job_views.get(database, visit.ref, tenant=tenant)
    ref = str(found.job_id)
    cursor = visit.query("cursor")
    fires = await fire_views.of_job(database, ref, tenant=tenant, count=FIRES_SHOWN)
    past = await execution_views.list_executions(
        database, tenant=tenant, job=ref, cursor=cursor or None, limit=FEED_SHOWN
    )
    filled = await backfills.list_backfills(database, tenant=tenant, job=ref, limit=BACKFILLS_SHOWN)
    onward = past.next_cursor and link(visit.request.url.path, cursor=past.next_cursor)
    return page(
        "job.html",
        visit.caller,
        job=found,
        fires=fires,
        executions=past.items,
        cursor=cursor,
        onward=onward,
        backfills=filled.items,
    )


async def executions(visit: Visit) -> Response:
    given = spell(job=visit.query("job"), state=tuple(visit.request.query_params.getlist("state")))
    text, cursor = visit.query("q") or given, visit.query("cursor")
    found, wrong, status = wire.Page[wire.Execution](items=[]), None, 200
    wanted = ExecutionFilter()
    try:
        wanted = execution_filter(text, millis(now()))
        found = await list_executions(visit, wanted, text)
    except Invalid as error:
        wrong, status = slip_of(error, text, ""), 422
    except NotFound as error:
        wrong, status = Slip("job", error.message, "", "", "look at the list of jobs"), 404
    rest = " ".join(word for word in text.split() if not word.lower().startswith("state:"))
    filters = [
        (name, link("/executions", q=f"{spell(state=of)} {rest}".strip()), set(of) == set(wanted.states))
        for name, of in STATE_FILTERS
    ]
    onward = found.next_cursor and link("/executions", q=text, cursor=found.next_cursor)
    stream = link("/ui/stream", view="executions", job="".join(wanted.jobs), state=wanted.states)
    return page(
        "executions.html",
        visit.caller,
        status=status,
        executions=found.items,
        filters=filters,
        text=text,
        wrong=wrong,
        fields=EXECUTION_FIELDS,
        cursor=cursor,
        onward=onward,
        first=link("/executions", q=text),
        stream="" if cursor or wrong or not plain(wanted) else stream,
        bulk=link("/executions:bulk", q=text),
        command=shlex.join(["mainspring", "executions", "list", *([text] if text else [])]),
    )


def plain(wanted: ExecutionFilter) -> bool:
    """Whether the filter says no more than states and one job: those pages are live."""
    return len(wanted.jobs) <= 1 and wanted == ExecutionFilter(states=wanted.states, jobs=wanted.jobs)


async def list_executions(visit: Visit, wanted: ExecutionFilter, text: str) -> wire.Page[wire.Execution]:
    database, tenant, cursor = visit.context.database, visit.caller.tenant, visit.query("cursor") or None
    if not plain(wanted):
        return await search.find_executions(database, text, tenant=tenant, cursor=cursor, limit=JOBS_SHOWN)
    return await execution_views.list_executions(
        database,
        tenant=tenant,
        states=wanted.states,
        job="".join(wanted.jobs) or None,
        cursor=cursor,
        limit=JOBS_SHOWN,
    )


async def shown_jobs(visit: Visit) -> Shown:
    """The jobs that the query asks for, and how each went in the last day."""
    database, tenant, cursor = visit.context.database, visit.caller.tenant, visit.query("cursor") or None
    text = visit.query("q") or spell(name=visit.query("prefix"))
    try:
        if text:
            found = await search.jobs(database, text, tenant=tenant, cursor=cursor, limit=JOBS_SHOWN)
        else:
            found = await job_views.list_jobs(database, tenant=tenant, cursor=cursor, limit=JOBS_SHOWN)
    except Invalid as error:
        return Shown(wire.Page(items=[]), wrong=slip_of(error, text, ""))
    ids = [job.job_id for job in found.items]
    return Shown(found, await search.stats(database, ids, tenant=tenant))


def link(path: str, **values: str | tuple[str, ...]) -> str:
    """A path with its query; what is empty is left out."""
    query = urlencode({k: v for k, v in values.items() if v}, doseq=True)
    return f"{path}?{query}" if query else path
