"""The owner of the database changes the audit log in every way; verification names the first bad entry and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from mainspring import wire
from mainspring.domain.audit_chain import CLUSTER, content, hash_of
from mainspring.duties.audit_chain import chain_pending, sign_heads
from mainspring.store import audit, audit_chain
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection, Database, JoinedDatabase
from mainspring.store.migrate import migrations
from mainspring.vault.keyring import Keyring, new_key_line, read_keys
from mainspring.vault.vault import Vault
from mainspring.views import audit_verification

pytestmark = pytest.mark.anyio

TENANT, OTHER = 1, 2
KEYS = read_keys(f"{new_key_line('first')}\n{new_key_line('second')}", "test")
VAULT = Vault(Keyring({"first": KEYS["first"]}))
VALUES = ["ä\u2028\x7f", 0.1, 2**60, None, [1, {"b": 1, "a": 2}]]
Tamper = Callable[[Connection], Awaitable[Any]]


async def record(database: Database, count: int, *, tenant: int = TENANT) -> None:
    for n in range(count):
        async with database.transaction() as connection:
            await audit.record(connection, "job.pause", f"job-{n}", tenant=tenant, by="ann", reason="r", n=n, v=VALUES)


async def verified(
    database: Database, *, tenant: int = TENANT, vault: Vault = VAULT, **more: Any
) -> wire.AuditVerification:
    """Every part, until a problem is found."""
    cursor, total = None, 0
    while True:
        found = await audit_verification.verify(database, vault, tenant=tenant, cursor=cursor, **more)
        total += found.verified
        if found.next_cursor is None:
            return msgspec.structs.replace(found, verified=total)
        cursor = found.next_cursor


@pytest.fixture
async def empty(database: Database) -> AsyncIterator[Database]:
    """The module's database inside a transaction that is rolled back."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield JoinedDatabase(connection, database)
        await transaction.rollback()


@pytest.fixture
async def log(empty: Database) -> Database:
    """Ten signed entries of a tenant, and three of another."""
    await record(empty, 10)
    await record(empty, 3, tenant=OTHER)
    assert await chain_pending(empty) == 13
    assert await sign_heads(empty, VAULT) == 2
    return empty


async def as_owner(database: Database, tamper: Tamper) -> None:
    """What the owner of the database can do: switch off the triggers."""
    async with database.transaction() as connection:
        for table in ("audit", "audit_chain"):
            await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        await tamper(connection)
        for table in ("audit", "audit_chain"):
            await connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def sql(*statements: str) -> Tamper:
    async def tamper(connection: Connection) -> None:
        for statement in statements:
            await connection.execute(statement)

    return tamper


def entry(seq: int, tenant: int = TENANT) -> str:
    return f"(SELECT audit_id FROM audit_chain WHERE tenant_id = {tenant} AND seq = {seq})"


async def rewrite(connection: Connection, after: int) -> None:
    """Compute all hashes behind an entry again, as somebody who knows this code would."""
    hashed = await audit_chain.chain_hash(connection, tenant=TENANT, seq=after) or bytes(32)
    for link in await audit_chain.chain_page(connection, tenant=TENANT, after=after, limit=1000):
        assert link.entry is not None
        previous, hashed = hashed, hash_of(content(link.entry, tenant=TENANT, seq=link.seq, previous=hashed))
        await connection.execute(
            "UPDATE audit_chain SET previous = $2, hash = $3 WHERE tenant_id = 1 AND seq = $1",
            link.seq,
            previous,
            hashed,
        )
    await connection.execute("UPDATE audit_chains SET hash = $1 WHERE tenant_id = 1", hashed)


async def changed_and_rewritten(connection: Connection) -> None:
    await connection.execute(f"UPDATE audit SET reason = 'another' WHERE audit_id = {entry(4)}")
    await rewrite(connection, 3)


async def removed_and_renumbered(connection: Connection) -> None:
    await connection.execute(f"DELETE FROM audit WHERE audit_id = {entry(4)}")
    await connection.execute("DELETE FROM audit_chain WHERE tenant_id = 1 AND seq = 4")
    await connection.execute("UPDATE audit_chain SET seq = seq - 1 WHERE tenant_id = 1 AND seq > 4")
    await connection.execute("UPDATE audit_chains SET seq = seq - 1 WHERE tenant_id = 1")
    await rewrite(connection, 3)


