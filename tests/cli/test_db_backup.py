"""Backups are taken while the cluster runs; after a restore nothing fires until an operator has decided."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from mainspring import wire
from mainspring.domain.errors import Unavailable
from mainspring.domain.job import JobSpec, Misfire, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.views.overview import overview
from mainspring.views.verdict import verdict
from tests.conftest import clone, started
from tests.support.database_roles import server_urls
from tests.support.invoke import Invoke
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
async def source(postgres: EmbeddedServer) -> str:
    return await clone(postgres)


@pytest.fixture
async def empty(postgres: EmbeddedServer) -> str:
    name = "restored"
    connection = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await connection.execute(f"CREATE DATABASE {name} OWNER mainspring")
    await connection.close()
    return postgres.dsn_for(name)


async def run(invoke: Invoke, *words: str) -> str:
    result = await asyncio.to_thread(invoke, *words)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


async def count(url: str, sql: str) -> int:
    async with Database(url, size=1) as database, database.connection() as connection:
        return int(await connection.fetchval(sql))


FIRES = "SELECT count(*) FROM all_executions WHERE trigger = 'fire'"


async def backed_up(invoke: Invoke, url: str, file: Path) -> None:
    """A backup of a cluster that is firing every second, with one execution that no worker has taken."""
    async with started(url) as cluster:
        spec = JobSpec(
            name="tick",
            task=NoopTask(),
            overlap="allow",
            misfire=Misfire(policy="all"),
            schedule=ScheduleSpec(every=1, aligned=True),
        )
        await jobs.create(cluster.database, spec, tenant=1, by="test")
        await until_async("two fires", lambda: _at_least(url, 2), within_s=20)
        await run(invoke, "db", "backup", str(file), "--database-url", url)


async def _at_least(url: str, fires: int) -> bool:
    return await count(url, FIRES) >= fires


async def test_a_restore_holds_firing_until_an_operator_skips_the_gap(
    invoke: Invoke, source: str, empty: str, tmp_path: Path
) -> None:
    file = tmp_path / "one.dump"
    await backed_up(invoke, source, file)
    assert "✔" in await run(invoke, "db", "verify", str(file))
    manifest = msgspec.json.decode((tmp_path / "one.dump.manifest.json").read_bytes())
    assert manifest["rows"]["jobs"] == 1
    assert (file.stat().st_mode & 0o077, manifest["bytes"]) == (0, file.stat().st_size)
    await run(invoke, "db", "restore", str(file), "--yes", "--database-url", empty)
    fires = await count(empty, FIRES)
    assert fires >= 2
    last = await count(empty, "SELECT extract(epoch FROM max(fire_at)) FROM all_executions")
    async with started(empty, tenant_database_url=None) as cluster:
        health = await cluster.server.readiness.health()
        assert "firing is held" in health.notes[0]
        async with cluster.client() as client:
            assert "firing is held since" in str(await client.doctor())
            assert (await client.why_job("tick")).reasons[0].code == "held"
        assert cluster.server.context is not None
        seen = await overview(cluster.database, cluster.server.context.run_views, tenant=1)
        assert "Firing is held since" in str(verdict(seen))
        assert cluster.server.scheduler is not None and cluster.server.scheduler.shards == []
        async with cluster.database.connection() as connection:
            register = wire.Register(name="w", host="h", version="0", slots=1, queues=["short"], kinds=["noop"])
            with pytest.raises(Unavailable, match="firing is held after a restore"):
                await sessions.insert_session(
                    connection, tenant=1, session_id=uuid4(), worker_id=uuid4(), register=register, lease_s=20
                )
        assert await count(empty, FIRES) == fires
        await run(invoke, "db", "resume", "--gap", "skip", "--yes", "--database-url", empty)
        resumed = await count(empty, "SELECT floor(extract(epoch FROM max(ended_at))) FROM holds")
        await until_async("fires after the hold", lambda: _at_least(empty, fires + 2), within_s=20)
        gap = f"{FIRES} AND fire_at > to_timestamp({last}) AND fire_at < to_timestamp({resumed})"
        assert await count(empty, gap) == 0
        assert await count(empty, "SELECT count(*) FROM executions WHERE queued_at < (SELECT held_at FROM holds)") == 0
        async with cluster.client() as client:
            assert "firing is held" not in str(await client.doctor())


async def test_the_gap_can_be_run(invoke: Invoke, source: str, empty: str, tmp_path: Path) -> None:
    file = tmp_path / "two.dump"
    await backed_up(invoke, source, file)
    await run(invoke, "db", "restore", str(file), "--yes", "--database-url", empty)
    decided = await count(empty, "SELECT extract(epoch FROM min(watermark))::bigint FROM shards")
    result = await asyncio.to_thread(invoke, "db", "resume", "--database-url", empty)
    assert result.exit_code == 6
    assert "--gap skip" in result.stderr
    await run(invoke, "db", "resume", "--gap", "run", "--yes", "--database-url", empty)
    async with started(empty, tenant_database_url=None):
        await until_async("catching up", lambda: _caught_up(empty, decided), within_s=20)
    assert (await asyncio.to_thread(invoke, "db", "resume", "--gap", "run", "--database-url", empty)).exit_code == 5


async def _caught_up(url: str, decided: int) -> bool:
    return await count(url, f"{FIRES} AND fire_at BETWEEN to_timestamp({decided}) AND to_timestamp({decided + 2})") >= 2


async def test_damaged_backups_and_used_databases_are_refused(
    invoke: Invoke, source: str, empty: str, tmp_path: Path
) -> None:
    file = tmp_path / "three.dump"
    await run(invoke, "db", "backup", str(file), "--database-url", source)
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damage, said in ((content[:-10], "incomplete"), (bytes(flipped), "damaged")):
        file.write_bytes(damage)
        for words in (("verify", str(file)), ("restore", str(file), "--yes", "--database-url", empty)):
            result = await asyncio.to_thread(invoke, "db", *words)
            assert result.exit_code == 6, result.output
            assert said in result.stderr
    file.write_bytes(content)
    result = await asyncio.to_thread(invoke, "db", "restore", str(file), "--yes", "--database-url", source)
    assert result.exit_code == 5
    assert "restore into an empty database" in result.stderr
    assert (await asyncio.to_thread(invoke, "db", "backup", str(file), "--database-url", source)).exit_code == 5
    (tmp_path / "three.dump.manifest.json").unlink()
    assert (await asyncio.to_thread(invoke, "db", "verify", str(file))).exit_code == 3


async def test_status_and_prune(invoke: Invoke, source: str, empty: str) -> None:
    text = await run(invoke, "db", "status", "--database-url", source)
    assert "oldest transaction" in text and "history" in text and "partitions" in text
    found = msgspec.json.decode(await run(invoke, "db", "status", "-o", "json", "--database-url", source))
    assert {"dead_rows", "bytes", "parts"} <= set(found["tables"][0])
    await run(invoke, "db", "prune", "--keep-history", "1d", "--database-url", source)
    plan = await run(invoke, "db", "migrate", "--plan", "--database-url", empty)
    assert "0042 holds" in plan


async def refusal(invoke: Invoke, *words: str) -> str:
    result = await asyncio.to_thread(invoke, *words)
    assert result.exit_code != 0 and isinstance(result.exception, SystemExit), result.output
    return str(result.stderr)


@pytest.mark.parametrize("command", [("backup", "file"), ("prune",), ("resume", "--gap", "skip")], ids=lambda c: c[0])
async def test_a_database_without_the_schema_is_named(
    invoke: Invoke, empty: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    words = [str(tmp_path / word) if word == "file" else word for word in command]
    found = await refusal(invoke, "db", *words, "--database-url", empty)
    assert "no schema of Mainspring" in found and "db migrate" in found
    assert os.listdir(tmp_path) == []


async def test_a_backup_needs_the_owner(invoke: Invoke, source: str, tmp_path: Path) -> None:
    url = server_urls(source)["database_url"]
    found = await refusal(invoke, "db", "backup", str(tmp_path / "file"), "--database-url", url)
    assert "mainspring_server does not own the schema" in found
    assert os.listdir(tmp_path) == []
