"""The hash chains of the audit log: entries to chain, chained ones, and signed heads.

Each tenant has one; the tenant 0 stands for the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mainspring.domain.audit_chain import GENESIS, Link
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class SignedHead:
    tenant: int
    seq: int
    hash: bytes
    key_id: str
    signature: bytes
    signed_at: datetime


@dataclass(frozen=True, slots=True)
class NewLink:
    audit_id: int
    previous: bytes
    hash: bytes


async def pending_chains(connection: Connection) -> list[int]:
    """Over all tenants: a leader duty."""
    return [r["tenant_id"] for r in await connection.fetch(q("pending_chains"))]


async def lock_chain(connection: Connection, *, tenant: int) -> tuple[int, bytes]:
    """Lock a chain until the end of the transaction; return the number and hash of its last entry."""
    row = await connection.fetchrow(q("lock_chain"), tenant, GENESIS)
    assert row is not None
    return row["seq"], row["hash"]


async def pending_entries(connection: Connection, *, tenant: int, limit: int) -> list[Any]:
    return await connection.fetch(q("pending_entries"), tenant, limit)


async def extend_chain(connection: Connection, *, tenant: int, after: int, links: Sequence[NewLink]) -> bool:
    """Add links behind the entry `after`, if that is still the last one."""
    added = await connection.fetch(
        q("extend_chain"),
        tenant,
        after,
        after + len(links),
        links[-1].hash,
        [link.audit_id for link in links],
        [link.previous for link in links],
        [link.hash for link in links],
    )
    return bool(added)


async def chain_head(connection: Connection, *, tenant: int) -> tuple[int, bytes]:
    row = await connection.fetchrow(q("chain_head"), tenant)
    return (0, GENESIS) if row is None else (row["seq"], row["hash"])


async def chain_hash(connection: Connection, *, tenant: int, seq: int) -> bytes | None:
    found: bytes | None = await connection.fetchval(q("chain_hash"), tenant, seq)
    return found


async def chain_page(connection: Connection, *, tenant: int, after: int, limit: int) -> list[Link]:
    rows = await connection.fetch(q("chain_page"), tenant, after, limit)
    return [
        Link(r["seq"], r["chained_id"], r["previous"], r["hash"], None if r["audit_id"] is None else r) for r in rows
    ]


async def stray_entries(
    connection: Connection, *, tenant: int | None, after: int, limit: int
) -> tuple[int | None, int | None]:
    """Return the last entry that was looked at, None at the end; and the first one that is in no chain."""
    row = await connection.fetchrow(q("stray_entries"), tenant, after, limit)
    assert row is not None
    return row["last"], row["stray"]


async def pending_facts(connection: Connection, *, tenant: int) -> tuple[int, int | None]:
    """Return how many entries are not chained yet, and the first of them that was removed."""
    row = await connection.fetchrow(q("pending_facts"), tenant)
    assert row is not None
    return row["entries"], row["removed"]


async def list_heads(connection: Connection, *, tenant: int) -> list[SignedHead]:
    return [SignedHead(tenant, *r) for r in await connection.fetch(q("list_heads"), tenant)]


async def unsigned_chains(connection: Connection, *, key_id: str, limit: int) -> list[tuple[int, int, bytes]]:
    """Over all tenants: a leader duty."""
    return [(r["tenant_id"], r["seq"], r["hash"]) for r in await connection.fetch(q("unsigned_chains"), key_id, limit)]


async def insert_head(
    connection: Connection, *, tenant: int, seq: int, hashed: bytes, key_id: str, signature: bytes, kept: int
) -> None:
    await connection.execute(q("insert_head"), tenant, seq, hashed, key_id, signature, kept)


async def heads_to_send(connection: Connection, *, every_s: float) -> list[SignedHead]:
    """Over all tenants: a leader duty."""
    return [SignedHead(*r) for r in await connection.fetch(q("heads_to_send"), every_s)]


async def head_sent(connection: Connection, head: SignedHead) -> bool:
    return await connection.fetchval(q("head_sent"), head.tenant, head.seq, head.key_id) is not None
