"""The pages, one function each: read, then render."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.execution import LIVE
from mainspring.intake import backfills, catalog
from mainspring.intake.overview import verdict
from mainspring.web.gate import Visit
from mainspring.web.pulse import Pulse
from mainspring.web.render import now, page
from mainspring.web.timeline import timeline

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


class Overviews:
    """The first page; its numbers are shared by everyone who looks at the same moment."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse

    async def __call__(self, visit: Visit) -> Response:
        seen = await self._pulse.overview(visit.context.database, tenant=visit.caller.tenant)
        well, sentence = verdict(seen)
        return page("now.html", visit.caller, seen=seen, well=well, sentence=sentence, feed=seen.recent[:FEED_SHOWN])


async def jobs(visit: Visit) -> Response:
    prefix, cursor = visit.query("prefix"), visit.query("cursor")
    found = await list_jobs(visit)
    return page(
        "jobs.html",
        visit.caller,
        jobs=found.items,
        prefix=prefix,
        cursor=cursor,
        onward=found.next_cursor and link("/jobs", prefix=prefix, cursor=found.next_cursor),
        back=link("/jobs", prefix=prefix, cursor=cursor),
        stream=link("/ui/stream", view="jobs", prefix=prefix, cursor=cursor),
    )


async def job(visit: Visit) -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    found = await catalog.job(database, visit.ref, tenant=tenant)
    ref = str(found.job_id)
    cursor = visit.query("cursor")
    fires = await catalog.fires(database, ref, tenant=tenant, count=FIRES_SHOWN)
    past = await catalog.list_executions(database, tenant=tenant, job=ref, cursor=cursor or None, limit=FEED_SHOWN)
    filled = await backfills.list_backfills(database, tenant=tenant, job=ref, limit=BACKFILLS_SHOWN)
    onward = past.next_cursor and link(visit.request.url.path, cursor=past.next_cursor)
    return page(
        "job.html", visit.caller, job=found, fires=fires, executions=past.items, cursor=cursor, onward=onward,
        backfills=filled.items,
    )  # fmt: skip


async def executions(visit: Visit) -> Response:
    states = tuple(visit.request.query_params.getlist("state"))
    ref, cursor = visit.query("job"), visit.query("cursor")
    found = await catalog.list_executions(
        visit.context.database,
        tenant=visit.caller.tenant,
        states=states,
        job=ref or None,
        cursor=cursor or None,
        limit=JOBS_SHOWN,
    )
    filters = [(name, link("/executions", job=ref, state=of), of == states) for name, of in STATE_FILTERS]
    onward = found.next_cursor and link("/executions", job=ref, state=states, cursor=found.next_cursor)
    return page(
        "executions.html", visit.caller, executions=found.items, filters=filters, states=states, job_ref=ref,
        cursor=cursor, onward=onward, first=link("/executions", job=ref, state=states),
        stream=link("/ui/stream", view="executions", job=ref, state=states),
    )  # fmt: skip


async def execution(visit: Visit) -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    found = await catalog.execution(database, visit.ref, tenant=tenant)
    files = await visit.context.artifacts.listed(found.execution_id, tenant=tenant)
    logs = await catalog.read_logs(database, found.execution_id, tenant=tenant, place=visit.query("place") or None)
    run_id = await visit.context.runs.of_execution(found.execution_id, tenant=tenant)
    return page(
        "execution.html", visit.caller, e=found, run_id=run_id, files=files, steps=timeline(found, now()), logs=logs,
        live=found.state in LIVE, from_start=not visit.query("place"),
    )  # fmt: skip


async def list_jobs(visit: Visit) -> wire.Page[wire.Job]:
    """The jobs that the query asks for."""
    return await catalog.list_jobs(
        visit.context.database,
        tenant=visit.caller.tenant,
        prefix=visit.query("prefix") or None,
        cursor=visit.query("cursor") or None,
        limit=JOBS_SHOWN,
    )


def link(path: str, **values: str | tuple[str, ...]) -> str:
    """A path with its query; what is empty is left out."""
    query = urlencode({k: v for k, v in values.items() if v}, doseq=True)
    return f"{path}?{query}" if query else path
