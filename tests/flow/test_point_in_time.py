"""Point-in-time recovery as docs/how-to/backup.md describes it: an operator undoes the deletion of jobs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.domain.job import JobSpec, Misfire, ShellTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.cluster import Cluster
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from mainspring.store.migrate import migrate
from tests.support.evidence import SCRIPT, lines
from tests.support.processes import until, until_async
from tests.support.program import Program, server

pytestmark = pytest.mark.anyio

SHOP = ("shop-orders", "shop-stock", "shop-report")
SETTINGS = {"shared_buffers": "64MB", "fsync": "off"}


class Site:
    """Two database servers, the archive between them, and what the jobs have written outside of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.archive = folder / "archive"
        self.base = folder / "base"
        self.evidence = folder / "evidence"
        self.gate = folder / "gate"  # ends the slow job
        for name in ("archive", "base", "first", "second"):
            (folder / name).mkdir(mode=0o777)
            (folder / name).chmod(0o777)
        archiving = {"archive_mode": "on", "archive_command": f"test ! -f {self.archive}/%f && cp %p {self.archive}/%f"}
        self.first = EmbeddedServer(folder / "first", settings=SETTINGS | archiving)
        self.second = EmbeddedServer(folder / "second", settings=SETTINGS)
        self.tokens: dict[str, str] = {}

    def job(self, name: str, *, every: int = 1, work: str = "true") -> JobSpec:
        return JobSpec(
            name=name,
            task=ShellTask(argv=(SCRIPT.format(file=self.evidence, work=work),), shell=True),
            schedule=ScheduleSpec(every=every, aligned=True),
            misfire=Misfire(policy="all"),
            overlap="allow",
        )

    def started(self) -> list[str]:
        """Executions that have started, one for each start, in order."""
        text = self.evidence.read_text() if self.evidence.exists() else ""
        return [line.execution for line in lines(text) if line.what == "start"]

    async def until_started(self, more: int) -> None:
        wanted = len(self.started()) + more
        await until(f"{more} more starts", lambda: len(self.started()) >= wanted, within_s=60)

    @asynccontextmanager
    async def serving(self, postgres: EmbeddedServer) -> AsyncIterator[tuple[Program, str]]:
        """A server and a worker on a database server; both end cleanly."""
        api = server(self.folder, postgres.dsn)
        env = {"MAINSPRING_TOKEN": self.tokens["worker"]}
        url = f"http://127.0.0.1:{api.port}"
        worker = None
        try:
            await api.ready()
            worker = Program(self.folder, "worker", "--slots", "8", env=env | {"MAINSPRING_URL": url})
            yield api, url
            assert await worker.end() == 0, worker.text
            assert await api.end() == 0, api.text
        finally:
            for program in (worker, api):
                if program is not None:
                    program.kill()

    async def mainspring(self, *words: str, **env: str) -> str:
        """Run a command as an operator does, and return what it prints."""
        done = await asyncio.to_thread(self._run, [sys.executable, "-m", "mainspring.cli.main", *words], env)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        plain = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        return subprocess.run(words, cwd=self.folder, env=plain | env, capture_output=True, text=True, check=False)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        found = Site(Path(folder))
        await found.first.start()
        try:
            await migrate(found.first.dsn)
            async with Database(found.first.dsn, size=1) as database, database.connection() as connection:
                for name, scope in (("operator", "admin"), ("worker", "worker")):
                    found.tokens[name] = await issue_token(
                        connection, tenant=1, name=name, scopes=(scope,), grants=EVERYTHING
                    )
            yield found
        finally:
            await found.second.stop()
            await found.first.stop()


async def sql(postgres: EmbeddedServer, statement: str, *arguments: Any) -> Any:
    connection = await asyncpg.connect(postgres.superuser_dsn())
    try:
        return await connection.fetchval(statement, *arguments)
    finally:
        await connection.close()


