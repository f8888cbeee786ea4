"""Start runs: on request, and those that a schedule, a backfill or another run has queued."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Invalid, NotFound
from mainspring.domain.params import given_problems
from mainspring.intake.executions import Submission, SubmissionAudit, insert_one
from mainspring.intake.runs.transaction import RunTransactions
from mainspring.runs.start import refuse_run, start_runs
from mainspring.store import lines
from mainspring.views.workflows import row_of


async def start(transactions: RunTransactions, ref: str, request: wire.RunRequest, *, tenant: int, by: str) -> wire.Run:
    """Start a run now. The same key returns the same run for a day."""
    row = await row_of(transactions.database, ref, tenant=tenant)
    async with transactions.database.connection() as connection:
        known = await transactions.plans.get(connection, tenant=tenant, job_id=row.job_id, version=row.version)
    if known is None or row.deleted_at is not None:
        raise NotFound(f"there is no workflow {ref!r}")
    problems = given_problems(known.plan.spec.params, frozenset(), request.params or {})
    if problems or (request.params and not known.plan.spec.params):
        first = problems[0].message if problems else "the workflow has no parameters"
        raise Invalid(first, problems=tuple(problems))
    entry = None if request.reason is None else SubmissionAudit.of(row, request.reason)
    submission = Submission(tenant, by, row.job_id, None, request.params, audit=entry)
    async with transactions.begin() as (connection, advanced):
        run_id = await insert_one(connection, submission, request.key)
        if row.spec.concurrency is None:
            await start_runs(connection, transactions.plans, [run_id], advanced=advanced)
    return await transactions.views.get(run_id, tenant=tenant)


async def refuse_due(transactions: RunTransactions, execution_id: UUID, reason: str) -> None:
    """End a queued run that cannot be started as failed."""
    async with transactions.begin() as (connection, advanced):
        await refuse_run(connection, transactions.plans, execution_id, reason, advanced)


async def start_due(transactions: RunTransactions, execution_ids: Sequence[UUID], limit_id: int | None) -> int:
    """Start queued runs, as many as their concurrency key allows; return how many."""
    async with transactions.begin() as (connection, advanced):
        if limit_id is not None:
            (limit,) = await lines.lock_limits(connection, limit_ids=[limit_id])
            taken = (await lines.count_holders(connection, limit_ids=[limit_id]))[limit_id]
            execution_ids = execution_ids[: max(0, limit.most - taken)]
        if execution_ids:
            await start_runs(connection, transactions.plans, execution_ids, advanced=advanced)
    return len(execution_ids)
