"""Settling checks execution, attempt, session and state in the statement that changes the row."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from mainspring.domain.execution import Outcome
from mainspring.domain.settlement import AttemptResult, Final, Retry, Settled
from mainspring.store import results
from mainspring.store.db import Connection
from tests.support.settling import SettlingBench


async def settle(connection: Connection, ended: AttemptResult, how: str) -> set[UUID]:
    settled = Settled()
    if how == "succeeded":
        await results.settle_succeeded(connection, ended=[ended], settled=settled)
    elif how == "retry":
        await results.settle_retries(connection, retries=[Retry(ended, 0.0, 1, 0)], settled=settled)
    else:
        await results.settle_final(connection, final=[Final(ended, "failed", None)], settled=settled)
    return settled.executions


OUTCOMES: dict[str, Outcome] = {"succeeded": "succeeded", "retry": "failed", "final": "failed"}
ENDS = {"succeeded": "succeeded", "retry": "queued", "final": "failed"}


@pytest.mark.parametrize("how", OUTCOMES)
async def test_a_result_counts_once_and_only_of_the_attempt_and_session_that_run(
    bench: SettlingBench, how: str
) -> None:
    execution, session = await bench.started()
    outcome = OUTCOMES[how]
    strangers = [
        AttemptResult(execution, 1, uuid4(), outcome, 1),
        AttemptResult(execution, 2, session, outcome, 1),
        AttemptResult(uuid4(), 1, session, outcome, 1),
    ]
    async with bench.database.transaction() as connection:
        for stranger in strangers:
            assert await settle(connection, stranger, how) == set()
    assert (await bench.look(execution)).state == "running"
    mine = AttemptResult(execution, 1, session, outcome, 1)
    async with bench.database.transaction() as connection:
        assert await settle(connection, mine, how) == {execution}
        assert await settle(connection, mine, how) == set(), "a repeated report changes nothing"
    assert (await bench.look(execution)).state == ENDS[how]


async def test_only_current_attempts_are_locked_for_a_verdict(bench: SettlingBench) -> None:
    execution, session = await bench.started()
    current = AttemptResult(execution, 1, session, "failed")
    async with bench.database.transaction() as connection:
        (locked,) = await results.lock_results(connection, ended=[current])
        assert (locked.execution_id, locked.attempt, locked.cancelling) == (execution, 1, None)
        for stale in (AttemptResult(execution, 2, session, "failed"), AttemptResult(execution, 1, uuid4(), "failed")):
            assert await results.lock_results(connection, ended=[stale]) == []


async def test_a_final_failure_leaves_one_dead_letter(bench: SettlingBench) -> None:
    execution, session = await bench.started()
    async with bench.database.transaction() as connection:
        await settle(connection, AttemptResult(execution, 1, session, "failed", 1, error="no"), "final")
        found = await connection.fetch("SELECT dead_letter_id, state, error FROM dead_letters")
    assert [tuple(r) for r in found] == [(execution, "open", "no")]
