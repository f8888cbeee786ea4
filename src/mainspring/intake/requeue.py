"""Requeue executions: run one that has ended again, as a new execution with the same parameters and fire time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.execution import LIVE
from mainspring.intake import replays
from mainspring.intake.executions import Submission, SubmissionAudit, Submitter
from mainspring.intake.granted import check_granted, is_restricted
from mainspring.intake.validate.params import check_params
from mainspring.store.db import Database
from mainspring.views import dead_letters as dead_letter_views
from mainspring.views import executions as execution_views
from mainspring.views import refs

FAILED = ("failed", "timed_out", "lost")


async def requeue(
    database: Database, submitter: Submitter, execution_id: UUID, request: wire.Requeue, *, tenant: int, by: str
) -> UUID:
    """Return the new execution. An open dead letter is replayed, which resolves it; repeating this changes nothing."""
    found = await execution_views.get(database, execution_id, tenant=tenant)
    if found.state in LIVE:
        raise Conflict(f"the execution is {found.state}; only ended executions can be requeued", code="not_final")
    if found.step is not None:
        raise Conflict(
            f"the execution is a step of a run; rerun it with: mainspring runs rerun {found.step.run_id}",
            code="is_step",
        )
    if is_restricted(by):
        check_granted(by, (await refs.job_row(database, str(found.job_id), tenant=tenant)).spec)
    if found.state in FAILED and (replayed := await _replayed(database, found, request, tenant=tenant, by=by)):
        return replayed
    params: dict[str, Any] | None = found.params if isinstance(found.params, dict) else None
    if request.params is not None:
        params = request.params
        check_params((await refs.job_row(database, str(found.job_id), tenant=tenant)).spec, params)
    entry = SubmissionAudit("execution.requeue", found.job, request.reason, subject=execution_id)
    given = Submission(tenant, by, found.job_id, None, params, found.fire_at, entry)
    # The key names the execution that is repeated: a request that is sent twice creates one execution.
    return await submitter.submit_once(given, f"requeue:{execution_id}")


async def _replayed(
    database: Database, found: wire.Execution, request: wire.Requeue, *, tenant: int, by: str
) -> UUID | None:
    """Replay the dead letter of an execution; None if it has none that is open."""
    try:
        letter_id = await dead_letter_views.find(database, str(found.execution_id), tenant=tenant)
        replay = await replays.replay_one(
            database, letter_id, wire.ReplayOne(params=request.params), tenant=tenant, by=by
        )
    except NotFound:
        return None
    except Conflict as error:
        if error.code != "not_open":
            raise
        return None
    return replay.items[0].execution_id
