"""`mainspring db hold`, `recovery-settings` and `resume`: what is not an execution yet is not executed again either."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.watch import FilesSource
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.conftest import clone, started
from tests.support.database_roles import server_urls
from tests.support.invoke import Invoke
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

RECOVERED = "2026-11-18T08:00:00.123456Z"


@pytest.fixture
async def url(postgres: EmbeddedServer) -> str:
    return await clone(postgres)


async def run(invoke: Invoke, *words: str) -> str:
    result = await asyncio.to_thread(invoke, "db", *words)
    assert result.exit_code == 0, result.output
    return str(result.output)


async def refusal(invoke: Invoke, *words: str) -> str:
    result = await asyncio.to_thread(invoke, "db", *words)
    assert result.exit_code != 0 and isinstance(result.exception, SystemExit), result.output
    return str(result.stderr)


async def ask(url: str, sql: str) -> object:
    async with Database(url, size=1) as database, database.connection() as connection:
        return await connection.fetchval(sql)


async def make_work(client: AsyncClient, url: str, folder: Path) -> None:
    """Work that starts executions later: a backfill, a trigger of files, a dependent job."""
    await client.create_job(JobSpec(name="daily", task=NoopTask(), schedule=ScheduleSpec(every=86_400)))
    span = wire.BackfillRequest(from_=datetime(2026, 1, 1, tzinfo=UTC), to=datetime(2026, 1, 9, tzinfo=UTC))
    await client.start_backfill("daily", span)
    await client.add_trigger(wire.NewTrigger(name="inbox", job="daily", source=FilesSource(place=str(folder))))
    await client.create_job(JobSpec(name="after", task=NoopTask(), schedule=ScheduleSpec(every=1, aligned=True)))
    await client.add_need("after", "daily")
    waiting = "SELECT count(*) > 0 FROM executions WHERE due_at = 'infinity'"

    async def waits() -> bool:
        return bool(await ask(url, waiting))

    await until_async("a fire that waits for another job", waits, within_s=20)


async def test_skip_pauses_what_starts_executions_from_a_place_of_its_own(
    invoke: Invoke, url: str, tmp_path: Path
) -> None:
    async with started(url, watch_roots=(str(tmp_path),)) as cluster, cluster.client() as client:
        await make_work(client, url, tmp_path)
    await ask(url, "SELECT mainspring.submit('daily')")
    assert "firing is held" in await run(invoke, "hold", "--recovered-to", RECOVERED, "--yes", "--database-url", url)
    said = await run(invoke, "resume", "--gap", "skip", "--yes", "--database-url", url)
    assert "1 backfills and 1 triggers of files and topics are active" in said
    assert "paused: 1 backfills, 1 triggers" in said
    assert await ask(url, "SELECT string_agg(state, ' ') FROM backfills") == "paused"
    assert await ask(url, "SELECT pause_reason FROM triggers") == "it may have been executed after the backup"
    assert await ask(url, "SELECT count(*) FROM submissions") == 0
    print(
        await ask(url, "SELECT string_agg(to_jsonb(e)::text, ' ') FROM executions e"),
        await ask(url, "SELECT held_at from holds"),
    )
    assert await ask(url, "SELECT count(*) FROM executions") == 0
    assert await ask(url, "SELECT bool_and(state = 'cancelled') FROM history WHERE trigger = 'manual'") is True
    actions = await ask(url, "SELECT string_agg(action, ' ' ORDER BY action) FROM audit WHERE action ~ 'pause'")
    assert actions == "backfill.pause trigger.pause"


async def test_run_pauses_nothing(invoke: Invoke, url: str, tmp_path: Path) -> None:
    async with started(url, watch_roots=(str(tmp_path),)) as cluster, cluster.client() as client:
        await make_work(client, url, tmp_path)
    await run(invoke, "hold", "--recovered-to", RECOVERED, "--yes", "--database-url", url)
    assert "paused" not in await run(invoke, "resume", "--gap", "run", "--yes", "--database-url", url)
    assert await ask(url, "SELECT string_agg(state, ' ') FROM backfills") == "running"
    assert await ask(url, "SELECT count(*) FROM executions WHERE due_at = 'infinity'")


async def test_a_hold_needs_a_time_an_owner_and_no_other_hold(invoke: Invoke, url: str) -> None:
    options = ("--yes", "--database-url", url)
    assert "pass --recovered-to" in await refusal(invoke, "hold", *options)
    assert "mainspring db hold" in await refusal(invoke, "resume", "--gap", "skip", *options)
    assert "is not a time" in await refusal(invoke, "hold", "--recovered-to", "yesterday", *options)
    servers = server_urls(url)["database_url"]
    for words in (("hold", "--recovered-to", RECOVERED), ("resume", "--gap", "skip")):
        found = await refusal(invoke, *words, "--yes", "--database-url", servers)
        assert "mainspring_server does not own the schema" in found
    await run(invoke, "hold", "--recovered-to", RECOVERED, *options)
    assert "held already" in await refusal(invoke, "hold", "--recovered-to", RECOVERED, *options)
    assert await ask(url, "SELECT count(*) FROM holds WHERE ended_at IS NULL") == 1


async def test_recovery_settings_are_what_postgresql_accepts(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "it's 100%"
    folder.mkdir()
    result = await asyncio.to_thread(invoke, "db", "recovery-settings", "--to", RECOVERED, "--archive", str(folder))
    assert result.exit_code == 0, result.output
    first, second, _ = result.stdout.splitlines()
    assert second == "recovery_target_time = '2026-11-18 08:00:00.123456+00'"
    value = first.removeprefix("restore_command = '").removesuffix("'").replace("''", "'")
    (folder / "seg").write_text("wal")
    command = value.replace("%f", "seg").replace("%p", str(tmp_path / "copy")).replace("%%", "%")
    process = await asyncio.create_subprocess_shell(command)
    assert await process.wait() == 0 and (tmp_path / "copy").read_text() == "wal"
    assert "does not exist" in await refusal(invoke, "recovery-settings", "--to", RECOVERED, "--archive", "/no/such")
