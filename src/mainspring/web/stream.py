"""Server-sent events for open pages: fragments of the page templates, each replacing the element with its id."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.api.open_streams import LiveResponse
from mainspring.domain.errors import MainspringError, invalid
from mainspring.store.db import AWAY
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.views import logs as log_views
from mainspring.views import refs
from mainspring.views import workers as worker_views
from mainspring.views.runs import parse_run_id
from mainspring.web.draw import terminal_output
from mainspring.web.endpoint import PageRequest
from mainspring.web.pages import execution as execution_page
from mainspring.web.pages import job_chart, queues, runs, system, workers
from mainspring.web.pages.executions import EXECUTIONS_SHOWN
from mainspring.web.pages.job import FIRES_SHOWN
from mainspring.web.pages.jobs import JobListView, find_jobs
from mainspring.web.pages.now import EXECUTIONS_SHOWN as EXECUTIONS_SHOWN_NOW
from mainspring.web.pages.now import NowPage
from mainspring.web.pages.workers import ALIVE, running_by_worker
from mainspring.web.render import HEADERS, fragment, now

BATCH_S = 0.25
"""The shortest time between two messages: readers can't follow more, and browsers can't render it."""
REFRESH_S = 3.0
"""How often a page is refreshed when nothing has changed."""
_LINE_END = re.compile(r"\r\n|\r|\n")
KEEP_ALIVE = ": keep-alive\n\n"


class Stream:
    """GET /ui/stream: `view` names the page."""

    def __init__(self, now: NowPage) -> None:
        self._page = now

    async def __call__(self, request: PageRequest) -> Response:
        match request.query("view"):
            case "now":
                messages = self._now(request)
            case "jobs":
                messages = _jobs(request)
            case "job" | "executions" as view:
                job = request.query("job")
                if job or view == "job":
                    await refs.job_row(request.context.database, job, tenant=request.caller.tenant)
                messages = _executions(request, job, with_fires=view == "job")
            case "execution":
                execution_id = await refs.execution_id(
                    request.context.database, request.query("execution"), tenant=request.caller.tenant
                )
                messages = _execution(request, execution_id)
            case "chart":
                messages = job_chart.watch(request, _changes(request), message)
            case "run":
                messages = runs.watch(request, parse_run_id(request.query("run")), _changes(request), message)
            case "worker":
                messages = workers.watch(request, _changes(request), message)
            case "workers":
                messages = _workers(request)
            case "queues":
                messages = _refreshing(request, queues.queue_tables)
            case "system":
                messages = _refreshing(request, system.shard_tables)
            case _:
                raise invalid(
                    "/view",
                    "unknown view",
                    hint="now, jobs, job, executions, execution, chart, run, workers, worker, queues or system",
                )
        return LiveResponse(request.context.streams, request.caller, _while_authorized(request, messages), HEADERS)

    async def _now(self, request: PageRequest) -> AsyncIterator[str]:
        async for changed in _changes(request):
            text, values = await self._page.fragments(request)
            yield message(text)
            # In a message of their own: a browser drops table rows after other elements.
            if rows := changed or values["seen"].recent[:EXECUTIONS_SHOWN_NOW]:
                yield message(_rows(request, rows))


async def _jobs(request: PageRequest) -> AsyncIterator[str]:
    view = JobListView.of(request)
    async for _ in _changes(request, on_change=False):
        found = await find_jobs(request, view)
        rows = {"jobs": found.page.items, "stats": found.stats, "back": view.address()}
        yield message(fragment("job_rows.html", "job_rows", request.caller, **rows))


async def _executions(request: PageRequest, job: str, *, with_fires: bool) -> AsyncIterator[str]:
    states = tuple(request.http.query_params.getlist("state"))
    async for changed in _changes(request):
        if not changed:
            page = await execution_views.list_executions(
                request.context.database,
                tenant=request.caller.tenant,
                states=states,
                job=job or None,
                limit=EXECUTIONS_SHOWN,
            )
            changed = page.items
        mine = [e for e in changed if job in ("", e.job, str(e.job_id))]
        yield message(_rows(request, mine, states, titled=not with_fires)) if mine else KEEP_ALIVE
        if with_fires:
            yield message(await _fires(request, job))


async def _fires(request: PageRequest, ref: str) -> str:
    database, tenant = request.context.database, request.caller.tenant
    job = await job_views.get(database, ref, tenant=tenant)
    fires = await fire_views.of_job(database, ref, tenant=tenant, count=FIRES_SHOWN)
    return fragment("parts.html", "next_fires", request.caller, job=job, fires=fires)


async def _execution(request: PageRequest, execution_id: UUID) -> AsyncIterator[str]:
    context, tenant = request.context, request.caller.tenant
    place = request.http.headers.get("last-event-id") or request.query("place") or None
    attempt = log_views.parse_place(place)[0]
    shown: wire.Execution | None = None
    complete = False
    async for logs in context.live.output(execution_id, tenant=tenant, place=place):
        found = await execution_views.get(context.database, execution_id, tenant=tenant)
        complete = logs.complete
        parts = ""
        if found != shown:
            shown = found
            parts = await execution_page.fragments(request, found)
        if logs.chunks:
            html = terminal_output.render(logs.chunks, attempt, zone=request.caller.zone, now=now())
            yield message(html, event="log", identity=logs.place)
            attempt = logs.chunks[-1].attempt
        yield message(parts) if parts else KEEP_ALIVE
    if complete:  # otherwise the server is shutting down, and the browser reconnects
        yield message("", event="end")


async def _workers(request: PageRequest) -> AsyncIterator[str]:
    async for _ in _changes(request, on_change=False):
        found = await worker_views.list_workers(request.context.database, tenant=request.caller.tenant)
        running = await running_by_worker(request, [w for w in found if w.state in ALIVE])
        yield message(fragment("worker_parts.html", "worker_table", request.caller, workers=found, running=running))


async def _refreshing(request: PageRequest, render: Callable[[PageRequest], Awaitable[str]]) -> AsyncIterator[str]:
    """Render a page again every few seconds."""
    async for _ in _changes(request, on_change=False):
        yield message(await render(request))


def message(data: str, *, event: str = "", identity: str = "") -> str:
    """Format a server-sent event. A carriage return ends a line too, so that data can't inject fields."""
    lines = [f"event: {event}"] if event else []
    lines += [f"id: {identity}"] if identity else []
    lines += [f"data: {line}" for line in _LINE_END.split(data)]
    return "\n".join(lines) + "\n\n"


