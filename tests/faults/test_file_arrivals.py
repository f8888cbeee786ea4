"""Files that arrive while schedulers are killed: each starts exactly one execution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.trigger import TriggerSpec
from mainspring.domain.watch import FilesSource
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.intake.triggers import definitions
from mainspring.store.db import Database
from mainspring.store.migrate import migrate
from mainspring.vault.vault import Vault
from tests.support.fleet import ROUNDS, Fleet

pytestmark = pytest.mark.fault("F1")
FILES = 250
"""More than two looks start."""
STARTED = "SELECT count(*) FROM executions"


@pytest.fixture
async def dsn(durable: EmbeddedServer, request: pytest.FixtureRequest) -> str:
    name = f"a{abs(hash(request.node.nodeid)):x}"
    connection = await asyncpg.connect(durable.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {name} OWNER mainspring")
    await connection.close()
    await migrate(durable.dsn_for(name))
    return durable.dsn_for(name)


@contextmanager
def fleet(server: EmbeddedServer, url: str, folder: Path) -> Iterator[Fleet]:
    found = Fleet(server, url, folder, lease_s=1.0)
    try:
        yield found
    except BaseException:
        found.tell()
        raise
    finally:
        found.end()


async def test_a_scheduler_killed_between_arrival_and_start(durable: EmbeddedServer, dsn: str, tmp_path: Path) -> None:
    """Killed when it has seen the files and started none, and again when it has started some of them."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    options = ("--watch-root", str(tmp_path))
    async with Database(dsn, size=2) as database:
        await jobs.create(database, JobSpec(name="load", task=NoopTask()), tenant=1, by="test")
        source = FilesSource(place=str(inbox), interval="5s", settle="5s")
        spec = TriggerSpec(source=source, job="load")
        await definitions.create(database, Vault(), "inbox", spec, tenant=1, by="test")
    with fleet(durable, dsn, tmp_path) as schedulers:
        for round_number in range(ROUNDS):
            total = FILES * (round_number + 1)
            for number in range(FILES):
                (inbox / f"{round_number}-{number}").write_text("x")
            first = schedulers.start(options=options)
            seen = "SELECT count(*) = $1 FROM trigger_files"
            await schedulers.until("all files are seen", seen, total, within_s=60)
            await schedulers.kill(first)
            second = schedulers.start(options=options)
            await schedulers.until("some have started", f"SELECT ({STARTED}) > $1", total - FILES, within_s=60)
            await schedulers.kill(second)
            third = schedulers.start(options=options)
            await schedulers.until("all have started", f"SELECT ({STARTED}) >= $1", total, within_s=60)
            passed = "SELECT passed_at > $1 FROM trigger_watches"
            ((now,),) = await schedulers.ask("SELECT clock_timestamp()")
            await schedulers.until("a further look", passed, now, within_s=60)
            await schedulers.drain(third)
            ((count, distinct),) = await schedulers.ask(
                "SELECT count(*), count(DISTINCT s.event) FROM executions e JOIN trigger_starts s USING (execution_id)"
            )
            assert (count, distinct) == (total, total)
            assert await schedulers.ask(STARTED) == [(total,)]
