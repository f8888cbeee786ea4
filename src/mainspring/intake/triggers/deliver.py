"""Deliver to a trigger: of equal deliveries one starts an execution, in the transaction that records it."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Invalid, MainspringError, NotFound
from mainspring.domain.job import WorkflowTask
from mainspring.domain.trigger import TriggerSpec
from mainspring.intake.executions import Submission, insert_one
from mainspring.intake.tenant_quotas import start_refusal
from mainspring.intake.triggers.decide import Arrival, Decision, decide, refusal
from mainspring.intake.validate.params import check_params
from mainspring.store import trigger_starts, triggers
from mainspring.store.db import Connection, Database
from mainspring.store.triggers import DeliveryRow, TriggerRow
from mainspring.telemetry import metrics
from mainspring.views import refs
from mainspring.views.triggers import unknown

MAX_BY_CHARS = 200


async def deliver(database: Database, trigger: TriggerRow, arrival: Arrival) -> wire.TriggerAnswer:
    """Record a delivery and start what it leads to. A repeated delivery gets the answer of the first.

    A delivery that started nothing is decided again when it comes again: the trigger may have been corrected.
    """
    decision = paused(trigger) or await decide(trigger.spec, arrival)
    async with database.transaction() as connection:
        found = await triggers.record_delivery(
            connection, tenant=trigger.tenant, trigger_id=trigger.trigger_id, key=arrival.key, event=arrival.event
        )
        if found is None:
            raise unknown(trigger.name)
        row, _ = found
        if row.outcome == "started":
            metrics.TRIGGER_DELIVERIES.labels(trigger.kind, "duplicate").inc()
            return _answer(trigger, arrival.key, row, duplicate=True)
        row = await settle(connection, trigger, row, decision)
    metrics.TRIGGER_DELIVERIES.labels(trigger.kind, row.outcome).inc()
    return _answer(trigger, arrival.key, row)


async def settle(connection: Connection, trigger: TriggerRow, row: DeliveryRow, decision: Decision) -> DeliveryRow:
    """Carry out a decision on a locked delivery, and record it. Needs a transaction."""
    execution_id = None
    if decision.outcome == "started":
        try:
            execution_id = await _start(connection, trigger, row, decision)
        except _Refused as refused:
            decision = refused.decision
    await triggers.decide_delivery(
        connection,
        tenant=trigger.tenant,
        delivery_id=row.delivery_id,
        outcome=decision.outcome,
        reason=decision.reason,
        execution_id=execution_id,
        params=decision.params,
    )
    return DeliveryRow(
        row.delivery_id,
        row.key,
        row.event,
        decision.outcome,
        decision.reason,
        execution_id,
        decision.params,
        row.repeats,
        row.received_at,
    )


async def dry_run(database: Database, trigger: TriggerRow, spec: TriggerSpec, arrival: Arrival) -> wire.TriggerTest:
    """Return what a delivery would lead to; writes nothing."""
    decision = paused(trigger) or await decide(spec, arrival)
    if decision.outcome == "started":
        async with database.connection() as connection:
            try:
                await _job(connection, trigger, decision.params)
            except _Refused as refused:
                decision = refused.decision
    return wire.TriggerTest(outcome=decision.outcome, job=spec.job, params=decision.params, reason=decision.reason)


class _Refused(Exception):
    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason)
        self.decision = decision


async def _start(connection: Connection, trigger: TriggerRow, row: DeliveryRow, decision: Decision) -> UUID:
    job = await _job(connection, trigger, decision.params)
    if (reason := await start_refusal(connection, tenant=trigger.tenant)) is not None:
        raise _Refused(refusal("paused", reason))
    by = f"{trigger_starts.CREATED_BY}{trigger.name}, delivery {row.key}"[:MAX_BY_CHARS]
    # The row of the delivery makes it unique; with the key, the id of the execution is computed from it as well.
    digest = hashlib.sha256(row.key.encode()).hexdigest()[:32]
    submission = Submission(trigger.tenant, by, job.job_id, None, decision.params)
    try:
        execution_id = await insert_one(connection, submission, f"trigger:{trigger.trigger_id}:{digest}")
    except MainspringError as error:
        raise _Refused(refusal("refused", error.message)) from None
    await trigger_starts.record_start(
        connection,
        tenant=trigger.tenant,
        execution_id=execution_id,
        job_id=job.job_id,
        trigger_id=trigger.trigger_id,
        name=trigger.name,
        kind=trigger.kind,
        key=row.key,
        event=row.event,
    )
    return execution_id


async def _job(connection: Connection, trigger: TriggerRow, params: dict[str, Any] | None) -> Any:
    """The job that a delivery starts; raises _Refused if it does not exist, is paused, or does not take the params."""
    name = trigger.spec.job
    try:
        job = await refs.known_job(connection, name, tenant=trigger.tenant)
    except NotFound:
        raise _Refused(refusal("refused", f"there is no job {name!r}")) from None
    if job.deleted_at is not None:
        raise _Refused(refusal("refused", f"the job {name!r} was deleted"))
    if job.paused_at is not None:
        why = f": {job.pause_reason}" if job.pause_reason else ""
        raise _Refused(refusal("paused", f"the job {name!r} is paused{why}"))
    if params and isinstance(job.spec.task, WorkflowTask) and not job.spec.params:
        raise _Refused(refusal("refused", f"the workflow {name!r} has no parameters"))
    try:
        check_params(job.spec, params)
    except Invalid as error:
        raise _Refused(refusal("refused", str(error))) from None
    return job


def paused(trigger: TriggerRow) -> Decision | None:
    """The decision on a delivery to a paused trigger."""
    if trigger.paused_at is None:
        return None
    why = f": {trigger.pause_reason}" if trigger.pause_reason else ""
    return refusal("paused", f"the trigger is paused since {trigger.paused_at:%Y-%m-%d %H:%M} UTC{why}")


def _answer(trigger: TriggerRow, key: str, row: DeliveryRow, *, duplicate: bool = False) -> wire.TriggerAnswer:
    return wire.TriggerAnswer(
        trigger=trigger.name,
        delivery=key,
        outcome=row.outcome,
        execution_id=row.execution_id,
        reason=row.reason,
        duplicate=duplicate,
    )
