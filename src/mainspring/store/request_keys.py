"""Keys of requests that create something, with the responses of the first ones."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The token that sent a key, and a digest of method, path and key."""

    token_id: UUID
    request: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """The digest of the first request with a key, and its response."""

    digest: bytes
    status: int
    headers: dict[str, str]
    body: bytes


async def begin_request(connection: Connection, key: RequestKey, *, tenant: int, digest: bytes) -> Answered | None:
    """Claim a key until the transaction ends, and return None; or return the response of the first request."""
    while not await connection.fetchval(q("begin_request"), tenant, key.token_id, key.request, digest):
        # Another statement: the first one does not see a row that was committed while it waited.
        row = await connection.fetchrow(q("answered_request"), tenant, key.token_id, key.request)
        if row is not None:  # None: retention has deleted it meanwhile
            return Answered(row["digest"], row["status"], row["headers"], row["body"])
    return None


async def answer_request(
    connection: Connection, key: RequestKey, *, tenant: int, status: int, headers: dict[str, str], body: bytes
) -> None:
    await connection.execute(q("answer_request"), tenant, key.token_id, key.request, status, headers, body)
