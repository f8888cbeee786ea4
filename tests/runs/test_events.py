"""Events for runs: before the run has begun, before the step waits, once, and never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, NotFound
from mainspring.duties.retention import Retention
from mainspring.intake import runs as run_actions
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.support.runs import TENANT, RunBench

pytestmark = pytest.mark.anyio

WHO: dict[str, Any] = {"tenant": TENANT, "by": "test"}
STEPS: dict[str, Any] = {
    "sent": {"event": {"name": "go"}},
    "then": {"needs": ["sent"], "when": "steps.sent.result.n > 0"},
}
ONE = {"concurrency": {"limit": 1}}


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def queued(bench: RunBench) -> tuple[wire.Run, wire.Run]:
    """A run, and one that may not begin before it has ended."""
    await bench.apply("flow", STEPS, **ONE)
    both = [await bench.start("flow"), await bench.start("flow")]
    await bench.timers.run_due()
    waits, runs = sorted([await bench.get(run) for run in both], key=lambda run: run.state)
    assert (runs.state, waits.state) == ("running", "queued")
    return runs, waits


async def test_an_event_for_a_run_that_is_still_queued_is_kept(bench: RunBench) -> None:
    first, second = await queued(bench)
    told = await run_actions.send_event(bench.runs, second.run_id, "go", {"n": 7}, **WHO)
    assert told.state == "queued"
    with pytest.raises(Conflict, match="was already received from test"):
        await run_actions.send_event(bench.runs, second.run_id, "go", {"n": 8}, **WHO)
    with pytest.raises(NotFound, match="waits for an event 'stop'; it waits for go"):
        await run_actions.send_event(bench.runs, second.run_id, "stop", None, **WHO)
    with pytest.raises(NotFound):
        await run_actions.send_event(bench.runs, second.run_id, "go", None, tenant=2, by="stranger")
    await run_actions.send_event(bench.runs, first.run_id, "go", {"n": 0}, **WHO)
    await bench.work()
    ended = await bench.get(second)
    assert ended.state == "succeeded" and ended.steps[0].result == {"n": 7}
    assert [s.state for s in ended.steps] == ["succeeded", "succeeded"]
    assert [s.state for s in (await bench.get(first)).steps] == ["succeeded", "skipped"]


async def test_a_run_begins_with_the_event_or_hears_of_it(bench: RunBench) -> None:
    """However the two meet, the step is not left waiting."""
    await bench.apply("flow", STEPS, **ONE)
    for _ in range(8):
        run = await bench.start("flow")
        await asyncio.gather(
            run_actions.send_event(bench.runs, run.run_id, "go", {"n": 1}, **WHO), bench.timers.run_due()
        )
        await bench.work()
        assert (await bench.get(run)).state == "succeeded"


async def test_what_a_run_that_never_began_was_sent_is_forgotten(bench: RunBench, virtual: VirtualClock) -> None:
    from mainspring.intake import executions

    _, second = await queued(bench)
    await run_actions.send_event(bench.runs, second.run_id, "go", None, **WHO)
    await executions.cancel(bench.database, second.run_id, reason="", **WHO)
    with pytest.raises(Conflict, match="before it started"):
        await run_actions.send_event(bench.runs, second.run_id, "go", None, **WHO)
    retention = Retention(bench.database, leads=lambda: True)
    await retention.run_once()
    async with bench.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM run_events") == 1
    await virtual.advance(days=91)
    await retention.run_once()
    async with bench.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM run_events") == 0
