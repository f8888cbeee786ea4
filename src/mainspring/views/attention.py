"""What needs an operator now: failing jobs, approvals, alerts, queues without workers, late jobs, blackouts, pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS
from mainspring.store import alerts, attention, blackouts, charts, jobs, queues, why
from mainspring.store.attention import PausedJob
from mainspring.store.db import Database, database_now_ms
from mainspring.views.approval_messages import approval_messages
from mainspring.views.blackouts import as_blackout
from mainspring.views.lateness import LateJob, late_jobs, served_queues
from mainspring.views.refs import parse_cursor
from mainspring.views.runs import RunViews

FAILED = ("failed", "timed_out", "lost")
MAX_FAILING_JOBS = 200
MAX_LIVE_RUNS = 500
MAX_SHOWN = 20
DEADLINE_RULES = ("finish_by_missed", "max_gap_missed")
STREAK_KNOWN = 20
"""The latest executions of a job that are looked at."""


@dataclass(frozen=True, slots=True)
class FailingJob:
    """A job whose latest execution failed and waits for a decision. `streak` failures in a row, since `since_at`."""

    job_id: UUID
    job: str
    dead_letter_id: UUID
    error: str
    streak: int
    since_at: datetime
    last_at: datetime
    claimed_by: str | None = None

    @property
    def streak_text(self) -> str:
        return f"{self.streak}{'+' if self.streak >= STREAK_KNOWN else ''} in a row"


@dataclass(frozen=True, slots=True)
class PendingApproval:
    run_id: UUID
    workflow: str
    step: str
    message: str
    since_at: datetime
    job_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class UnservedQueue:
    """A queue with waiting executions that no live worker serves."""

    queue: str
    oldest_at: datetime


@dataclass(frozen=True, slots=True)
class Attention:
    """Lists are cut at MAX_SHOWN. Blackouts and pauses are decisions: they inform, and need no action."""

    failing: Sequence[FailingJob] = ()
    approvals: Sequence[PendingApproval] = ()
    alerts: Sequence[wire.Alert] = ()
    unserved: Sequence[UnservedQueue] = ()
    late: Sequence[LateJob] = ()
    blackouts: Sequence[wire.Blackout] = ()
    paused_jobs: Sequence[PausedJob] = ()
    paused_queues: Sequence[str] = ()
    oldest_at: datetime | None = field(default=None, compare=False)

    @property
    def count(self) -> int:
        """How many things need a person: a job counts once, and with its queue if that has no workers."""
        return sum(map(len, (self.failing, self.approvals, self.other_alerts, self.unserved, self.late_alone)))

    @property
    def late_alone(self) -> list[LateJob]:
        """Late jobs that do not fail as well, and that a worker could start."""
        unserved = {queue.queue for queue in self.unserved}
        failing = {job.job_id for job in self.failing}
        return [job for job in self.late if job.queue not in unserved and job.job_id not in failing]

    def late_job(self, job_id: UUID) -> LateJob | None:
        return next((job for job in self.late if job.job_id == job_id), None)

    @property
    def other_alerts(self) -> list[wire.Alert]:
        """Alerts that do not repeat what the row of a late job says."""
        late = {job.job for job in self.late}
        return [alert for alert in self.alerts if alert.rule not in DEADLINE_RULES or alert.key not in late]

    def deadline_alerts(self, job: str) -> list[wire.Alert]:
        return [alert for alert in self.alerts if alert.rule in DEADLINE_RULES and alert.key == job]

    def late_in(self, queue: str) -> list[LateJob]:
        return [job for job in self.late if job.queue == queue]

    @property
    def everything_until(self) -> datetime | None:
        """The end of a blackout over all jobs; None without one."""
        ends = [b.holds_until for b in self.blackouts if b.queue is None and b.job is None and b.holds_until]
        return max(ends, default=None)


async def attention_now(database: Database, runs: RunViews, *, tenant: int, paused: bool = True) -> Attention:
    """Everything that needs an operator. `paused`: whether the tenant has paused jobs."""
    async with database.connection() as connection:
        newest = parse_cursor(None)
        firing = await alerts.list_alerts(connection, tenant=tenant, before=newest, limit=MAX_SHOWN, state="firing")
        now_ms = int(await database_now_ms(connection))
        windows = await blackouts.active_blackouts(connection, tenant=tenant, limit=MAX_BLACKOUTS)
        settings = await queues.queue_settings(connection, tenant=tenant)
        stopped = await attention.paused_jobs(connection, tenant=tenant, limit=MAX_SHOWN) if paused else []
        heads = await attention.line_heads(connection, tenant=tenant, limit=MAX_SHOWN)
        serving = await why.live_sessions(connection, tenant=tenant) if heads else []
    held = [b for b in (as_blackout(row, now_ms) for row in windows) if b.holds_until is not None]
    served = served_queues(serving, settings)
    unserved: dict[str, UnservedQueue] = {}
    for head in heads:
        if head.queue not in served:
            unserved.setdefault(head.queue, UnservedQueue(head.queue, head.queued_at))
    return Attention(
        failing=await failing_jobs(database, tenant=tenant),
        approvals=await pending_approvals(database, runs, tenant=tenant),
        alerts=firing,
        unserved=list(unserved.values()),
        late=await late_jobs(database, tenant=tenant),
        blackouts=held,
        paused_jobs=stopped,
        paused_queues=[name for name, queue in settings.items() if queue.paused],
        oldest_at=heads[0].queued_at if heads else None,
    )


async def failing_jobs(database: Database, *, tenant: int) -> list[FailingJob]:
    """Active jobs whose latest execution failed and has an open dead letter, the most recent first."""
    async with database.connection() as connection:
        wanted = await attention.failing_candidates(connection, tenant=tenant, limit=MAX_FAILING_JOBS)
        if not wanted:
            return []
        now_ms = int(await database_now_ms(connection))
        last = await jobs.last_executions(connection, tenant=tenant, job_ids=wanted, now=instant(now_ms))
        streaks = {found[0].execution_id: found for rows in last.values() if (found := _streak(rows))}
        letters = await attention.open_letters(connection, tenant=tenant, ids=list(streaks))
    failing = [_failing(letter, streaks[letter.dead_letter_id]) for letter in letters]
    return sorted(failing, key=lambda job: job.last_at, reverse=True)[:MAX_SHOWN]


def _streak(rows: Sequence[wire.LastExecution]) -> list[wire.LastExecution]:
    """The latest failures in a row, newest first; those that never ran count neither way."""
    found = []
    for row in rows:
        if row.state in FAILED:
            found.append(row)
        elif row.state == "succeeded":
            break
    return found


def _failing(letter: attention.OpenLetter, streak: Sequence[wire.LastExecution]) -> FailingJob:
    step = (letter.step or "").removeprefix(f"{letter.job}.")
    since = streak[-1].finished_at or streak[-1].fire_at
    return FailingJob(
        letter.job_id,
        f"{letter.job} / {step}" if step not in ("", letter.job) else letter.job,
        letter.dead_letter_id,
        (letter.reason or letter.error or letter.ended_as).strip().partition("\n")[0],
        len(streak),
        since,
        letter.created_at,
        letter.claimed_by if letter.claimed_until and letter.claimed_until > letter.created_at else None,
    )


async def pending_approvals(database: Database, runs: RunViews, *, tenant: int) -> list[PendingApproval]:
    """Approvals that live runs wait for, the longest wait first."""
    found: list[PendingApproval] = []
    async with database.connection() as connection:
        rows = {r["run_id"]: r for r in await attention.live_runs(connection, tenant=tenant, limit=MAX_LIVE_RUNS)}
        wanted: list[tuple[UUID, int]] = []
        for run_id, row in rows.items():
            known = await runs.plan_of(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            wanted += [(run_id, s.number) for s in known.plan.steps if s.spec.approval is not None]
        cells = await charts.steps_of_runs(connection, tenant=tenant, wanted=wanted) if wanted else []
        waiting = sorted(
            (c for c in cells if c.state == "waiting" and c.released_at is not None), key=lambda c: c.released_at or 0
        )
        for cell in waiting[:MAX_SHOWN]:
            row = rows[cell.run_id]
            known = await runs.plan_of(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            messages = await approval_messages(connection, known, row, [cell.step])
            assert cell.released_at is not None
            name = known.plan.steps[cell.step].name
            message = messages.get(cell.step, "")
            found.append(
                PendingApproval(
                    cell.run_id, row["name"], name, message, cell.released_at, row["job_id"], row["version"]
                )
            )
    return found
