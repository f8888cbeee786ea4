"""Cost of row-level security: submissions and a scan of history, as owner, as server and as one tenant.

The owner has no policies. The three take turns, so that the ratios hold on a busy machine.

make bench ARGS=tenancy        ROWS=100000 for a short try
"""

from __future__ import annotations

import asyncio
import os
import time
from uuid import UUID

from harness import machine, publish, quantile

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.store.database_roles import grant_roles
from mainspring.store.db import Database
from mainspring.views import executions

ROWS = int(os.environ.get("ROWS", "1000000"))
ROUNDS = int(os.environ.get("ROUNDS", "300"))
SCANS = 15
BATCH = 500
SCAN = (
    "SELECT state, count(*), avg(duration_ms) FROM history"
    " WHERE tenant_id = 1 AND finished_at > db_now() - interval '1 day' GROUP BY state"
)


async def fill(database: Database) -> None:
    """Half of the final executions belong to another tenant."""
    async with database.connection() as connection:
        await connection.execute("INSERT INTO tenants (name) VALUES ('other')")
        await connection.execute(
            "INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,"
            " fire_at, due_at, started_at, finished_at, duration_ms) SELECT gen_random_uuid(), gen_random_uuid(),"
            " 1 + n % 2, 1, 5, 1, 'succeeded', 'fire', 'short', at, at, at, at, n % 1000 FROM (SELECT n, db_now()"
            " - make_interval(secs => 7200.0 * n / $1) AS at FROM generate_series(1, $1::int) n) AS t",
            ROWS,
            timeout=1800,
        )
        await connection.execute("ANALYZE history", timeout=600)


async def submitting(submitter: Submitter, job_id: UUID, count: int) -> float:
    """Milliseconds of a submission, or of a batch that is written in one statement."""
    started = time.perf_counter()
    await asyncio.gather(*(submitter.submit(Submission(1, "bench", job_id, keyed=False)) for _ in range(count)))
    return (time.perf_counter() - started) * 1000


async def scanning(database: Database) -> float:
    async with database.connection() as connection:
        started = time.perf_counter()
        await connection.fetch(SCAN)
        return (time.perf_counter() - started) * 1000


async def page(database: Database) -> float:
    """Milliseconds of the newest 100 executions of a tenant."""
    started = time.perf_counter()
    await executions.list_executions(database, tenant=1, limit=100)
    return (time.perf_counter() - started) * 1000


async def main() -> None:
    async with machine() as found:
        server, tenant = found.postgres.server_dsn(), found.postgres.tenant_dsn()
        await grant_roles(found.postgres.dsn, server_url=server, tenant_url=tenant)
        await fill(found.database)
        job_id = await jobs.create(found.database, JobSpec(name="job", task=NoopTask()), tenant=1, by="bench")
        async with Database(server, tenant_dsn=tenant) as roles:
            databases = {"owner": found.database, "server": roles, "tenant": roles.of(1)}
            submitters = {role: Submitter(database) for role, database in databases.items()}
            took: dict[str, dict[str, list[float]]] = {}
            for number in range(ROUNDS):
                for role, database in databases.items():
                    work = {
                        "one submission": submitting(submitters[role], job_id, 1),
                        f"{BATCH} submissions": submitting(submitters[role], job_id, BATCH) if number < SCANS else None,
                        f"scan of {ROWS:,} rows": scanning(database) if number < SCANS else None,
                        "page of 100 executions": page(database),
                    }
                    for name, measured in work.items():
                        if measured is not None:
                            took.setdefault(name, {}).setdefault(role, []).append(await measured)
    rows, figures = [], {}
    for name, by_role in took.items():
        middle = {role: quantile(values, 0.5) for role, values in by_role.items()}
        cells = " | ".join(f"{middle[role]:.2f}" for role in databases)
        ratios = {role: middle[role] / middle["owner"] for role in ("server", "tenant")}
        rows.append(f"| {name} | {cells} | {ratios['server']:.2f} | {ratios['tenant']:.2f} |")
        figures |= {f"{name}, {role}": round(ratio, 3) for role, ratio in ratios.items()}
    publish(
        "tenancy",
        [
            "Median milliseconds, and the ratio to the owner, for whom no policy applies.",
            "",
            "| | owner | server | tenant | server/owner | tenant/owner |",
            "|---|---|---|---|---|---|",
            *rows,
        ],
        figures,
        written="ROWS" not in os.environ,
    )


if __name__ == "__main__":
    asyncio.run(main())
