"""A separate database and real scheduler processes, to be killed, stopped, cut off and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from mainspring.domain.job import JobSpec, Misfire, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.store.db import Database, connection_settings
from tests.support.fire_checker import Verdict, judge
from tests.support.processes import free_port

LEASE_S = 5.0
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
"""The short form goes round once; `make faults` goes round often."""


class Fleet:
    """Schedulers by name. Times are database time, in seconds of the epoch."""

    def __init__(self, server: EmbeddedServer, url: str, folder: Path, lease_s: float) -> None:
        self.server = server
        self.url = url
        self.lease_s = lease_s
        self.warm_s = 0.0
        self.ports: dict[str, int] = {}
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._names = 0

    # Processes ---------------------------------------------------------------------------------------

    def start(self, *, through: str | None = None, api: bool = False, options: Sequence[str] = ()) -> str:
        """Start a scheduler process with further options; return its name."""
        self._names += 1
        name = f"scheduler-{self._names}"
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
        with (self._folder / f"{name}.log").open("wb") as out:
            self._processes[name] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "mainspring.cli.main",
                    "serve",
                    "--roles",
                    "scheduler,api" if api else "scheduler",
                    "--port",
                    str(self._port(name, api)),
                    "--parent",
                    str(os.getpid()),
                    "--shard-lease",
                    str(self.lease_s),
                    *options,
                ],
                env=env | {"MAINSPRING_DATABASE_URL": through or self.url},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return name

    def _port(self, name: str, api: bool) -> int:
        if api:
            self.ports[name] = free_port()
        return self.ports.get(name, 0)

    def signal(self, name: str, number: int) -> None:
        self._processes[name].send_signal(number)

    async def ended(self, name: str) -> int:
        """Wait for its end; return the exit status."""
        self.ports.pop(name, None)
        return await asyncio.to_thread(self._processes.pop(name).wait, 30)

    async def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        await self.ended(name)

    async def drain(self, name: str) -> None:
        self.signal(name, signal.SIGTERM)
        assert await self.ended(name) == 0, self.log(name)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def tell(self) -> None:
        for log in sorted(self._folder.glob("scheduler-*.log")):
            print(f"== {log.name}\n{log.read_text()[-3000:]}")

    def end(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    # The database ------------------------------------------------------------------------------------

    async def ask(self, sql: str, *args: Any) -> list[Any]:
        connection = await asyncpg.connect(self.url, server_settings=connection_settings())
        try:
            return list(await connection.fetch(sql, *args))
        finally:
            await connection.close()

    async def now_s(self) -> float:
        ((at,),) = await self.ask("SELECT clock_timestamp()")
        return float(at.timestamp())

    async def until(self, what: str, condition: str, *args: Any, within_s: float = 30) -> None:
        """Wait until a query returns true, across outages of the database; fail after `within_s`."""
        async with asyncio.timeout(within_s + 5):
            while True:
                with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    if await self._watch(condition, args, within_s):
                        return
                    rows = await self.ask("SELECT owner, count(*), min(watermark), now() FROM shards GROUP BY owner")
                    raise AssertionError(f"not within {within_s} s: {what}; {[tuple(r) for r in rows]}")

    async def _watch(self, condition: str, args: Sequence[Any], within_s: float) -> bool:
        connection = await asyncpg.connect(self.url, server_settings=connection_settings())
        try:
            for _ in range(int(within_s * 20)):
                if await connection.fetchval(condition, *args):
                    return True
                await connection.execute("SELECT pg_sleep(0.05)")
            return False
        finally:
            await connection.close(timeout=2)

    async def balanced(self, schedulers: int) -> None:
        """Wait until this many live schedulers share the shards evenly, and have decided since."""
        await self.until(
            f"{schedulers} schedulers with even loads",
            "SELECT count(*) = $1 AND max(n) - min(n) <= 1 AND sum(n) = 64 FROM (SELECT count(*) AS n FROM shards"
            " JOIN schedulers ON scheduler_id = owner AND schedulers.lease_expires_at > clock_timestamp()"
            " GROUP BY owner) AS loads",
            schedulers,
        )
        await self.decided(await self.now_s())

    async def decided(self, upto_s: float, shards: Sequence[int] = range(64), *, within_s: float = 30) -> None:
        """Wait until every instant up to a time is decided in these shards."""
        await self.until(
            "deciding",
            "SELECT min(watermark) >= to_timestamp($1) FROM shards WHERE shard = ANY ($2::smallint[])",
            upto_s,
            list(shards),
            within_s=within_s,
        )

    async def shards_of(self, name: str) -> list[int]:
        """Return the shards of this process; schedulers are named by host and process id."""
        rows = await self.ask(
            "SELECT shard FROM shards JOIN schedulers ON scheduler_id = owner WHERE name LIKE '%-' || $1",
            str(self.pid(name)),
        )
        return [row["shard"] for row in rows]

    async def epochs(self) -> dict[int, int]:
        return {row["shard"]: row["epoch"] for row in await self.ask("SELECT shard, epoch FROM shards")}

    async def judge(self, prefix: str = "") -> Verdict:
        return await judge(self.url, since_s=self.warm_s, prefix=prefix)


COPY_JOBS = """
INSERT INTO jobs SELECT (copy).* FROM (
    SELECT jsonb_populate_record(j, jsonb_build_object(
        'job_id', substr(gen_random_uuid()::text, 1, 34) || lpad(to_hex(n % 64), 2, '0'),
        'name', j.name || '-' || n, 'shard', n % 64)) AS copy
    FROM jobs j CROSS JOIN generate_series(1, $1::int) AS n) AS copies"""
COPY_VERSIONS = """
INSERT INTO job_versions SELECT copy.job_id, 1, v.tenant_id, v.spec, v.created_at, v.created_by
FROM jobs copy JOIN jobs j ON copy.name LIKE j.name || '-%' JOIN job_versions v ON v.job_id = j.job_id"""


async def load(url: str, *, every: Sequence[int] = (1, 2, 3), each: int = 128) -> None:
    """Insert jobs on round seconds, two of each interval in every shard. The last bits of an id are its shard."""
    async with Database(url) as database:
        for every_s in every:
            spec = JobSpec(
                name=f"job-{every_s}",
                task=NoopTask(),
                overlap="allow",
                misfire=Misfire(policy="all"),
                schedule=ScheduleSpec(every=every_s, aligned=True),
            )
            await jobs.create(database, spec, tenant=1, by="test")
        async with database.transaction() as connection:
            await connection.execute(COPY_JOBS, each)
            await connection.execute(COPY_VERSIONS)


@contextlib.asynccontextmanager
async def fleet(
    server: EmbeddedServer, url: str, folder: Path, *, schedulers: int = 3, lease_s: float = LEASE_S
) -> AsyncIterator[Fleet]:
    """Start schedulers and wait until they are evenly loaded."""
    running = Fleet(server, url, folder, lease_s)
    try:
        for _ in range(schedulers):
            running.start()
        if schedulers:
            await running.balanced(schedulers)
        running.warm_s = await running.now_s()
        yield running
    except BaseException:
        running.tell()
        raise
    finally:
        running.end()
