"""Catch-up at resume: decide the fires of the pause as after an outage of the schedulers."""

from __future__ import annotations

from datetime import datetime

from mainspring.clock import whole_millis
from mainspring.domain.schedule.budget import FIRE_STEPS, REQUEST_STEPS, steps
from mainspring.domain.schedule.misfire import decide
from mainspring.domain.schedule.recurrence import Schedule, count_at_least
from mainspring.domain.schedule.schedule import compile_key
from mainspring.store import catchup, executions, needs, overlaps
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow
from mainspring.store.withdrawn_fires import undecided_of

DECIDED_FIRES = 100
"""The newest fires are decided one by one, as after an outage; older ones are recorded as one range."""
CHAINED_POLICIES = ("queue_one", "queue_all", "cancel_running")


async def catch_up(connection: Connection, row: JobRow, *, upto: datetime) -> None:
    """Decide the pause's fires by misfire and overlap policy. The caller has locked the shard's and the job's row."""
    bounds = undecided_of(row, watermark_ms=0, upto=upto)
    if bounds is None or row.schedule_key is None:
        return
    schedule = compile_key(row.schedule_key)
    with steps(REQUEST_STEPS):
        fires = _newest(schedule, *bounds, most=DECIDED_FIRES)
        if not fires:
            return
        older = count_at_least(schedule, bounds[0], fires[0] - 1, FIRE_STEPS)
        last_ms = schedule.prev_before(fires[0])
    if older:
        assert last_ms is not None
        await executions.skip_undecided(
            connection,
            tenant=row.tenant,
            job_id=row.job_id,
            version=row.version,
            last_ms=last_ms,
            count=older,
            reason="misfire",
        )
    await _decide(connection, row, fires, whole_millis(upto))


async def _decide(connection: Connection, row: JobRow, fires: list[int], now_ms: int) -> None:
    tenant, job_id, overlap = row.tenant, row.job_id, row.spec.overlap_policy
    if overlap == "cancel_running":
        await catchup.lock_executions_of_job(connection, tenant=tenant, job_id=job_id)
    lives, pending = await catchup.liveness_of_job(connection, tenant=tenant, job_id=job_id)
    verdicts = decide(fires, row.spec.misfire, overlap, now_ms=now_ms, lives=lives, pending=pending)
    if skipped := [v for v in verdicts if v.skipped is not None]:
        await catchup.skip_missed(connection, tenant=tenant, job_id=job_id, skipped=skipped)
    if wanted := [v.fire_ms for v in verdicts if v.skipped is None]:
        chained = overlap in CHAINED_POLICIES
        await catchup.insert_missed(connection, tenant=tenant, job_id=job_id, fires=wanted, chained=chained)
        if overlap == "cancel_running":
            await catchup.replace_running_of(connection, tenant=tenant, job_id=job_id)
        if chained:
            await overlaps.release_blocked(connection, job_ids=[row.job_id])
        else:
            await needs.release(connection, children=[row.job_id])


def _newest(schedule: Schedule, after_ms: int, upto_ms: int, *, most: int) -> list[int]:
    """The last `most` instants in (after_ms, upto_ms], oldest first."""
    fires: list[int] = []
    at = schedule.prev_before(upto_ms + 1)
    while at is not None and at > after_ms and len(fires) < most:
        fires.append(at)
        at = schedule.prev_before(at)
    return fires[::-1]
