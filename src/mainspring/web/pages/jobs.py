"""The list of jobs: by health, grouped and sorted, with latest executions and success rate."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.errors import Invalid
from mainspring.domain.filter import JOB_FIELDS, job_filter, spell
from mainspring.domain.metadata import contact_fields
from mainspring.store.db import Database
from mainspring.store.search import JobStats
from mainspring.views import job_health, search
from mainspring.views import jobs as job_views
from mainspring.views.job_health import streak
from mainspring.views.lateness import late_jobs
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.input_error import InputError, locate_error
from mainspring.web.render import page
from mainspring.web.urls import link

JOBS_SHOWN = 50
MAX_SORTED = 200
"""Jobs that are read to be sorted, or grouped by something else than the beginning of their name."""
TABS = (("", "All"), ("failing", "Failing"), ("late", "Late"), ("paused", "Paused"))
SORTS = (("", "Name"), ("health", "Failing first"), ("next", "Next fire"), ("last", "Last run"), ("slow", "Slowest"))
GROUPS = (("", "None"), ("prefix", "Name prefix"), ("owner", "Owner"))
NO_GROUP = "–"
_NEVER = datetime.max.replace(tzinfo=UTC)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JobListView:
    """The part of the list that the address selects."""

    text: str = ""
    tab: str = ""
    sort: str = ""
    group: str = ""
    cursor: str = ""

    @classmethod
    def of(cls, request: PageRequest) -> JobListView:
        tab, sort, group = request.query("tab"), request.query("sort"), request.query("group")
        return cls(
            request.query("q") or spell(name=request.query("prefix")),
            tab if tab in dict(TABS) else "",
            sort if sort in dict(SORTS) else "",
            group if group in dict(GROUPS) or group.startswith("label:") else "",
            request.query("cursor"),
        )

    def address(self, path: str = "/jobs", **changes: str) -> str:
        values = {"q": self.text, "tab": self.tab, "sort": self.sort, "group": self.group, "cursor": self.cursor}
        return link(path, **{**values, **changes})

    @property
    def whole(self) -> bool:
        """Whether many jobs are read at once, instead of one page by name."""
        return self.sort != "" or self.group not in ("", "prefix")


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of jobs in groups, with their statistics of the last 24 hours, or the error in the filter."""

    page: wire.Page[wire.Job]
    stats: dict[UUID, JobStats] = field(default_factory=dict)
    error: InputError | None = None
    groups: list[tuple[str, list[wire.Job]]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


async def jobs(request: PageRequest) -> Response:
    """GET /jobs."""
    view = JobListView.of(request)
    found, tabs = await asyncio.gather(find_jobs(request, view), _tabs(request, view))
    return page(
        "jobs.html",
        request.caller,
        status=422 if found.error else 200,
        view=view,
        found=found,
        jobs=found.page.items,
        tabs=tabs,
        sorts=SORTS,
        group_choices=[*GROUPS, *((f"label:{name}", f"Label {name}") for name in found.labels)],
        fields=JOB_FIELDS,
        most=MAX_SORTED,
        next_page=found.page.next_cursor and view.address(cursor=found.page.next_cursor),
        command=shlex.join(["mainspring", "jobs", "list", *([view.text] if view.text else [])]),
        stream=view.address("/ui/stream", view="jobs"),
    )


async def find_jobs(request: PageRequest, view: JobListView) -> JobList:
    """Return the jobs that match the query of the address."""
    database, tenant = request.context.database, request.caller.tenant
    try:
        found = await _matching(request, view)
    except Invalid as error:
        return JobList(wire.Page(items=[]), error=locate_error(error, view.text, ""))
    ids = [job.job_id for job in found.items]
    stats = await search.stats(database, ids, tenant=tenant)
    ordered = sorted(found.items, key=lambda job: _rank(job, stats.get(job.job_id), view.sort))
    labels = sorted({name for job in found.items for name in labels_of(job)})[:20]
    return JobList(wire.Page(items=ordered, next_cursor=found.next_cursor), stats, None, grouped(ordered, view), labels)


async def _matching(request: PageRequest, view: JobListView) -> wire.Page[wire.Job]:
    database, tenant, cursor = request.context.database, request.caller.tenant, view.cursor or None
    limit = MAX_SORTED if view.whole else JOBS_SHOWN
    if view.tab in ("failing", "late"):
        wanted = await (job_health.failing if view.tab == "failing" else _late)(database, tenant=tenant)
        return wire.Page(items=await search.jobs_among(database, wanted, view.text, tenant=tenant))
    text = f"{view.text} state:paused" if view.tab == "paused" else view.text
    if text:
        return await search.jobs(database, text, tenant=tenant, cursor=cursor, limit=limit)
    return await job_views.list_jobs(database, tenant=tenant, cursor=cursor, limit=limit)


async def _late(database: Database, *, tenant: int) -> list[UUID]:
    return [job.job_id for job in await late_jobs(database, tenant=tenant)]


async def _tabs(request: PageRequest, view: JobListView) -> list[tuple[str, str, int | None, str]]:
    """Return the key, the name, the number of jobs and the address of each tab."""
    database, tenant = request.context.database, request.caller.tenant
    try:
        job_filter(view.text)
    except Invalid:
        view = JobListView()
    counts: dict[str, int | None] = {
        "failing": len(await job_health.failing(database, tenant=tenant)),
        "late": len(await _late(database, tenant=tenant)),
        "paused": (await search.count_jobs(database, "state:paused", tenant=tenant, most=1000))[0],
    }
    return [(key, name, counts.get(key), view.address(tab=key, cursor="")) for key, name in TABS]


def labels_of(job: wire.Job) -> dict[str, str]:
    """The labels of a job's metadata."""
    found = (job.spec.metadata or {}).get("labels")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def grouped(jobs: Sequence[wire.Job], view: JobListView) -> list[tuple[str, list[wire.Job]]]:
    """Return the jobs by group, in the order of the groups' names; one group without a name if there are none."""
    if not view.group:
        return [("", list(jobs))] if jobs else []
    groups: dict[str, list[wire.Job]] = {}
    for job in jobs:
        groups.setdefault(_group(job, view.group), []).append(job)
    return sorted(groups.items(), key=lambda group: (group[0] == NO_GROUP, group[0]))


def _group(job: wire.Job, by: str) -> str:
    if by == "prefix":
        head, separator, _ = job.name.replace(".", "-").replace("_", "-").partition("-")
        return head if separator else NO_GROUP
    if by == "owner":
        return contact_fields(job.spec.metadata).get("owner") or NO_GROUP
    return labels_of(job).get(by.removeprefix("label:")) or NO_GROUP


def _rank(job: wire.Job, stats: JobStats | None, sort: str) -> tuple[object, ...]:
    match sort:
        case "health":
            failing = streak(job.last)
            is_late = any(deadline.state == "missed" for deadline in job.deadlines)
            return (failing is None, not is_late, -failing.count if failing else 0, job.name)
        case "next":
            return (job.next_fire_at or _NEVER, job.name)
        case "last":
            return (-(job.last[0].fire_at if job.last else _LONG_AGO.replace(year=1971)).timestamp(), job.name)
        case "slow":
            return (-(stats.p95 or 0.0) if stats else 0.0, job.name)
    return (job.name,)
