"""A rolling upgrade under load: processes of the previous schema are replaced, role by role, after it was migrated.

In three orders, so that every mixture of old and new roles is at work once. Nothing is lost, nothing done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.migrate import migrate
from tests.support.earlier_version import answers, empty_database, issue_tokens, source_of
from tests.support.fire_checker import judge
from tests.support.processes import free_port, until_async
from tests.support.tcp_front import TcpFront

pytestmark = pytest.mark.anyio

PREVIOUS = "4769951"
"""The last commit with schema 52, before rollups, retention per tenant, the archive and suspended tenants."""
ROLES = ("api", "scheduler", "worker")
ORDERS = (("api", "scheduler", "worker"), ("scheduler", "worker", "api"), ("worker", "api", "scheduler"))
JOBS = 16
SUBMITTED = 8
"""More of them must be acknowledged after each replacement."""


@dataclass
class Upgrade:
    """A cluster with one process of each role."""

    database: str
    token: str
    worker_token: str
    front: TcpFront
    folder: Path
    running: dict[str, tuple[asyncio.subprocess.Process, int]] = field(default_factory=dict)
    started: list[asyncio.subprocess.Process] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    async def start(self, role: str, source: Path | None) -> None:
        """Start a process of one role, of the previous version if its source is given, and drain the one before it."""
        before = self.running.get(role)
        port = free_port()
        path = {"PYTHONPATH": str(source)} if source is not None else {}
        servers = {"MAINSPRING_DATABASE_URL": self.database}
        address = {"MAINSPRING_URL": self.front.url, "MAINSPRING_TOKEN": self.worker_token}
        name = f"{role}-{'old' if source else 'new'}"
        words = ["worker", "--name", name] if role == "worker" else ["serve", "--roles", role, "--port", str(port)]
        self.logs.append(f"{name}.log")
        with (self.folder / self.logs[-1]).open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mainspring.cli.main", *words),
                env={**os.environ, **path, **(address if role == "worker" else servers)},
                stdout=out,
                stderr=out,
            )
        self.running[role] = (process, port)
        self.started.append(process)
        if role == "api":
            await until_async("the api answers", lambda: self._answers(port), within_s=120)
            self.front.targets.append(port)
        elif role == "worker":
            await until_async(f"{name} is registered", lambda: self.holds(WORKING, name), within_s=120)
        else:
            await until_async(f"{name} owns shards", lambda: self.holds(OWNING, str(process.pid)), within_s=120)
        if before is not None:
            if role == "api":
                self.front.targets.remove(before[1])
            before[0].terminate()
            assert await asyncio.wait_for(before[0].wait(), 120) == 0, f"the old {role} ends cleanly"

    async def _answers(self, port: int) -> bool:
        assert self.running["api"][0].returncode is None, (self.folder / "api-new.log").read_text()
        async with AsyncClient(f"http://127.0.0.1:{port}", self.token) as client:
            return await answers(client)

    async def holds(self, query: str, *args: object) -> bool:
        return bool(await self.ask(query, *args))

    async def ask(self, query: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.database, server_settings={"search_path": "mainspring"})
        try:
            return list(await connection.fetch(query, *args))
        finally:
            await connection.close()

    async def submit(self, client: AsyncClient) -> None:
        """Start executions, each when the one before has ended; repeat what has no answer, under the same key."""
        for n in itertools.count():
            key = f"manual-{n}"
            while len(self.acknowledged) == n:
                with contextlib.suppress(MainspringError):
                    execution = await client.trigger("manual", wire.RunNow(key=key))
                    self.acknowledged.append(key)
                    await client.wait(execution.execution_id, timeout_s=60)

    async def progress(self) -> None:
        """Wait until fires that are due from now on, and further submissions, have been executed."""
        (now,) = await self.ask("SELECT clock_timestamp() AS at")
        count = len(self.acknowledged) + SUBMITTED

        async def moved() -> bool:
            fired = await self.ask(DONE, now["at"])
            return len(self.acknowledged) >= count and fired[0]["fires"] >= JOBS and fired[0]["manual"] >= SUBMITTED

        await until_async("fires and submissions are executed", moved, within_s=120)


WORKING = "SELECT FROM sessions JOIN workers USING (worker_id) WHERE name = $1 AND ended_at IS NULL"
OWNING = "SELECT FROM shards JOIN schedulers ON scheduler_id = owner WHERE name LIKE '%-' || $1 LIMIT 1"
DONE = """
SELECT count(*) FILTER (WHERE trigger = 'fire') AS fires, count(*) FILTER (WHERE trigger <> 'fire') AS manual
FROM history WHERE finished_at > $1 AND state = 'succeeded'"""
ENDED = """
SELECT WHERE NOT EXISTS (SELECT FROM executions) AND NOT EXISTS (SELECT FROM shards WHERE watermark < $1)"""


@asynccontextmanager
async def cluster(postgres: EmbeddedServer, source: Path, name: str, folder: Path) -> AsyncIterator[Upgrade]:
    """The three roles of the previous version, under load, on a schema that was migrated under them."""
    database = await empty_database(postgres, name)
    token, worker_token = await asyncio.to_thread(issue_tokens, source, database)
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(TcpFront())
        found = Upgrade(database, token, worker_token, front, folder)
        try:
            for role in ROLES:
                await found.start(role, source)
            yield found
        finally:
            for process in found.started:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            for name in found.logs:
                print(f"== {name}\n{(folder / name).read_text()[-3000:]}")


@pytest.mark.requirement(151)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_every_role_is_replaced_under_load(
    postgres: EmbeddedServer, tmp_path: Path, order: tuple[str, ...]
) -> None:
    source = source_of(PREVIOUS, tmp_path / "earlier")
    effects = tmp_path / "effects"
    async with (
        cluster(postgres, source, f"rolling_{order[0]}", tmp_path) as upgrade,
        AsyncClient(upgrade.front.url, upgrade.token) as client,
    ):
        schedule = {"every": "1s", "aligned": True}
        for n in range(JOBS):
            job = {"name": f"tick-1-{n}", "task": {"kind": "noop"}, "overlap": "allow", "misfire": {"policy": "all"}}
            await client.create_job({**job, "schedule": schedule})
        effect = {"kind": "shell", "argv": ["sh", "-c", f"echo $MAINSPRING_EXECUTION_ID >> {effects}"]}
        await client.create_job({"name": "manual", "task": effect})
        submitting = asyncio.create_task(upgrade.submit(client))
        await upgrade.progress()
        await migrate(upgrade.database)
        await upgrade.progress()
        for role in order:
            await upgrade.start(role, None)
            await upgrade.progress()
        submitting.cancel()
        for n in range(JOBS):
            await client.pause_job(f"tick-1-{n}", "enough")
        (now,) = await upgrade.ask("SELECT clock_timestamp() AS at")
        await until_async("all have ended", lambda: upgrade.holds(ENDED, now["at"]), within_s=120)
        verdict = await judge(upgrade.database, prefix="tick-")
        ended = await upgrade.ask("SELECT execution_id, state, attempt FROM history WHERE trigger <> 'fire'")
    verdict.demand(f"rolling upgrade {'-'.join(order)}", acknowledged=len(upgrade.acknowledged))
    written = Counter(effects.read_text().split())
    assert {row["state"] for row in ended} == {"succeeded"}
    assert written == Counter(str(row["execution_id"]) for row in ended), "each effect once"
    assert len(ended) - len(upgrade.acknowledged) in (0, 1), "only the last submission may be without an answer"
