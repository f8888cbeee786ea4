"""Late jobs, by the one definition that every page uses.

An execution is late if it waits longer than its job's own limits (overlap, concurrency, rate) explain. A job is late
while such an execution waits, or while it misses a deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.queue import QueueSettings
from mainspring.domain.schedule.deadline import DeadlineStatus
from mainspring.store import deadlines, queues, search, why
from mainspring.store.db import Database, database_now_ms
from mainspring.store.jobs import JobRow
from mainspring.store.search import OverdueJob
from mainspring.store.why import LiveWorker
from mainspring.views import why_execution

LATE_AFTER = timedelta(seconds=10)
"""An execution that has waited in a queue longer than this needs an explanation."""
MAX_JOBS = 200
MAX_EXPLAINED = 6
"""Lines whose reason is looked up; all executions of a line have the same one."""
OWN_LIMITS = ("limit", "rate", "overlap", "making_room", "preempted", "queue_paused")
"""Reasons to wait that an operator, or the job's own definition, has decided."""
NO_WORKER_FITS = ("no_worker", "no_fit", "no_function", "min_isolation")
"""Reasons that make any execution late. Without one of them, a backlog of submissions is not: only fires are."""


@dataclass(frozen=True, slots=True)
class LateJob:
    """A job that should have started, or succeeded, and why it has not. `execution_id`: of the one that waits."""

    job_id: UUID
    job: str
    execution_id: UUID | None
    due_at: datetime | None
    reason: str
    code: str
    queue: str = ""
    """Where an execution waits."""

    @property
    def path(self) -> str:
        return f"/executions/{self.execution_id}" if self.execution_id else f"/jobs/{self.job_id}"


async def late_jobs(database: Database, *, tenant: int) -> list[LateJob]:
    """Jobs that miss a deadline now, then those with an execution that waits for more than the job's own limits."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        missed = await deadlines.missed(connection, tenant=tenant, now_ms=now_ms)
        overdue = await search.overdue_jobs(connection, tenant=tenant, after=LATE_AFTER, most=MAX_JOBS)
        serving = await why.live_sessions(connection, tenant=tenant) if overdue else []
        settings = await queues.queue_settings(connection, tenant=tenant) if overdue else {}
    found = {row.job_id: _missed(row, status) for row, status in missed}
    for job in await _waiting(database, overdue, served_queues(serving, settings), tenant=tenant):
        found.setdefault(job.job_id, job)
    return list(found.values())[:MAX_JOBS]


def served_queues(serving: Sequence[LiveWorker], settings: dict[str, QueueSettings]) -> set[str]:
    """The queues that active workers serve, or may help."""
    served = {queue for worker in serving if worker.state == "active" for queue in worker.queues}
    return served | {other for name in served if name in settings for other in settings[name].may_help}


def _missed(row: JobRow, status: DeadlineStatus) -> LateJob:
    known_ms = status.at_ms if status.kind == "finish_by" else None  # a missed max_gap is not dated here
    due_at = None if known_ms is None else instant(known_ms)
    words = f"it has not succeeded by its deadline ({status.kind})"
    return LateJob(row.job_id, row.name, None, due_at, words, "missed")


async def _waiting(
    database: Database, overdue: Sequence[OverdueJob], served: set[str], *, tenant: int
) -> list[LateJob]:
    reasons: dict[int, wire.Reason | None] = {}
    found = []
    for job in overdue:
        if job.queue not in served:
            words = f"no worker serves the queue {job.queue}"
            found.append(LateJob(job.job_id, job.job, job.execution_id, job.due_at, words, "no_worker", job.queue))
            continue
        if job.line_id not in reasons:
            if len(reasons) == MAX_EXPLAINED:
                continue
            first = (await why_execution.execution(database, job.execution_id, tenant=tenant)).reasons
            reasons[job.line_id] = first[0] if first else None
        reason = reasons[job.line_id]
        if reason is None or reason.code in (*OWN_LIMITS, "running", "ended"):
            continue
        if job.trigger == "fire" or reason.code in NO_WORKER_FITS:
            found.append(LateJob(job.job_id, job.job, job.execution_id, job.due_at, reason.message, reason.code))
    return found
