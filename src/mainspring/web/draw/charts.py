"""How long the executions of a job took and how late they started: a picture of the last ones, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from starlette.responses import HTMLResponse, Response

from mainspring import wire
from mainspring.store.db import Database
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from mainspring.web.access import Visit
from mainspring.web.draw.labels import Look, look
from mainspring.web.render import HEADERS, fragment, page

SHOWN = 200
WIDTH, HEIGHT = 1000, 160
LOOK_S = 3.0
FEW = 5
"""Of fewer there is a median, but the rest would be one of them by another name."""


@dataclass(frozen=True, slots=True)
class Dot:
    execution_id: UUID
    fire_at: datetime
    look: Look
    value_ms: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Figure:
    """Values of executions from the oldest to the newest. `lines`: name, value and height of some percentiles."""

    dots: list[Dot]
    most_ms: int
    lines: list[tuple[str, int, float]]


@dataclass(frozen=True, slots=True)
class Charts:
    took: Figure
    late: Figure
    ended: int
    succeeded: int


async def chart(visit: Visit) -> Response:
    """GET /jobs/{ref}/chart: a page, or with `part` only the picture, to be put into another."""
    job = await job_views.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    found = await charts(visit.context.database, str(job.job_id), tenant=visit.caller.tenant)
    if visit.query("part"):
        return HTMLResponse(fragment("charts.html", "charts", visit.caller, found=found), 200, HEADERS)
    return page("chart.html", visit.caller, job=job, found=found)


async def watch(
    visit: Visit, heard: AsyncIterator[list[wire.Execution]], message: Callable[..., str]
) -> AsyncIterator[str]:
    job = await refs.job_row(visit.context.database, visit.query("job"), tenant=visit.caller.tenant)
    told, looked = "", 0.0
    loop = asyncio.get_running_loop()
    async for changed in heard:
        # Where very much happens, what concerns this job may have been dropped on the way: then time brings it.
        if loop.time() - looked < LOOK_S and changed and not any(e.job_id == job.job_id for e in changed):
            continue
        looked = loop.time()
        found = await charts(visit.context.database, str(job.job_id), tenant=visit.caller.tenant)
        text = fragment("charts.html", "charts", visit.caller, found=found)
        if text != told:
            told = text
            yield message(text)


async def charts(database: Database, job: str, *, tenant: int) -> Charts:
    """Of the last executions of a job that have ended."""
    listed = await execution_views.list_executions(database, tenant=tenant, job=job, limit=SHOWN)
    return of(listed.items)


def of(newest: Sequence[wire.Execution]) -> Charts:
    ended = [e for e in reversed(newest) if e.finished_at is not None and e.state != "skipped"]
    took = [(e, e.duration_ms) for e in ended if e.duration_ms is not None]
    late = [(e, e.late_ms) for e in ended if e.late_ms is not None and e.attempt == 1]
    return Charts(_figure(took), _figure(late), len(ended), sum(e.state == "succeeded" for e in ended))


def _figure(values: Sequence[tuple[wire.Execution, int]]) -> Figure:
    ordered = sorted(value for _, value in values)
    most = max(1, *ordered) if ordered else 1
    step = WIDTH / max(1, len(values))

    def height(value: int) -> float:
        return round(HEIGHT * (1 - value / most), 1)

    dots = [
        Dot(e.execution_id, e.fire_at, look(e), value, round(step * (n + 0.5), 1), height(value))
        for n, (e, value) in enumerate(values)
    ]
    shares = ((50, "p50"), (95, "p95"), (99, "p99")) if len(ordered) >= FEW else ((50, "p50"),) if ordered else ()
    lines = [(name, _percentile(ordered, share)) for share, name in shares]
    return Figure(dots, most, [(name, value, height(value)) for name, value in lines])


def _percentile(ordered: Sequence[int], share: int) -> int:
    """The smallest value that so many percent of them do not exceed."""
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]
