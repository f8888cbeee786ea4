"""The health of jobs: which fail, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.store import search
from mainspring.store.db import Database, database_now_ms

FAILED = frozenset(("failed", "timed_out", "lost"))
ENDED = FAILED | {"succeeded"}
MAX_JOBS = 200
"""Failing jobs that are listed."""
WINDOW_DAYS = 7
LATEST = 20
"""As many executions `wire.Job.last` has at most."""


@dataclass(frozen=True, slots=True)
class Streak:
    """Failures in a row up to now. `since` is the fire of the first one, `exact` false if there may be earlier ones."""

    count: int
    since: datetime
    latest: wire.LastExecution
    exact: bool


def streak(last: Sequence[wire.LastExecution]) -> Streak | None:
    """Return the failures in a row among the latest executions, newest first; None if the latest one succeeded.

    Skipped, cancelled and live executions do not end a streak.
    """
    ended = [e for e in last if e.state in ENDED]
    failed = ended[: next((n for n, e in enumerate(ended) if e.state == "succeeded"), len(ended))]
    if not failed:
        return None
    return Streak(len(failed), failed[-1].fire_at, failed[0], len(failed) < len(ended) or len(last) < LATEST)


async def failing(database: Database, *, tenant: int) -> list[UUID]:
    """Jobs whose latest ended execution failed within the last days, the newest failure first."""
    async with database.connection() as connection:
        now = instant(int(await database_now_ms(connection)))
        since = now - timedelta(days=WINDOW_DAYS)
        return await search.failing_jobs(connection, tenant=tenant, since=since, now=now, most=MAX_JOBS)