async def inserted_between(connection: Connection) -> None:
    """A forged entry that fits the one before it."""
    made = await connection.fetchrow(
        "INSERT INTO audit (tenant_id, actor, action, subject) VALUES (1, 'ben', 'job.delete', 'x') RETURNING *"
    )
    for seq in range(10, 4, -1):
        await connection.execute("UPDATE audit_chain SET seq = seq + 1 WHERE tenant_id = 1 AND seq = $1", seq)
    before = await audit_chain.chain_hash(connection, tenant=TENANT, seq=4)
    assert made is not None and before is not None
    forged = hash_of(content(made, tenant=TENANT, seq=5, previous=before))
    await connection.execute("INSERT INTO audit_chain VALUES (1, 5, $1, $2, $3)", made["audit_id"], before, forged)
    await connection.execute("UPDATE audit_chains SET seq = 11 WHERE tenant_id = 1")


SWAP = "UPDATE audit_chain SET seq = CASE seq WHEN 4 THEN 1004 ELSE 1005 END WHERE tenant_id = 1 AND seq IN (4, 5)"
SWAP_BACK = "UPDATE audit_chain SET seq = 1009 - seq WHERE tenant_id = 1 AND seq > 1000"
CUT = (
    f"DELETE FROM audit WHERE audit_id IN ({entry(9)}, {entry(10)})",
    "DELETE FROM audit_chain WHERE tenant_id = 1 AND seq > 8",
)
SHORTER = (
    "UPDATE audit_chains SET seq = 8, hash = (SELECT hash FROM audit_chain WHERE tenant_id = 1 AND seq = 8)"
    " WHERE tenant_id = 1"
)
TABLE: dict[str, tuple[Tamper, str, int]] = {
    "an entry is changed": (sql(f"UPDATE audit SET actor = 'ben' WHERE audit_id = {entry(4)}"), "changed", 4),
    "its details are": (
        sql(f"UPDATE audit SET details = details || '{{\"n\": 7}}' WHERE audit_id = {entry(4)}"), "changed", 4
    ),
    "its time is": (sql(f"UPDATE audit SET at = at + interval '1 us' WHERE audit_id = {entry(1)}"), "changed", 1),
    "its source is": (sql(f"UPDATE audit SET source = '192.0.2.1' WHERE audit_id = {entry(10)}"), "changed", 10),
    "its hash is": (sql("UPDATE audit_chain SET hash = sha256('x') WHERE tenant_id = 1 AND seq = 4"), "changed", 4),
    "an entry is removed": (sql(f"DELETE FROM audit WHERE audit_id = {entry(4)}"), "removed", 4),
    "with its link": (
        sql(
            f"DELETE FROM audit WHERE audit_id = {entry(4)}",
            "DELETE FROM audit_chain WHERE tenant_id = 1 AND seq = 4",
        ),
        "removed",
        4,
    ),
    "the first is removed": (sql("DELETE FROM audit_chain WHERE tenant_id = 1 AND seq = 1"), "removed", 1),
    "removed and hashed again": (removed_and_renumbered, "truncated", 10),
    "an entry is inserted into the chain": (inserted_between, "inserted", 5),
    "an entry is inserted beside the chain": (
        sql("INSERT INTO audit (tenant_id, actor, action, subject) VALUES (1, 'ben', 'job.delete', 'x')"), "inserted", 0
    ),
    "two entries are swapped": (sql(SWAP, SWAP_BACK), "reordered", 4),
    "their contents are": (
        sql(
            f"UPDATE audit a SET subject = b.subject FROM audit b WHERE a.audit_id = {entry(4)}"
            f" AND b.audit_id = {entry(5)}"
        ),
        "changed",
        4,
    ),
    "the end is cut off": (sql(*CUT), "truncated", 10),
    "with its record": (
        sql(*CUT, SHORTER),
        "truncated",
        10,
    ),
    "everything is": (
        sql(*(f"DELETE FROM {table} WHERE tenant_id = 1" for table in ("audit_chain", "audit_chains", "audit"))),
        "truncated",
        10,
    ),
    "all hashes are computed again": (changed_and_rewritten, "rewritten", 10),
    "a head is forged": (sql("UPDATE audit_heads SET signature = sha512('x') WHERE tenant_id = 1"), "forged_head", 10),
    "a head is moved to a new hash": (
        sql("UPDATE audit_heads SET hash = sha256('x') WHERE tenant_id = 1"), "forged_head", 10
    ),
    "a head of another chain is copied": (
        sql("INSERT INTO audit_heads SELECT 1, seq, hash, key_id, signature FROM audit_heads WHERE tenant_id = 2"),
        "forged_head",
        3,
    ),
    "an entry is moved to another tenant": (
        sql(f"UPDATE audit SET tenant_id = 2 WHERE audit_id = {entry(4)}"), "wrong_tenant", 4
    ),
    "an entry of another tenant is moved here": (
        sql(f"UPDATE audit SET tenant_id = 1 WHERE audit_id = {entry(2, OTHER)}"), "inserted", 0
    ),
}  # fmt: skip


