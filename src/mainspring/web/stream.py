"""What open pages hear: fragments of the same templates, each put in place of the element with its id."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from mainspring import wire
from mainspring.domain.errors import MainspringError, invalid
from mainspring.store.db import AWAY
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import logs as log_views
from mainspring.views import refs
from mainspring.views import workers as worker_views
from mainspring.views.overview import verdict
from mainspring.views.runs import parse_run_id
from mainspring.web.access import Visit
from mainspring.web.draw import charts, terminal_output
from mainspring.web.draw.timeline import timeline
from mainspring.web.fire_history import Pasts
from mainspring.web.overview_cache import OverviewCache
from mainspring.web.pages import fleet, runs, system, worker
from mainspring.web.pages.jobs import FEED_SHOWN, FIRES_SHOWN, JOBS_SHOWN, link, shown_jobs
from mainspring.web.render import HEADERS, fragment, now

GATHER_S = 0.25
"""A page is told of changes at most so often: no eye follows more, and no browser a thousand rows a second."""
LOOK_S = 3.0
"""So often numbers and next fires are looked at again."""
_LINE_END = re.compile(r"\r\n|\r|\n")
SILENT = ": still here\n\n"


class Stream:
    """GET /ui/stream: `view` names the page that listens."""

    def __init__(self, pulse: OverviewCache, pasts: Pasts) -> None:
        self._pulse, self._pasts = pulse, pasts

    async def __call__(self, visit: Visit) -> Response:
        match visit.query("view"):
            case "now":
                messages = self._now(visit)
            case "jobs":
                messages = _jobs(visit)
            case "job" | "executions" as view:
                job = visit.query("job")
                if job or view == "job":
                    await refs.job_row(visit.context.database, job, tenant=visit.caller.tenant)
                messages = _executions(visit, job, with_fires=view == "job")
            case "execution":
                execution_id = await refs.execution_id(
                    visit.context.database, visit.query("execution"), tenant=visit.caller.tenant
                )
                messages = _execution(visit, execution_id)
            case "chart":
                messages = charts.watch(visit, _gathered(visit), message)
            case "run":
                messages = runs.watch(visit, parse_run_id(visit.query("run")), _gathered(visit), message)
            case "worker":
                messages = worker.watch(visit, _gathered(visit), message)
            case "workers":
                messages = _workers(visit)
            case "queues":
                messages = _looking(visit, fleet.queue_parts)
            case "system":
                messages = _looking(visit, system.parts)
            case _:
                raise invalid(
                    "/view",
                    "no such view",
                    hint="now, jobs, job, executions, execution, chart, run, workers, worker, queues or system",
                )
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(_while_known(visit, messages), 200, headers, media_type="text/event-stream")

    async def _now(self, visit: Visit) -> AsyncIterator[str]:
        async for changed in _gathered(visit):
            seen = await self._pulse.overview(visit.context.database, tenant=visit.caller.tenant)
            well, sentence = verdict(seen)
            bars = await self._pasts.bars(visit.context.database, now(), tenant=visit.caller.tenant)
            yield message(
                fragment("parts.html", "numbers", visit.caller, seen=seen, well=well, sentence=sentence)
                + fragment("parts.html", "upcoming", visit.caller, fires=seen.upcoming)
                + fragment("day.html", "day", visit.caller, bars=bars)
            )
            # By themselves: a browser drops rows that come after anything but rows.
            if rows := changed or seen.recent[:FEED_SHOWN]:
                yield message(_rows(visit, rows))


async def _jobs(visit: Visit) -> AsyncIterator[str]:
    back = link("/jobs", q=visit.query("q"), cursor=visit.query("cursor"))
    async for _ in _gathered(visit, every=False):
        shown = await shown_jobs(visit)
        rows = {"jobs": shown.page.items, "stats": shown.stats, "back": back}
        yield message(fragment("job_rows.html", "job_rows", visit.caller, **rows))


async def _executions(visit: Visit, job: str, *, with_fires: bool) -> AsyncIterator[str]:
    states = tuple(visit.request.query_params.getlist("state"))
    async for changed in _gathered(visit):
        if not changed:
            page = await execution_views.list_executions(
                visit.context.database, tenant=visit.caller.tenant, states=states, job=job or None, limit=JOBS_SHOWN
            )
            changed = page.items
        mine = [e for e in changed if job in ("", e.job, str(e.job_id))]
        yield message(_rows(visit, mine, states)) if mine else SILENT
        if with_fires:
            yield message(await _fires(visit, job))


async def _fires(visit: Visit, ref: str) -> str:
    database, tenant = visit.context.database, visit.caller.tenant
    job = await job_views.get(database, ref, tenant=tenant)
    fires = await fire_views.of_job(database, ref, tenant=tenant, count=FIRES_SHOWN)
    return fragment("parts.html", "next_fires", visit.caller, job=job, fires=fires)


async def _execution(visit: Visit, execution_id: UUID) -> AsyncIterator[str]:
    context, tenant = visit.context, visit.caller.tenant
    place = visit.request.headers.get("last-event-id") or visit.query("place") or None
    attempt = log_views.parse_place(place)[0]
    shown: wire.Execution | None = None
    complete = False
    async for logs in context.live.output(execution_id, tenant=tenant, place=place):
        found = await execution_views.get(context.database, execution_id, tenant=tenant)
        complete = logs.complete
        parts = ""
        if found != shown:
            shown = found
            steps = timeline(found, now())
            parts = fragment("parts.html", "execution_head", visit.caller, e=found, steps=steps)
        if logs.chunks:
            yield message(terminal_output.render(logs.chunks, attempt), event="log", identity=logs.place)
            attempt = logs.chunks[-1].attempt
        yield message(parts) if parts else SILENT
    if complete:  # else the server closes, and the browser comes back to the next one
        yield message("", event="end")


async def _workers(visit: Visit) -> AsyncIterator[str]:
    async for _ in _gathered(visit, every=False):
        found = await worker_views.list_workers(visit.context.database, tenant=visit.caller.tenant)
        yield message(fragment("parts.html", "worker_table", visit.caller, workers=found))


async def _looking(visit: Visit, look: Callable[[Visit], Awaitable[str]]) -> AsyncIterator[str]:
    """For pages that look at everything again, every few seconds."""
    async for _ in _gathered(visit, every=False):
        yield message(await look(visit))


def message(data: str, *, event: str = "", identity: str = "") -> str:
    """One server-sent event. A carriage return ends a line too: it must not let a text name fields of its own."""
    lines = [f"event: {event}"] if event else []
    lines += [f"id: {identity}"] if identity else []
    lines += [f"data: {line}" for line in _LINE_END.split(data)]
    return "\n".join(lines) + "\n\n"


def _rows(visit: Visit, changed: list[wire.Execution], states: tuple[str, ...] = ()) -> str:
    """Rows for a table of executions, the newest last: each goes on top unless it is there already.

    One that left the wanted states is only brought up to date where it is shown.
    """
    ordered = sorted(changed, key=lambda e: e.execution_id)
    return fragment("parts.html", "execution_rows", visit.caller, executions=ordered, wanted=states)


async def _while_known(visit: Visit, messages: AsyncIterator[str]) -> AsyncIterator[str]:
    """Ends when the caller is signed out or revoked meanwhile, or when something is out of reach."""
    with contextlib.suppress(MainspringError, *AWAY):
        async for text in messages:
            await visit.context.auth.caller(visit.request)
            yield text


async def _gathered(visit: Visit, *, every: bool = True) -> AsyncIterator[list[wire.Execution]]:
    """What changed, a few times a second at most, the newest kept.

    At first, and whenever nothing is heard for LOOK_S, the list is empty: time for a look at everything. What is
    only queued is seen in this way, and a browser that comes back after a break misses nothing. It listens before
    the first look, so nothing falls between.
    """
    pending: dict[UUID, wire.Execution] = {}
    some = asyncio.Event()

    async def listen() -> None:
        try:
            async for changed in visit.context.live.changes(tenant=visit.caller.tenant):
                pending.update((e.execution_id, e) for e in changed)
                while len(pending) > JOBS_SHOWN:
                    del pending[next(iter(pending))]
                if every and changed:
                    some.set()
        finally:
            some.set()

    listener = asyncio.create_task(listen(), name="web.stream")
    try:
        await asyncio.sleep(0)
        yield []
        while not listener.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(some.wait(), LOOK_S)
            some.clear()
            changed = list(pending.values())
            pending.clear()
            yield changed
            await asyncio.sleep(GATHER_S)
    finally:
        listener.cancel()
