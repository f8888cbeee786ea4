"""Transactional submissions: clients insert them in their own transactions, the leader turns them into executions.

Function `submit` of the schema writes a row, which exists if and only if the client commits. One transaction here
deletes rows and inserts the executions under the ids that the clients got, so each becomes one execution or, if it
cannot, one audit entry. Params that the job does not accept are no reason to refuse: the attempt fails with the error,
and the dead letter can be edited and replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
import structlog

from mainspring.domain.errors import MainspringError, NotFound
from mainspring.domain.job import WorkflowTask
from mainspring.intake.executions import canonical_digest, with_lines
from mainspring.intake.validate.params import check_params
from mainspring.store import audit, executions
from mainspring.store.db import AWAY, CONFLICTS, Connection, Database
from mainspring.store.definitions import Definitions
from mainspring.store.executions import NewExecution
from mainspring.store.submissions import TransactionalSubmission, take_submissions

log = structlog.get_logger()

BATCH = 500
"""Submissions moved by one transaction."""


async def move_submissions(database: Database, definitions: Definitions) -> int:
    """Turn all committed submissions into executions; return how many."""
    moved = 0
    while True:
        async with database.transaction() as connection:
            taken = await take_submissions(connection, limit=BATCH)
            if taken:
                await _insert_or_reject(connection, definitions, taken)
        moved += len(taken)
        if len(taken) < BATCH:
            return moved


async def _insert_or_reject(
    connection: Connection, definitions: Definitions, taken: Sequence[TransactionalSubmission]
) -> None:
    """Insert all; if that fails, insert one at a time, so that one does not hold up the others."""
    try:
        async with connection.transaction():
            await _insert(connection, definitions, taken)
        return
    except (*AWAY, *CONFLICTS):
        raise
    except Exception as error:
        if len(taken) == 1:
            await _reject(connection, taken[0], error)
            return
    for one in taken:
        await _insert_or_reject(connection, definitions, [one])


async def _insert(connection: Connection, definitions: Definitions, taken: Sequence[TransactionalSubmission]) -> None:
    wanted = []
    for one in taken:
        params = None if one.params is None else msgspec.json.decode(one.params, type=dict[str, Any])
        await _check_workflow(connection, definitions, one, params)
        if one.key is None or await _is_first(connection, one, params):
            wanted.append((one, NewExecution(one.execution_id, one.job_id, "manual", one.due_at, params)))
    by_tenant = sorted(wanted, key=lambda pair: (pair[0].tenant, pair[0].created_by))
    for (tenant, created_by), pairs in groupby(by_tenant, key=lambda pair: (pair[0].tenant, pair[0].created_by)):
        new = await with_lines(connection, [execution for _, execution in pairs], tenant=tenant)
        inserted = await executions.insert_executions(connection, tenant=tenant, new=new, created_by=created_by)
        if len(inserted) < len(new):
            raise NotFound("the job was deleted before the submission was committed")


async def _check_workflow(
    connection: Connection, definitions: Definitions, one: TransactionalSubmission, params: dict[str, Any] | None
) -> None:
    """Refuse a run with wrong params: it has no attempt that could fail."""
    version = (one.job_id, one.version)
    definition = (await definitions.get([version], connection))[version]
    if isinstance(definition.task, WorkflowTask):
        check_params(definition, params)


async def _is_first(connection: Connection, one: TransactionalSubmission, params: dict[str, Any] | None) -> bool:
    """Insert the idempotency key; return whether it is new."""
    assert one.key is not None
    _, _, first = await executions.insert_idempotency_key(
        connection,
        tenant=one.tenant,
        job_id=one.job_id,
        key=one.key,
        execution_id=one.execution_id,
        digest=canonical_digest(one.at, params),
    )
    return first


async def _reject(connection: Connection, one: TransactionalSubmission, error: Exception) -> None:
    reason = str(error) if isinstance(error, MainspringError) else f"internal error: {error!r}"
    log.warning("submission.rejected", job=one.job, execution_id=str(one.execution_id), error=reason)
    await audit.record(
        connection,
        "execution.reject",
        one.execution_id,
        tenant=one.tenant,
        by=one.created_by,
        name=one.job,
        reason=reason[:1000],
    )