def base_backup(site: Site) -> None:
    """Copy the running server, as `pg_basebackup` does for any role that may replicate."""
    programs, data = site.first.binaries.bin_dir, Cluster(site.first.directory).data
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("local replication all scram-sha-256\n")
    url = site.first.superuser_dsn()
    subprocess.run([programs / "psql", "-qAtc", "SELECT pg_reload_conf()", url], check=True, capture_output=True)
    words = ["-D", str(site.base / "data"), "-X", "stream", "--checkpoint=fast", f"--dbname={url}"]
    subprocess.run([programs / "pg_basebackup", *words], check=True, capture_output=True)


async def archived(site: Site) -> None:
    """End the current segment, as archive_timeout does, and wait until it is in the archive."""
    name = await sql(site.first, "SELECT pg_walfile_name(pg_switch_wal())")
    await until(f"{name} in the archive", (site.archive / name).exists, within_s=30)


async def recover(site: Site, to: str) -> None:
    """Start the second server on the copy, with the settings of the documentation."""
    target = Cluster(site.second.directory)
    shutil.copytree(site.base / "data", target.data)
    with (target.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(await site.mainspring("db", "recovery-settings", "--to", to, "--archive", str(site.archive)))
    (target.data / "recovery.signal").touch()
    for role, path in Cluster(site.first.directory).password_files.items():
        shutil.copy2(path, target.password_files[role])
    await site.second.start()
    waiting = "SELECT NOT pg_is_in_recovery()"
    await until_async("the end of the recovery", lambda: sql(site.second, waiting), within_s=60)


async def names(client: AsyncClient) -> set[str]:
    return {job.name for job in (await client.jobs(limit=100)).items}


async def test_deleted_jobs_come_back_and_nothing_that_was_done_is_done_again() -> None:
    async with site() as found:
        operator = {"MAINSPRING_TOKEN": found.tokens["operator"]}
        async with found.serving(found.first) as (_, url):
            async with AsyncClient(url, found.tokens["operator"]) as client:
                for name in ("other", *SHOP):
                    await client.create_job(found.job(name))
                gated = f"until [ -e {found.gate} ]; do sleep 0.1; done"
                await client.create_job(found.job("slow", every=3600, work=gated))
                await found.until_started(4)
                await asyncio.to_thread(base_backup, found)
                await found.until_started(4)
                running = await client.trigger("slow")
                await until("the slow one", lambda: str(running.execution_id) in found.started(), within_s=30)
            operator |= {"MAINSPRING_URL": url}
            await found.mainspring("jobs", "delete", *SHOP, "--yes", "--reason", "the wrong tenant", **operator)
            listed = await found.mainspring("audit", "list", "--action", "job.delete", "-o", "json", **operator)
            entries = json.loads(listed)["items"]
            assert {entry["name"] for entry in entries} == set(SHOP)
            found.gate.touch()
            await found.until_started(4)  # the others go on: the recovered database does not know these
        await archived(found)
        before = found.started()
        await recover(found, to=min(entry["at"] for entry in entries))
        await check_held_and_resume(found)
        async with found.serving(found.second) as (_, url), AsyncClient(url, found.tokens["operator"]) as client:
            assert set(SHOP) < await names(client)
            for name in SHOP:
                await until_runs_again(client, name, before)
            done: wire.Execution = await client.wait(running.execution_id, timeout_s=60)
            assert done.state == "cancelled" and "after the backup" in (done.reason or "")
        counts = Counter(found.started())
        assert [execution for execution, starts in counts.items() if starts > 1] == []
        assert len(counts) > len(before) and str(running.execution_id) in before


async def until_runs_again(client: AsyncClient, name: str, before: list[str]) -> None:
    async def runs() -> bool:
        newest = (await client.history(name, limit=1)).items
        return bool(newest) and newest[0].state == "succeeded" and str(newest[0].execution_id) not in before

    await until_async(f"{name} runs again", runs, within_s=30)


async def check_held_and_resume(site: Site) -> None:
    """What an operator does between the recovery and the start of the servers."""
    owner = {"MAINSPRING_DATABASE_URL": site.second.dsn}
    assert "firing is held" in await site.mainspring("db", "hold", "--yes", **owner)
    assert "✖ firing is held" in await site.mainspring("db", "status", **owner)
    ended = await site.mainspring("db", "resume", "--gap", "skip", "--yes", **owner)
    assert "firing resumes" in ended
