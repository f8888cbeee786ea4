"""Bytes of output that tenants have written today, and their quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class OutputQuota:
    """A tenant's quota of bytes per day, and what of it is used."""

    most: int
    used: int


async def add_output(connection: Connection, *, stored: Mapping[int, int]) -> dict[int, OutputQuota]:
    """Add bytes to today's output of tenants; return the quota of every tenant that has one. Over all tenants."""
    rows = await connection.fetch(q("add_output"), list(stored.keys()), list(stored.values()))
    return {r["tenant_id"]: OutputQuota(r["most"], r["used"]) for r in rows}


async def output_today(connection: Connection) -> dict[int, int]:
    """Bytes of today's output by tenant. Over all tenants: for cluster administrators."""
    return {r["tenant_id"]: r["bytes"] for r in await connection.fetch(q("output_today"))}
