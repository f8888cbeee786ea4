"""A run that cannot be started, or a wait that cannot be ended, holds up no other."""

from __future__ import annotations

from uuid import UUID

import pytest

from mainspring.intake.executions import Submission, insert_one
from mainspring.store.db import Database
from tests.support.runs import TENANT, RunBench, states

pytestmark = pytest.mark.anyio

BROKEN = """
CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.run_id = ANY (ARRAY[{runs}]::uuid[]) THEN RAISE 'interval out of range' USING errcode = '22008'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER broken BEFORE UPDATE ON run_steps FOR EACH ROW EXECUTE FUNCTION broken();
"""


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def queued(bench: RunBench, name: str) -> UUID:
    """Queue a run, as the scheduler does: the leader starts it."""
    async with bench.database.transaction() as connection:
        job_id = await connection.fetchval("SELECT job_id FROM jobs WHERE name = $1", name)
        return await insert_one(connection, Submission(TENANT, "test", job_id, None, None), None)


async def refuse_updates_of(bench: RunBench, *runs: UUID) -> None:
    """Let the database fail at every change of the steps of these runs."""
    async with bench.database.connection() as connection:
        await connection.execute(BROKEN.format(runs=", ".join(f"'{run}'" for run in runs)))


async def test_a_run_that_cannot_start_fails_and_the_others_start(bench: RunBench) -> None:
    await bench.apply("flow", {"a": {}})
    runs = [await queued(bench, "flow") for _ in range(5)]
    await refuse_updates_of(bench, runs[2])
    await bench.work()
    assert [(await bench.get(run)).state for run in runs[:2] + runs[3:]] == ["succeeded"] * 4
    async with bench.database.connection() as connection:
        row = await connection.fetchrow("SELECT state, error FROM history WHERE execution_id = $1", runs[2])
    assert row is not None
    assert row["state"] == "failed"
    assert "the run could not be started: DatetimeFieldOverflowError: interval out of range" in row["error"]


async def test_a_wait_that_cannot_be_ended_does_not_hold_up_others(bench: RunBench) -> None:
    await bench.apply("nap", {"a": {"wait": {"for": "0.001s"}}})
    first, second = await bench.start("nap"), await bench.start("nap")
    await refuse_updates_of(bench, first.run_id)
    await bench.work()
    assert states(await bench.get(first)) == {"a": "waiting"}
    assert (await bench.get(second)).state == "succeeded"


async def test_a_wait_that_a_parameter_makes_endless_fails_its_step(bench: RunBench) -> None:
    await bench.apply("nap", {"a": {"wait": {"for": "{{params.s}}"}}}, params={"s": {}})
    found = await bench.start("nap", {"s": 2**62})
    assert found.state == "failed"
    assert found.steps[0].reason == f"{2**62} is too long: at most 1,000 years"
