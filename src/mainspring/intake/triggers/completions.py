"""Completions: the end of one execution starts another.

The transaction that settles an execution records it as a pending delivery. The leader decides pending deliveries, each
in a transaction that inserts the execution and marks the delivery: a process that dies at any point leaves it pending
or decided, never in between.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import structlog

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.intake.tenant_quotas import start_refusal
from mainspring.intake.triggers.decide import Arrival, decide, refusal
from mainspring.intake.triggers.deliver import paused, settle
from mainspring.store import executions, triggers
from mainspring.store.db import AWAY, Database
from mainspring.store.triggers import DeliveryRow, TriggerRow
from mainspring.telemetry import metrics

log = structlog.get_logger()

BATCH = 100
NEWEST = 1_000
"""Executions of a job that the sweep looks at."""


async def decide_pending(database: Database) -> int:
    """Decide what pending deliveries start, of all tenants; return how many were decided. Can be repeated."""
    async with database.connection() as connection:
        if await triggers.has_completions(connection):
            await triggers.notice_missed_ends(connection, per_trigger=NEWEST)
    decided, after = 0, 0
    while True:
        async with database.connection() as connection:
            found = await triggers.pending_deliveries(connection, after=after, limit=BATCH)
        for trigger, row in found:
            after = row.delivery_id
            try:
                decided += await _decide_one(database, trigger, row)
            except AWAY:
                raise
            except Exception:  # it stays pending, and must not delay others
                log.exception("trigger.not_decided", trigger=trigger.name, delivery=row.delivery_id)
        if len(found) < BATCH:
            return decided


async def ended_sample(database: Database, sample: wire.TriggerSample, *, tenant: int) -> Arrival:
    """A sample for the dry run of a completion: an execution that has ended, or one that the user describes."""
    if sample.execution_id is None:
        return Arrival("sample", None, {"execution": {} if sample.body is None else sample.body})
    async with database.connection() as connection:
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=sample.execution_id)
    if found is None:
        raise NotFound(f"there is no execution {sample.execution_id}")
    return Arrival("sample", found.state, {"execution": _values(found)})


async def _decide_one(database: Database, trigger: TriggerRow, row: DeliveryRow) -> int:
    async with database.connection() as connection:
        ended = await executions.execution_by_id(connection, tenant=trigger.tenant, execution_id=UUID(row.key))
    decision = paused(trigger)
    if decision is None and ended is None:
        decision = refusal("refused", "the execution is not in the history any more")
    elif decision is None and ended is not None:
        decision = await decide(trigger.spec, Arrival(row.key, row.event, {"execution": _values(ended)}))
    assert decision is not None
    async with database.transaction() as connection:
        if not await triggers.lock_pending(connection, tenant=trigger.tenant, delivery_id=row.delivery_id):
            return 0
        if decision.outcome == "started" and await start_refusal(connection, tenant=trigger.tenant) is not None:
            return 0  # it stays pending until the tenant has room, or is resumed
        done = await settle(connection, trigger, row, decision)
    metrics.TRIGGER_DELIVERIES.labels(trigger.kind, done.outcome).inc()
    return 1


def _values(ended: wire.Execution) -> dict[str, Any]:
    """What conditions and templates can read of an ended execution."""
    return {
        "execution_id": str(ended.execution_id),
        "job": ended.job,
        "state": ended.state,
        "result": ended.result,
        "params": ended.params or {},
        "error": ended.error,
        "exit_code": ended.exit_code,
        "attempt": ended.attempt,
        "fire_at": ended.fire_at.isoformat().replace("+00:00", "Z"),
        "finished_at": None if ended.finished_at is None else ended.finished_at.isoformat().replace("+00:00", "Z"),
    }
