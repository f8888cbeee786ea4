"""Migrations against schema.sql, and every named query against the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

import asyncpg
import pytest

from mainspring.domain import execution
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Connection, Database, connection_settings
from mainspring.store.migrate import SchemaTooNew, migrate, migrations
from mainspring.store.queries import all_queries
from tests.conftest import TEMPLATE

pytestmark = pytest.mark.anyio

SHAPE = """
SELECT 'column' AS what, c.relname || '.' || a.attname AS name,
       format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
       || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') AS shape
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p', 'v')
  AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'mainspring'::regnamespace
UNION ALL
SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
JOIN pg_class c ON c.oid = indexrelid WHERE c.relnamespace = 'mainspring'::regnamespace
UNION ALL
SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = 'mainspring'::regnamespace
UNION ALL
SELECT 'options', relname, reloptions::text FROM pg_class
WHERE relnamespace = 'mainspring'::regnamespace AND reloptions IS NOT NULL
UNION ALL
SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t
JOIN pg_class c ON c.oid = tgrelid WHERE c.relnamespace = 'mainspring'::regnamespace AND NOT tgisinternal
UNION ALL
SELECT 'view', viewname, definition FROM pg_views WHERE schemaname = 'mainspring'
"""


async def shape_of(dsn: str) -> set[tuple[str, str, str]]:
    connection = await asyncpg.connect(dsn, server_settings=connection_settings())
    rows = await connection.fetch(SHAPE)
    await connection.close()
    ours = {(r["what"], r["name"], " ".join(re.sub("--.*", "", r["shape"] or "").split())) for r in rows}
    return {row for row in ours if "_2" not in row[1] and not row[1].startswith("migrations")}


async def test_migrations_build_what_schema_sql_says(postgres: EmbeddedServer) -> None:
    connection = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await connection.execute("CREATE DATABASE from_schema OWNER mainspring")
    await connection.close()
    dsn = postgres.dsn_for("from_schema")
    connection = await asyncpg.connect(dsn, server_settings=connection_settings())
    await connection.execute("CREATE SCHEMA mainspring")
    await connection.execute(resources.files("mainspring.store").joinpath("schema.sql").read_text())
    await connection.close()

    assert await shape_of(dsn) == await shape_of(postgres.dsn_for(TEMPLATE))


async def test_every_query_prepares(database: Database) -> None:
    async with database.connection() as connection:
        for name, sql in all_queries().items():
            try:
                await connection.prepare(sql)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{name}: {error}")


async def test_migrating_again_and_at_once_changes_nothing(fresh: Database) -> None:
    import asyncio

    assert await asyncio.gather(*[migrate(fresh.dsn) for _ in range(4)]) == [[], [], [], []]


async def test_a_newer_schema_is_refused(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute("INSERT INTO migrations (number, name) VALUES (9999, 'from the future')")
    with pytest.raises(SchemaTooNew, match="9999"):
        await migrate(fresh.dsn)


def test_each_migration_has_a_number_of_its_own() -> None:
    numbers = [m.number for m in migrations()]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1


async def test_the_states_in_the_database_are_those_of_the_domain(database: Database) -> None:
    async with database.connection() as connection:
        live = await connection.fetchval(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'executions_state'"
        )
        final = await connection.fetchval(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conname = 'history_state' AND conrelid = 'history'::regclass"
        )
    assert {state for state in execution.STATES if f"'{state}'" in live} == execution.LIVE
    assert {state for state in execution.STATES if f"'{state}'" in final} == execution.FINAL


async def test_the_id_is_the_same_in_sql_and_python(database: Database) -> None:
    from uuid import UUID

    job = UUID("0192f3c1-2b4d-7a1f-9c3d-0123456789ab")
    key = execution.fire_key(1_800_000_000_000)
    async with database.connection() as connection:
        in_sql = await connection.fetchval("SELECT execution_id($1, $2, $3)", f"{1_800_000_000_000:012x}", job, key)
    in_python = execution.execution_id(job, 1_800_000_000_000, key)
    assert in_sql == in_python
    assert execution.fire_ms_of(in_python) == 1_800_000_000_000
    assert (in_python.version, in_python.variant) == (8, "specified in RFC 4122")


async def test_every_table_of_tenant_data_carries_its_tenant(database: Database) -> None:
    system = {
        "archive_days",
        "event_stream",
        "database_roles",
        "holds",
        "measurements",
        "queue_sample_times",
        "rollup_progress",
        "schedules",
        "schedulers",
        "shards",
        "server_keys",
        "migrations",
    }
    system |= {"used_sign_ins"}  # completed before the tenant is known
    system |= {"planned_starts"}  # by schedule, for jobs of all tenants
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT c.relname, bool_or(a.attname = 'tenant_id' AND a.attnotnull) AS has FROM pg_class c"
            " JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'mainspring'::regnamespace"
            " AND c.relkind IN ('r', 'p') GROUP BY c.relname"
        )
    assert {r["relname"] for r in rows if not r["has"]} == system


async def test_the_claim_reads_its_index_and_nothing_else(fresh: Database) -> None:
    """With a hundred thousand rows queued, claiming fifty touches about fifty."""
    from mainspring.store.queries import q

    async with fresh.connection() as connection:
        await connection.execute(
            "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger,"
            " queue, rank, fire_at, due_at, queued_at, line_id) SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 0,"
            " 5, 'queued', 'fire', 'short', n, db_now(), db_now(), db_now(), 1 FROM generate_series(1, 100000) n"
        )
        await connection.execute("ANALYZE executions")
        session = "00000000-0000-4000-8000-000000000001"
        await connection.execute("INSERT INTO workers (worker_id, tenant_id, name) VALUES ($1, 1, 'w')", session)
        await connection.execute(
            "INSERT INTO sessions (session_id, tenant_id, worker_id, state, host, version, slots, queues, kinds,"
            " lease_expires_at) VALUES ($1, 1, $1, 'active', 'h', '1', 50, '{short}', '{noop}',"
            " db_now() + interval '1 hour')",
            session,
        )
        sql = q("claim").replace("$1::uuid[]", f"ARRAY['{session}']::uuid[]")
        sql = sql.replace("$2::smallint[]", "$2").replace("$2", "array_fill(1::smallint, ARRAY[50])")
        zero = "'00000000-0000-0000-0000-000000000000'::uuid"
        sql = sql.replace("$3", "1").replace("$4", "0").replace("$5", zero).replace("$6", "1")
        plan = "\n".join(r[0] for r in await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, SUMMARY OFF) {sql}"))
    assert "executions_line" in plan and "actual" in plan
    assert "Seq Scan on executions" not in plan
    assert max(int(n) for n in re.findall(r"actual time=\S+ rows=(\d+)", plan)) <= 50


async def test_dead_entries_behind_a_claim_are_not_walked_again(fresh: Database) -> None:
    """Whoever remembers where the last claim ended reads a fraction of what a look from the start does."""
    from uuid import UUID

    from mainspring.store import claims
    from mainspring.store.queries import q

    async with fresh.connection() as connection:
        await connection.execute("ALTER TABLE executions SET (autovacuum_enabled = off)")
        await connection.execute(
            "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger,"
            " queue, rank, fire_at, due_at, queued_at, line_id) SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 0,"
            " 5, 'queued', 'fire', 'short', n, db_now(), db_now(), db_now(), 1 FROM generate_series(1, 20000) n"
        )
        await connection.execute("DELETE FROM executions WHERE rank <= 19000")
        await connection.execute(f"PREPARE peek AS {q('peek')}")

        async def pages(rank: int, execution: UUID) -> int:
            plan = await connection.fetchval(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
                f" EXECUTE peek (ARRAY[1], ARRAY[{rank}], ARRAY['{execution}']::uuid[], ARRAY[10])"
            )
            return int(json.loads(plan)[0]["Plan"]["Shared Hit Blocks"])

        assert await pages(19000, UUID(int=0)) * 5 < await pages(*claims.LINE_START)


async def test_plans_made_on_empty_tables_stay_good(fresh: Database) -> None:
    """A server that starts on a new database plans its hot statements before there is a single row."""
    wanted = {
        "claim": {"executions_line", "sessions_pkey", "tenants_suspended"},
        "claim_keyed": {"executions_line", "sessions_pkey", "limits_pkey", "tenants_suspended"},
        "peek": {"executions_line"},
        "start_matched": {"executions_pkey", "sessions_pkey", "tenants_suspended"},
        "queued_lines": {"executions_line"},
        "lock_limits": {"limits_pkey"},
        "count_holders": {"executions_limit"},
        "promote_waiting": {"executions_waiting", "executions_pkey", "blackouts_open"},
        "settle_succeeded": {"executions_pkey"},
        "lock_results": {"executions_pkey", "evictions_pkey"},
        "settle_retries": {"executions_pkey"},
        "settle_final": {
            "executions_pkey",
            "attempts_pkey",
            "sessions_pkey",
            "workers_pkey",
            "dead_letters_replayed_as",
        },
        "fire": {"jobs_firing", "executions_job", "executions_pkey"},
        "fire_delayed": {"jobs_firing", "executions_job", "job_needs_pkey", "planned_starts_pkey"},
        "lock_chained": {"jobs_firing"},
        "lock_needs": {"job_needs_pkey"},
        "auto_pausing_jobs": {"executions_pkey", "jobs_pkey"},
        "lock_shard_rows": {"shards_pkey"},
        "skip_overdue": {"executions_start_by", "executions_pkey"},
    }
    async with fresh.hot() as connection:
        for name, indexes in wanted.items():
            nodes = await plan_of(connection, name)
            assert {n["Index Name"] for n in nodes if "Index Name" in n} == indexes, f"{name}: {nodes}"
            assert not [n for n in nodes if n["Node Type"] in ("Seq Scan", "Hash Join")], f"{name}: {nodes}"


async def test_plans_made_while_no_execution_was_live_look_up_by_key(fresh: Database) -> None:
    """After a vacuum of the empty table, PostgreSQL expects one row: scans of an index without a key seem as good."""
    wanted = {
        "executions_pkey": {
            *("start_matched", "settle_succeeded", "settle_with_output", "settle_steps", "settle_with_successor"),
            *("lock_results", "settle_retries", "settle_final", "append_logs", "save_checkpoints", "skip_overdue"),
            *("auto_pausing_jobs", "execution_by_id"),
        },
        "executions_line": {"claim", "claim_keyed", "peek"},
        "executions_job": {"last_executions_of_job", "fire"},
        "executions_waiting": {"promote_waiting"},
    }
    async with fresh.connection() as connection:
        await connection.execute("VACUUM ANALYZE executions")
    async with fresh.hot() as connection:
        for index, names in wanted.items():
            for name in names:
                nodes = [n for n in await plan_of(connection, name) if n.get("Relation Name") == "executions"]
                scans = [n for n in nodes if n["Node Type"] != "Tid Scan" and "Scan" in n["Node Type"]]
                assert index in {n["Index Name"] for n in scans}, f"{name}: {scans}"
                assert all("Index Cond" in n for n in scans), f"{name}: {scans}"


async def plan_of(connection: Connection, name: str) -> list[dict[str, Any]]:
    """The nodes of the plan that is kept for all parameters."""
    sql = all_queries()[name]
    nulls = ", ".join(["NULL"] * len((await connection.prepare(sql)).get_parameters()))
    await connection.execute(f"PREPARE {name} AS {sql}")
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({nulls})")
    await connection.execute(f"DEALLOCATE {name}")
    return list(plan_nodes(json.loads(text)[0]["Plan"]))


def plan_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from plan_nodes(child)
