"""The peers: where their jobs are, how they are configured, and how large a drain of theirs is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Definition:
    """One peer. `left` is true while a job is not finished, `clear` removes all of them; both empty on Redis."""

    name: str
    title: str
    configuration: str
    left: str = ""
    clear: str = ""
    share: float = 1.0  # of the drain's executions: slow ones get fewer
    bulk: bool = False  # has a call that submits many at once
    language: Literal["python", "node", "go"] = "python"
    drain_processes: int = 1
    later: bool = False  # can submit many jobs that become due at one instant
    flows: bool = False  # has chains and fan-outs

    @property
    def on_redis(self) -> bool:
        return not self.left


PEERS = {
    peer.name: peer
    for peer in (
        Definition(
            "pgqueuer",
            "PgQueuer",
            "asyncpg, uvloop, LISTEN/NOTIFY, tables logged; one process; batch size 10 (default), drain 1,000",
            left="SELECT EXISTS (SELECT FROM pgqueuer)",
            clear="TRUNCATE pgqueuer, pgqueuer_log",
            bulk=True,
        ),
        Definition(
            "oban",
            "Oban (Python)",
            "psycopg, uvloop, one process, queue of 10 (default); finished jobs are kept",
            left="SELECT EXISTS (SELECT FROM oban_jobs WHERE state IN ('available', 'executing'))",
            clear="TRUNCATE oban_jobs",
            share=0.1,
            bulk=True,
        ),
        Definition(
            "procrastinate",
            "Procrastinate",
            "psycopg, one process, concurrency 10, LISTEN/NOTIFY; finished jobs are kept",
            left="SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
            clear="TRUNCATE procrastinate_jobs CASCADE",
            share=0.03,
            bulk=True,
        ),
        Definition(
            "huey",
            "Huey",
            "Redis, two worker processes, no results",
            share=0.1,
        ),
        Definition(
            "celery",
            "Celery",
            "Redis, two prefork processes, results ignored; prefetch 4 (default), drain 64",
            share=0.05,
            flows=True,
        ),
        Definition(
            "dbos",
            "DBOS",
            "a workflow without steps on a queue that is polled every 50 ms (default 1 s), one process",
            left="SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))",
            clear="TRUNCATE dbos.workflow_status CASCADE",
            share=0.02,
            flows=True,
        ),
        Definition(
            "graphile",
            "graphile-worker",
            "functions in JavaScript; 10 jobs at a time; drain: two processes, 24 jobs, `localQueue` of 2,000,"
            " `completeJobBatchDelay` 0; finished jobs are deleted",
            left="SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)",
            clear="TRUNCATE graphile_worker._private_jobs",
            bulk=True,
            language="node",
            drain_processes=2,
            later=True,
        ),
        Definition(
            "river",
            "River",
            "functions in Go; 100 jobs at a time, `FetchCooldown` 1 ms (default 100); drain: 2,000 jobs, fetched every"
            " 2 ms; finished jobs are kept",
            left="SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'scheduled'))",
            clear="TRUNCATE river_job",
            bulk=True,
            language="go",
            later=True,
        ),
        Definition(
            "pgboss",
            "pg-boss",
            "functions in JavaScript that get batches; polls every 0.5 s (its shortest), and at once while there is"
            " more; batches of 100, drain 2 pollers and 2,000; finished jobs are kept",
            left="SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed' AND name = 'nothing')",
            clear="TRUNCATE pgboss.job",
            bulk=True,
            language="node",
            later=True,
        ),
        Definition(
            "dramatiq",
            "Dramatiq",
            "Redis, two worker processes of 8 threads (default), no results",
            share=0.05,
        ),
        Definition(
            "asynq",
            "Asynq",
            "functions in Go, on Redis; 10 jobs at a time, drain 100; finished jobs are deleted",
            share=0.5,
            language="go",
        ),
    )
}
APSCHEDULER = "date jobs, pool of 10 threads (default), no misfire limit; in memory and on PostgreSQL"
TEMPORAL = (
    "not measured: its server is in no registry. The test server of `temporalio` is downloaded from elsewhere;"
    " the Go module `go.temporal.io/server` is a library without a program for PostgreSQL"
)
MAINSPRING = (
    "`serve` with the api and scheduler roles in one process, one worker of 100 slots (drain and herd: 4,000) and its"
    " runners; no rate limit; history is kept"
)
REDIS = "default settings: snapshots (`save 3600 1 300 100 60 10000`), no append-only file: not durable"
