"""Applied manifests: what each object's manifest said when it was last applied, and by which owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection, json_array
from mainspring.store.queries import q

Key = tuple[str, str]
"""Kind and name."""


@dataclass(frozen=True, slots=True)
class AppliedMark:
    """Who applied an object last, a digest of what was applied, and the job version that resulted."""

    owner: str
    digest: bytes
    object_id: UUID | None
    version: int | None


@dataclass(frozen=True, slots=True)
class AppliedRow:
    """What to record of one object."""

    key: Key
    content: dict[str, Any]
    digest: bytes
    object_id: UUID | None
    version: int | None


async def applied_marks(connection: Connection, *, tenant: int, keys: Sequence[Key]) -> dict[Key, AppliedMark]:
    rows = await connection.fetch(q("applied_marks"), tenant, [k for k, _ in keys], [n for _, n in keys])
    return {(r["kind"], r["name"]): AppliedMark(r["owner"], r["digest"], r["object_id"], r["version"]) for r in rows}


async def applied_contents(connection: Connection, *, tenant: int, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    rows = await connection.fetch(q("applied_contents"), tenant, [k for k, _ in keys], [n for _, n in keys])
    return {(r["kind"], r["name"]): r["content"] for r in rows}


async def owned_manifests(connection: Connection, *, tenant: int, owner: str, limit: int) -> dict[Key, UUID | None]:
    rows = await connection.fetch(q("owned_manifests"), tenant, owner, limit)
    return {(r["kind"], r["name"]): r["object_id"] for r in rows}


async def applied_names(connection: Connection, *, tenant: int, kind: str) -> dict[UUID, str]:
    return {r["object_id"]: r["name"] for r in await connection.fetch(q("applied_names"), tenant, kind)}


async def write_applied(
    connection: Connection, *, tenant: int, owner: str, by: str, take_over: bool, rows: Sequence[AppliedRow]
) -> set[Key]:
    """Record what was applied; return the keys that were written: not those of another owner."""
    found = await connection.fetch(
        q("write_applied"),
        tenant,
        owner,
        take_over,
        by,
        [row.key[0] for row in rows],
        [row.key[1] for row in rows],
        json_array(row.content for row in rows),
        [row.digest for row in rows],
        [row.object_id for row in rows],
        [row.version for row in rows],
    )
    return {(r["kind"], r["name"]) for r in found}


async def forget_applied(connection: Connection, *, tenant: int, owner: str, keys: Sequence[Key]) -> None:
    await connection.execute(q("forget_applied"), tenant, owner, [k for k, _ in keys], [n for _, n in keys])
