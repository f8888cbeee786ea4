"""Suggested memory, CPU and timeout of a job, with the evidence."""

from __future__ import annotations

from datetime import timedelta

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.job import TIMEOUT_S
from mainspring.domain.job_size import MeasuredUse, suggest
from mainspring.domain.placement.resources import parse_amounts
from mainspring.domain.statistics import merged, percentile
from mainspring.store import job_usage
from mainspring.store.db import Database, database_now_ms
from mainspring.views.refs import known_job

MEASURED = timedelta(days=14)


async def size(database: Database, ref: str, *, tenant: int) -> wire.JobSize:
    """What the attempts of the last two weeks suggest for a job, beside what it has."""
    async with database.connection() as connection:
        row = await known_job(connection, ref, tenant=tenant)
        since = instant(int(await database_now_ms(connection))) - MEASURED
        used = await job_usage.usage_of_job(connection, tenant=tenant, job_id=row.job_id, since=since.date())
        hours = await job_usage.duration_buckets(connection, tenant=tenant, job_id=row.job_id, since=since)
    durations = merged(hours)
    measured = MeasuredUse() if used is None else MeasuredUse(used.attempts, used.memory_max, used.cores_max)
    found = suggest(measured, durations)
    amounts, timeout = row.spec.resources, row.spec.timeout
    return wire.JobSize(
        job_id=row.job_id,
        job=row.name,
        since_at=since,
        attempts=measured.attempts,
        memory_max=measured.memory_max or None,
        cores_max=measured.cores_max / 1000 if measured.attempts else None,
        cores_mean=used.cpu_ms / used.wall_ms if used is not None and used.wall_ms else None,
        succeeded=sum(durations.values()),
        p50_ms=percentile(durations, 0.5),
        p95_ms=percentile(durations, 0.95),
        longest_ms=percentile(durations, 1.0),
        requested={name: str(value) for name, value in amounts.items()},
        timeout_s=TIMEOUT_S if timeout is None else parse_duration(timeout),
        suggested=wire.SuggestedSize(memory=found.memory, cpu=found.cpu, timeout_s=found.timeout_s),
        too_small=sorted(_too_small(parse_amounts(amounts), measured)),
    )


def _too_small(requested: dict[str, int], used: MeasuredUse) -> list[str]:
    """The resources of which attempts have used more than the job requests."""
    return [
        name
        for name, most in (("memory", used.memory_max), ("cpu", used.cores_max))
        if name in requested and most > requested[name]
    ]
