"""Every check of the doctor, with each fault that it looks for planted in real data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.retry import RetryPolicy
from mainspring.duties.audit_chain import chain_pending
from mainspring.embedded.server import EmbeddedServer
from mainspring.store import doctor
from mainspring.store.db import Connection, Database, connection_settings
from mainspring.store.queries import q
from mainspring.testing.clock import VirtualClock
from tests.support.runs import RunBench
from tests.support.settling import SettlingBench

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Planted:
    """A fault, and what the finding says. The fault is written past all constraints that prevent it."""

    check: str
    says: str
    sql: LiteralString
    without: LiteralString = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.says}"


HISTORY_ROW = "CREATE TEMP TABLE row ON COMMIT DROP AS SELECT * FROM history LIMIT 1;"
LIMIT = "INSERT INTO limits (tenant_id, kind, key, most, used_at) VALUES (1, 'concurrency', 'k', 1, '2000-01-01');"
CHAIN_END = "(SELECT max(seq) FROM audit_chain WHERE tenant_id = 1)"

FAULTS = [
    Planted("firing_held", "firing is held since", "INSERT INTO holds (backup_at) VALUES (db_now())"),
    Planted(
        "invariant_i1",
        "live and final at once",
        "UPDATE executions SET execution_id = (SELECT execution_id FROM history)"
        " WHERE state = 'queued' AND trigger = 'manual'",
    ),
    Planted(
        "invariant_i1",
        "final 2 times",
        HISTORY_ROW
        + "UPDATE row SET finished_at = finished_at + interval '1 s'; INSERT INTO history SELECT * FROM row",
    ),
    Planted(
        "invariant_i2", "decided only up to", "UPDATE shards SET watermark = db_now() - interval '11 s' WHERE shard = 3"
    ),
    Planted(
        "invariant_i4",
        "early",
        "UPDATE executions SET trigger = 'fire', fire_at = queued_at + interval '1 ms' WHERE state = 'queued'",
    ),
    Planted(
        "invariant_i4",
        "early",
        HISTORY_ROW + "UPDATE row SET execution_id = gen_random_uuid(), trigger = 'fire', queued_at = db_now(),"
        " fire_at = db_now() + interval '1 ms'; INSERT INTO history SELECT * FROM row",
    ),
    Planted(
        "invariant_i6",
        "attempts 1 and 2 overlap",
        "INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, started_at, ended_at)"
        " SELECT e, n, 1, e, 'failed', db_now() + n * interval '1 s', db_now() + (n + 1.5) * interval '1 s'"
        " FROM gen_random_uuid() e, generate_series(1, 2) n",
    ),
    Planted(
        "invariant_i9",
        "state running, session none",
        "UPDATE executions SET session_id = NULL WHERE state = 'running'",
        without="executions DROP CONSTRAINT executions_session",
    ),
    Planted(
        "invariant_i9",
        "state queued, session",
        "UPDATE executions SET session_id = gen_random_uuid() WHERE state = 'queued'",
        without="executions DROP CONSTRAINT executions_session",
    ),
    Planted("invariant_i13", "counts 3 open steps, has 2", "UPDATE runs SET open_steps = open_steps + 1"),
    Planted(
        "invariant_i13",
        "is blocked with 0 steps",
        "UPDATE run_steps SET unmet = 0 WHERE state = 'blocked' AND item = -1",
    ),
    Planted(
        "invariant_i14",
        "failed without a dead letter",
        # The migration ran in real time, which is after the virtual time of the failure.
        "DELETE FROM dead_letters; UPDATE migrations SET applied_at = '2000-01-01' WHERE number = 8",
    ),
    Planted("invariant_i14", "did not fail", "UPDATE dead_letters SET dead_letter_id = gen_random_uuid()"),
    Planted(
        "invariant_i15",
        "2 running, at most 1 allowed",
        LIMIT + "UPDATE executions SET limit_id = (SELECT"
        " max(limit_id) FROM limits) WHERE job_id IN (SELECT job_id FROM jobs WHERE name LIKE 'job-%')"
        " AND state = 'running'",
    ),
    Planted(
        "invariant_i15",
        "running, at most 1 may",
        "INSERT INTO queues (tenant_id, name, cap, updated_at, updated_by) SELECT DISTINCT 1, queue, 1,"
        " timestamptz '2000-01-01', 'test' FROM executions WHERE state = 'running'"
        " ON CONFLICT (tenant_id, name) DO UPDATE SET cap = 1, updated_at = '2000-01-01'",
    ),
    Planted(
        "invariant_i16", "its session ended at", "UPDATE sessions SET lease_expires_at = db_now() - interval '11 s'"
    ),
    Planted(
        "invariant_i17",
        "no scheduler owns it",
        "UPDATE shards SET watermark = db_now() - interval '11 s' WHERE shard = 3",
    ),
    Planted(
        "invariant_i17",
        "is gone",
        "UPDATE shards SET owner = gen_random_uuid(), lease_expires_at = db_now() - interval '11 s' WHERE shard = 3",
    ),
    Planted(
        "invariant_i18",
        "queued since",
        "UPDATE executions SET queued_at = db_now() - interval '6 s' WHERE state = 'queued'",
    ),
    Planted(
        "invariant_i18",
        "queued since",
        "UPDATE executions SET queued_at = db_now() - interval '6 s', line_id = 0 WHERE state = 'queued'",
    ),
    Planted(
        "invariant_i19",
        "does not follow",
        "DELETE FROM audit_chain WHERE tenant_id = 1 AND seq = " + CHAIN_END + " - 1",
    ),
    Planted(
        "invariant_i19",
        "does not exist",
        "DELETE FROM audit WHERE audit_id = (SELECT audit_id FROM audit_chain WHERE tenant_id = 1 AND seq = "
        + CHAIN_END
        + ")",
    ),
    Planted("invariant_i19", "is the last audit entry", "UPDATE audit_chains SET hash = '' WHERE tenant_id = 1"),
    Planted("invariant_i20", "differ in tenant", "UPDATE executions SET tenant_id = 2 WHERE state = 'queued'"),
    Planted(
        "invariant_i21",
        "has ended, and step",
        "UPDATE runs SET state = 'succeeded', finished_at = db_now(), open_steps = 0",
    ),
    Planted("invariant_i21", "is open with no open step", "UPDATE runs SET open_steps = 0"),
    Planted(
        "invariant_i21",
        "its execution is not running",
        "DELETE FROM executions WHERE execution_id IN (SELECT run_id FROM runs)",
    ),
    Planted(
        "due_waiting",
        "waiting, but due at",
        "UPDATE executions SET state = 'waiting', due_at = db_now() - interval '11 s' WHERE state = 'queued'",
    ),
    Planted(
        "overdue_starts",
        "should have started by",
        "UPDATE executions SET start_by_at = db_now() - interval '61 s' WHERE state = 'queued'",
    ),
    Planted(
        "overlong_pauses",
        "should have been resumed at",
        "UPDATE jobs SET paused_at = db_now(), paused_until = db_now() - interval '61 s'",
    ),
    Planted(
        "needs_of_the_deleted",
        "which was deleted",
        "INSERT INTO job_needs (child_id, parent_id, tenant_id, created_by) SELECT max(job_id::text)::uuid,"
        " min(job_id::text)::uuid, 1, 'test' FROM jobs WHERE deleted_at IS NULL; UPDATE jobs SET deleted_at ="
        " db_now() WHERE job_id = (SELECT parent_id FROM job_needs)",
    ),
    Planted(
        "overfed_backfills",
        "live, at most 1",
        "INSERT INTO backfills (backfill_id, tenant_id, job_id, schedule_id, from_at, to_at, reprocess, newest_first,"
        " concurrency, priority, state, instants, created_at, created_by) SELECT gen_random_uuid(), 1, job_id, 1,"
        " db_now(), db_now() + interval '1 day', 'none', false, 1, 5, 'running', 1, db_now(), 'test' FROM jobs LIMIT 1;"
        " UPDATE executions SET backfill_id = (SELECT backfill_id FROM backfills)",
    ),
]


async def populate(database: Database) -> UUID:
    """A failure with its dead letter, two running executions, a queued one, an open run and an audit chain."""
    bench = SettlingBench(database)
    failed, session = await bench.started(retries=RetryPolicy(max=0))
    assert await bench.end(failed, session, "failed", error="no")
    job = await bench.job()
    await bench.submit(job)
    await bench.submit(job)
    assert len(await bench.claim(session, 2)) == 2
    await RunBench(database).begin("flow", {"a": {}, "b": {"needs": ["a"]}})
    queued = await bench.submit(await bench.job())
    await chain_pending(database)
    return queued


@pytest.fixture
async def superuser(postgres: EmbeddedServer, fresh: Database, virtual: VirtualClock) -> AsyncIterator[Connection]:
    """A connection that may switch off triggers and foreign keys."""
    async with fresh.connection() as connection:
        name = await connection.fetchval("SELECT current_database()")
    connection = await asyncpg.connect(postgres.superuser_dsn(name), server_settings=connection_settings())
    yield connection
    await connection.close()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_the_doctor_finds_the_planted_fault(superuser: Connection, fresh: Database, fault: Planted) -> None:
    await populate(fresh)
    title = doctor.CHECKS[fault.check]
    healthy = await doctor.examine(superuser)
    assert healthy.healthy and set(healthy.checks) == set(doctor.CHECKS.values()), healthy.findings
    async with superuser.transaction():
        await superuser.execute("SET LOCAL session_replication_role = replica")
        if fault.without:
            await superuser.execute("ALTER TABLE " + fault.without)
        await superuser.execute(fault.sql)
        found = await doctor.examine(superuser)
        said = [finding.what for finding in found.findings if finding.check == title]
    assert any(fault.says in what for what in said), (said, found.findings)
    assert not found.healthy and found.checks[title] == f"{len(said)} violations"


def test_every_check_and_every_part_of_it_has_a_planted_fault() -> None:
    """A check that is added to the doctor needs a fault here for each of the queries that it unites."""
    planted = {name: sum(fault.check == name for fault in FAULTS) for name in doctor.CHECKS}
    for name, faults in planted.items():
        assert faults >= 1 + q(name).count("UNION ALL"), f"{name}: plant a fault for each part of the query"
    assert sum(planted.values()) == len(FAULTS), "a fault names no check"
