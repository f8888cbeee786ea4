"""Fills workflows and their runs, one of them with 10,000 steps."""

from __future__ import annotations

from datetime import datetime, timedelta

from seed_plan import TEAMS, Plan

from mainspring.domain.job import ShellTask
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.intake import workflows
from mainspring.store.db import Connection, Database

WORKFLOWS = 50
RUNS_PER_THOUSAND = 1
WIDE_STEPS = 10_000


async def fill_runs(database: Database, connection: Connection, plan: Plan, now: datetime) -> None:
    task = ShellTask(argv=("true",))
    steps = {
        "extract": Step(task=task),
        "clean": Step(task=task, needs=("extract",)),
        "load": Step(task=task, needs=("clean",)),
        "check": Step(task=task, needs=("clean",)),
        "publish": Step(task=task, needs=("load", "check")),
    }
    for n in range(WORKFLOWS):
        spec = WorkflowSpec(name=f"flow-{TEAMS[n % 12]}-{n:02d}", steps=steps)
        await workflows.apply(database, spec, tenant=1, by="seed")
    runs = plan.executions * RUNS_PER_THOUSAND // 1000
    await connection.execute(
        """
        CREATE TEMP TABLE seed_runs AS
        SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), w.job_id, n::text)
                   AS run_id, w.job_id, w.steps_id, at, CASE WHEN n % 40 = 0 THEN 'failed' ELSE 'succeeded' END AS state
        FROM generate_series(0, $1::int - 1) n
        CROSS JOIN LATERAL (SELECT $2::timestamptz - ((n + 1) * $3::float8 / $1) * interval '1 second') AS t (at)
        JOIN (SELECT row_number() OVER (ORDER BY job_id) - 1 AS k, job_id, steps_id FROM workflow_versions) w
            ON w.k = n % $4::int
        """,
        runs,
        now,
        (plan.days - 1) * 86400.0,
        WORKFLOWS,
    )
    await connection.execute("""
        INSERT INTO runs (run_id, tenant_id, job_id, version, attempt, state, open_steps, fire_at, started_at,
                          finished_at)
        SELECT run_id, 1, job_id, 1, 1, state, 0, at, at, at + interval '40 s' FROM seed_runs
    """)
    await connection.execute("""
        INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                             fire_at, due_at, queued_at, started_at, finished_at, duration_ms, session_id)
        SELECT run_id, job_id, 1, 1, 5, 1, state, 'manual', 'short', at, at, at, at, at + interval '40 s', 40000, run_id
        FROM seed_runs
    """)
    await connection.execute("""
        WITH made AS (
            INSERT INTO run_steps (run_id, tenant_id, step, execution_id, state, ok, released_at, finished_at)
            SELECT run_id, 1, step,
                   execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint + step * 8000), 12, '0'),
                                steps_id, run_id::text || step),
                   CASE WHEN state = 'succeeded' OR step < 4 THEN 'succeeded' ELSE 'failed' END, 0,
                   at + step * interval '8 s', at + (step + 1) * interval '8 s'
            FROM seed_runs CROSS JOIN generate_series(0, 4) step
            RETURNING *
        )
        INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                             fire_at, due_at, queued_at, started_at, finished_at, duration_ms)
        SELECT m.execution_id, r.steps_id, 1, 1, 5, 1, m.state, 'step', 'short', m.released_at, m.released_at,
               m.released_at, m.released_at, m.finished_at, 8000
        FROM made m JOIN seed_runs r USING (run_id)
    """)


async def fill_wide_run(database: Database, connection: Connection, now: datetime) -> None:
    """A workflow of 10,000 steps in a hundred layers, with a run that is halfway through."""
    task, steps = ShellTask(argv=("true",)), dict[str, Step]()
    for n in range(WIDE_STEPS):
        above = (n - 100, (n // 100 - 1) * 100 + (n * 7 + 1) % 100) if n >= 100 else ()
        steps[f"s{n // 100:02d}_{n % 100:02d}"] = Step(
            task=task, needs=tuple(dict.fromkeys(f"s{m // 100:02d}_{m % 100:02d}" for m in above))
        )
    await workflows.apply(database, WorkflowSpec(name="flow-wide", steps=steps), tenant=1, by="seed")
    begun = now - timedelta(minutes=20)
    await connection.execute(
        """
        CREATE TEMP TABLE seed_wide AS
        SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM $1::timestamptz) * 1000)::bigint), 12, '0'), w.job_id,
                            'wide') AS run_id, w.job_id, w.steps_id, $1::timestamptz AS at
        FROM workflow_versions w JOIN jobs j USING (job_id) WHERE j.name = 'flow-wide'
        """,
        begun,
    )
    await connection.execute(
        """
        INSERT INTO runs (run_id, tenant_id, job_id, version, attempt, state, open_steps, fire_at, started_at)
        SELECT run_id, 1, job_id, 1, 1, 'running', $1::int / 2, at, at FROM seed_wide
        """,
        WIDE_STEPS,
    )
    await connection.execute(
        """
        WITH made AS (
            INSERT INTO run_steps (run_id, tenant_id, step, execution_id, state, released_at, finished_at)
            SELECT run_id, 1, step,
                   execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint + step * 100), 12, '0'),
                                steps_id, run_id::text || step),
                   CASE WHEN step < $1::int / 2 THEN 'succeeded' ELSE 'blocked' END,
                   CASE WHEN step < $1::int / 2 THEN at + step * interval '100 ms' END,
                   CASE WHEN step < $1::int / 2 THEN at + (step + 5) * interval '100 ms' END
            FROM seed_wide CROSS JOIN generate_series(0, $1::int - 1) step
            RETURNING *
        )
        INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                             fire_at, due_at, queued_at, started_at, finished_at, duration_ms)
        SELECT m.execution_id, r.steps_id, 1, 1, 5, 1, m.state, 'step', 'short', m.released_at, m.released_at,
               m.released_at, m.released_at, m.finished_at, 500
        FROM made m JOIN seed_wide r USING (run_id) WHERE m.finished_at IS NOT NULL
        """,
        WIDE_STEPS,
    )