def _rows(
    request: PageRequest, changed: list[wire.Execution], states: tuple[str, ...] = (), *, titled: bool = True
) -> str:
    """Render rows of executions, the newest last: the script inserts a new row at the top.

    An execution that has left the wanted states only updates its row, if there is one.
    """
    ordered = sorted(changed, key=lambda e: e.execution_id)
    return fragment("parts.html", "execution_rows", request.caller, executions=ordered, wanted=states, titled=titled)


async def _while_authorized(request: PageRequest, messages: AsyncIterator[str]) -> AsyncIterator[str]:
    """Stop when the caller is signed out or revoked, or when the database is not reachable."""
    with contextlib.suppress(MainspringError, *AWAY):
        async for text in messages:
            await request.context.auth.caller(request.http)
            yield text


async def _changes(request: PageRequest, *, on_change: bool = True) -> AsyncIterator[list[wire.Execution]]:
    """Yield the executions that have changed, every BATCH_S at most; only the newest are kept.

    The list is empty at first and after REFRESH_S without changes: the page reads everything again. That covers
    executions that are only queued, and browsers that reconnect. It listens before the first read, so that no change
    falls between them.
    """
    pending: dict[UUID, wire.Execution] = {}
    any_pending = asyncio.Event()

    async def listen() -> None:
        try:
            async for changed in request.context.live.changes(tenant=request.caller.tenant):
                pending.update((e.execution_id, e) for e in changed)
                while len(pending) > EXECUTIONS_SHOWN:
                    del pending[next(iter(pending))]
                if on_change and changed:
                    any_pending.set()
        finally:
            any_pending.set()

    listener = asyncio.create_task(listen(), name="web.stream")
    try:
        await asyncio.sleep(0)
        yield []
        while not listener.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(any_pending.wait(), REFRESH_S)
            any_pending.clear()
            changed = list(pending.values())
            pending.clear()
            yield changed
            await asyncio.sleep(BATCH_S)
    finally:
        listener.cancel()
