"""Route that issues tokens for workers."""

from __future__ import annotations

from datetime import timedelta

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.api.route import Call, Table
from mainspring.api.tokens import seconds_of
from mainspring.clock import instant
from mainspring.domain.grants import ANY, WorkerGrants
from mainspring.store.db import database_now_ms

table = Table()


@table.route(
    "POST",
    "/api/v1/worker-tokens",
    scope="admin",
    body=wire.NewWorkerToken,
    response=wire.WorkerToken,
    status=201,
    creates=True,
)
async def create(call: Call) -> wire.WorkerToken:
    """Issue a token for workers, bound to queues, labels and task kinds."""
    body: wire.NewWorkerToken = call.body
    grants = WorkerGrants(tuple(body.queues), tuple(body.labels), tuple(body.kinds) or (ANY,))
    async with call.context.database.transaction() as connection:
        expires_at = None
        if body.expires_in is not None:
            expires_at = instant(await database_now_ms(connection)) + timedelta(
                seconds=seconds_of(body.expires_in, "/expires_in")
            )
        token = await issue_token(
            connection,
            tenant=call.tenant,
            name=body.name,
            scopes=("worker",),
            expires_at=expires_at,
            by=call.caller.name,
            grants=grants,
        )
    return wire.WorkerToken(
        name=body.name,
        token=token,
        queues=body.queues,
        labels=body.labels,
        kinds=list(grants.kinds),
        expires_at=expires_at,
    )
