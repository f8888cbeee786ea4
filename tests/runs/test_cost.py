"""What the end of a step costs does not depend on how many steps its run has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from mainspring.domain.settlement import AttemptResult, Settled
from mainspring.domain.workflow.run import ExecutionEnd
from mainspring.runs.advance import advance
from mainspring.runs.plans import PlanCache
from mainspring.store import results
from mainspring.store.db import Database
from tests.support.runs import RunBench

pytestmark = pytest.mark.anyio

WIDTH = 10
TOUCHED = """
SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int AS read,
       sum(n_tup_ins + n_tup_upd + n_tup_del)::int AS written
FROM pg_stat_xact_user_tables WHERE schemaname = 'mainspring' AND relname IN ('runs', 'run_steps', 'workflow_steps')
"""


def layers(steps: int) -> dict[str, Any]:
    """Layers in which each step needs two of the layer before."""
    found: dict[str, Any] = {}
    for n in range(steps):
        layer, place = divmod(n, WIDTH)
        before = (layer - 1) * WIDTH
        needs = [f"s{before + place}", f"s{before + (place + 1) % WIDTH}"] if layer else []
        found[f"s{n}"] = {"needs": needs}
    return found


class Counted:
    """A connection that counts what it is asked."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.statements = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("fetch", "fetchrow", "fetchval", "execute"):
            self.statements += 1
        return getattr(self._inner, name)


@dataclass(frozen=True)
class Cost:
    statements: int
    read: int
    written: int


async def first_layer(bench: RunBench, steps: int) -> Cost:
    """Ends the first layer in one transaction: 20 edges are counted, 10 steps released."""
    await bench.begin(f"w{steps}", layers(steps))
    rows, session, plans = await bench.claim(), await bench.session(), PlanCache()
    assert len(rows) == WIDTH
    ended = [AttemptResult(r["execution_id"], r["attempt"], session, "succeeded", 1) for _, r in rows]
    endings = [ExecutionEnd(e.execution_id, "succeeded") for e in sorted(ended, key=lambda e: e.execution_id)]
    async with bench.database.hot() as connection:
        trial = connection.transaction()
        await trial.start()
        run = await connection.fetchrow("SELECT * FROM runs ORDER BY run_id DESC LIMIT 1")
        assert run is not None
        await plans.get(connection, tenant=1, job_id=run["job_id"], version=run["version"])
        await results.settle_succeeded(connection, ended=ended, settled=Settled())
        before = await connection.fetchrow(TOUCHED)
        counted: Any = Counted(connection)
        await advance(counted, plans, endings)
        after = await connection.fetchrow(TOUCHED)
        queued = await connection.fetchval("SELECT count(*) FROM executions WHERE state = 'queued'")
        await trial.rollback()
    assert before is not None and after is not None and queued == WIDTH
    return Cost(counted.statements, after["read"] - before["read"], after["written"] - before["written"])


@pytest.mark.requirement(110)
async def test_ten_thousand_steps_cost_no_more_for_each_edge_than_a_hundred(fresh: Database) -> None:
    few, many = await first_layer(RunBench(fresh), 100), await first_layer(RunBench(fresh), 10_000)
    assert many.statements == few.statements
    assert (many.written, few.written) == (WIDTH + WIDTH + 1 + WIDTH,) * 2, "ended, counted, the run, released"
    assert many.read <= few.read * 1.1 + 5, f"{few} {many}"
