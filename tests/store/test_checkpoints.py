"""Checkpoints are written and read only by the session that runs the attempt."""

from __future__ import annotations

from uuid import uuid4

from mainspring.domain.settlement import AttemptResult, Retry, Settled
from mainspring.store import checkpoints, results
from mainspring.testing.clock import VirtualClock
from tests.support.settling import SettlingBench


async def test_only_the_session_that_runs_the_attempt_saves_and_reads(bench: SettlingBench) -> None:
    execution, session = await bench.started()
    async with bench.database.connection() as connection:

        async def read(by: object = session) -> object:
            found = await checkpoints.read_checkpoints(connection, session_id=by, attempts=[(execution, 0)])  # type: ignore[arg-type]
            return found.get(execution)

        for by, attempt in ((uuid4(), 1), (session, 2), (session, 0)):
            await checkpoints.save_checkpoints(connection, session_id=by, saved=[(execution, attempt, "stranger")])
            assert await read() is None
        await checkpoints.save_checkpoints(connection, session_id=session, saved=[(execution, 1, {"row": 7})])
        assert await read() == {"row": 7}
        assert await read(uuid4()) is None


async def test_the_next_attempt_reads_it_and_the_previous_one_can_not_overwrite_it(bench: SettlingBench) -> None:
    execution, first = await bench.started()
    async with bench.database.transaction() as connection:
        await checkpoints.save_checkpoints(connection, session_id=first, saved=[(execution, 1, 1)])
        failed = Retry(AttemptResult(execution, 1, first, "failed", 1), 0.0, 1, 0)
        await results.settle_retries(connection, retries=[failed], settled=Settled())
    second = await bench.session()
    await bench.claim(second)
    async with bench.database.connection() as connection:
        assert await checkpoints.read_checkpoints(connection, session_id=second, attempts=[(execution, 0)]) == {
            execution: 1
        }
        await checkpoints.save_checkpoints(connection, session_id=second, saved=[(execution, 2, 2)])
        await checkpoints.save_checkpoints(connection, session_id=first, saved=[(execution, 1, "late")])
        assert await checkpoints.read_checkpoints(connection, session_id=second, attempts=[(execution, 0)]) == {
            execution: 2
        }


async def test_checkpoints_of_ended_executions_are_forgotten(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution, session = await bench.started()
    async with bench.database.connection() as connection:
        await checkpoints.save_checkpoints(connection, session_id=session, saved=[(execution, 1, 1)])
        await virtual.advance(hours=2)
        await checkpoints.forget_checkpoints(connection)
        assert await connection.fetchval("SELECT count(*) FROM checkpoints") == 1, "it still runs"
    assert await bench.end(execution, session, "succeeded", duration_ms=1)
    async with bench.database.connection() as connection:
        await checkpoints.forget_checkpoints(connection)
        assert await connection.fetchval("SELECT count(*) FROM checkpoints") == 0
