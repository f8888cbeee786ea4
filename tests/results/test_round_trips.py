"""How many statements a report of results takes: each is a round trip, and most of the time a report takes."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.settlement import AttemptResult
from mainspring.results.batch import Report
from mainspring.store import logs
from mainspring.store.db import Database
from tests.support.settling import TENANT, SettlingBench
from tests.support.statements import listen

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("with_output", "ends"), [(False, True), (True, True), (True, False)])
async def test_a_success_with_or_without_output_takes_one_statement(
    fresh: Database, monkeypatch: pytest.MonkeyPatch, with_output: bool, ends: bool
) -> None:
    bench = SettlingBench(fresh)
    job = await bench.job()
    session = await bench.session()
    execution = await bench.submit(job)
    (row,) = await bench.claim(session)
    statements: list[Any] = []
    listen(fresh, "hot", statements.append, monkeypatch)
    output = [wire.Output(execution_id=execution, attempt=1, seq=0, stream="stdout", data=b"hello\n")]
    ended = [AttemptResult(execution, row["attempt"], session, "succeeded", 1)] if ends else []
    assert await bench.settler.settle(Report(session, ended, output if with_output else ())) == set()
    # The driver asks once per connection for types that it does not know.
    own = [s.query for s in statements if "typeinfo" not in s.query and "current_setting" not in s.query]
    assert len(own) == 1, own
    async with fresh.connection() as connection:
        stored = await logs.read_logs(connection, tenant=TENANT, execution_id=execution, after=(0, -1), limit=10)
        live = await connection.fetchval("SELECT count(*) FROM executions")
        kept = await connection.fetchval("SELECT count(*) FROM history WHERE state = 'succeeded'")
    assert [data for _, _, _, data, _ in stored] == ([b"hello\n"] if with_output else [])
    assert (live, kept) == ((0, 1) if ends else (1, 0))


async def test_output_of_another_session_is_not_stored(fresh: Database) -> None:
    bench = SettlingBench(fresh)
    job = await bench.job()
    session, other = await bench.session(), await bench.session()
    mine, theirs = await bench.submit(job), await bench.submit(job)
    rows = {row["execution_id"]: row for row in [*await bench.claim(session), *await bench.claim(other)]}
    (first,) = [e for e, row in rows.items() if row["session_id"] == session]
    (second,) = [e for e, row in rows.items() if row["session_id"] == other]
    assert {first, second} == {mine, theirs}
    output = [
        wire.Output(execution_id=execution, attempt=1, seq=0, stream="stdout", data=b"x")
        for execution in (first, second)
    ]
    ended = [AttemptResult(first, 1, session, "succeeded", 1)]
    assert await bench.settler.settle(Report(session, ended, output)) == set()
    async with fresh.connection() as connection:
        stored = await connection.fetch("SELECT execution_id FROM log_chunks")
    assert [row["execution_id"] for row in stored] == [first]