@pytest.mark.requirement(135)
@pytest.mark.parametrize("case", TABLE)
async def test_every_tampering_is_found_and_named(log: Database, case: str) -> None:
    tamper, kind, seq = TABLE[case]
    before = await verified(log)
    assert before.intact and (before.verified, before.entries, before.signed_entries) == (10, 10, 10)
    await as_owner(log, tamper)
    found = await verified(log)
    assert found.problem is not None, "not found"
    assert (found.problem.kind, found.problem.seq) == (kind, seq), found.problem.what
    assert not found.intact and found.problem.what


async def test_an_entry_that_is_moved_is_found_on_the_other_side_too(log: Database) -> None:
    await as_owner(log, sql(f"UPDATE audit SET tenant_id = 2 WHERE audit_id = {entry(4)}"))
    found = await verified(log, tenant=OTHER)
    assert found.problem is not None and found.problem.kind == "inserted"


async def test_a_removed_entry_that_was_not_chained_is_found(log: Database) -> None:
    await record(log, 1)
    assert (await verified(log)).unchained == 1
    await as_owner(log, sql("DELETE FROM audit WHERE audit_id = (SELECT max(audit_id) FROM audit)"))
    found = await verified(log)
    assert (
        found.problem is not None and found.problem.kind == "removed" and "before it was chained" in found.problem.what
    )


async def test_a_witness_has_what_was_cut_off_with_every_trace(log: Database) -> None:
    head = await verified(log)
    witnessed = f"{head.entries}:{head.hash}"
    assert (await verified(log, witnessed=witnessed)).intact
    await as_owner(log, sql(*CUT, SHORTER, "DELETE FROM audit_heads WHERE tenant_id = 1"))
    assert (await verified(log)).intact, "what no signature and no witness covers can be cut off"
    found = await verified(log, witnessed=witnessed)
    assert found.problem is not None and found.problem.kind == "truncated"


async def test_a_long_chain_is_verified_in_parts(log: Database) -> None:
    first = await audit_verification.verify(log, VAULT, tenant=TENANT, most=4)
    assert (first.verified, first.next_cursor) == (4, "entry:4")
    assert (await verified(log, most=4)).verified == 10
    await as_owner(log, sql(f"UPDATE audit SET actor = 'ben' WHERE audit_id = {entry(9)}"))
    found = await verified(log, most=4)
    assert found.problem is not None and found.problem.seq == 9


async def test_concurrent_writers_and_chainers_make_one_chain_without_gaps(fresh: Database) -> None:
    async def write(n: int) -> None:
        async with fresh.transaction() as connection:
            subjects = [AuditSubject(f"{n}-{m}") for m in range(3)]
            await audit.record_all(connection, "job.pause", subjects, tenant=TENANT, by="ann")
            await asyncio.sleep(0)

    async def chain() -> None:
        for _ in range(10):
            await chain_pending(fresh)

    await asyncio.gather(*(write(n) for n in range(60)), *(chain() for _ in range(3)))
    await chain_pending(fresh)
    found = await verified(fresh)
    assert found.intact and (found.verified, found.unchained) == (180, 0)


async def test_the_cluster_has_a_chain_of_its_own(log: Database) -> None:
    await record(log, 2, tenant=CLUSTER)
    await chain_pending(log)
    await sign_heads(log, VAULT)
    found = await verified(log, tenant=CLUSTER)
    assert found.intact and (found.verified, found.signed_entries) == (2, 2)


async def test_without_a_key_heads_are_not_signed_and_verification_says_so(empty: Database) -> None:
    await record(empty, 2)
    await chain_pending(empty)
    assert await sign_heads(empty, Vault()) == 0
    found = await verified(empty, vault=Vault())
    assert found.intact and found.signed_at is None and "no master key" in found.notes[0]


async def test_a_new_master_key_signs_again_and_the_old_one_can_go(log: Database) -> None:
    both = Vault(Keyring({"second": KEYS["second"], "first": KEYS["first"]}))
    assert await sign_heads(log, both) == 2
    assert await sign_heads(log, both) == 0
    found = await verified(log, vault=Vault(Keyring({"second": KEYS["second"]})))
    assert found.intact and found.signed_entries == 10 and "'first'" in found.notes[0]


async def test_entries_of_before_the_chain_are_chained_as_they_are_found(empty: Database) -> None:
    """As after the migration, which lists them as pending, and with a process of an earlier version that inserts."""
    migration = next(m for m in migrations() if m.name == "audit_chain")
    assert "INSERT INTO audit_pending SELECT audit_id, tenant_id FROM audit" in migration.sql
    async with empty.connection() as connection:
        await connection.execute(
            "INSERT INTO audit (tenant_id, actor, action, subject) VALUES (1, 'a', 'job.pause', 'b')"
        )
    assert await chain_pending(empty) == 1
    assert (await verified(empty)).intact
