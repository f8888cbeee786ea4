"""Every state that schedulers commonly have, reached by what the product does, and named as the documentation says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.execution import STATES, TRANSITIONS
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import dependencies, executions
from mainspring.intake import runs as run_actions
from mainspring.store import dead_letters
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.support.runs import RunBench
from tests.support.scheduling import add, ledger, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench
from tools.reference.transitions import transitions_page

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(max=0)


class World:
    """What happened in one database, driven by hand; each method answers with the state it has brought about."""

    def __init__(self, database: Database, clock: VirtualClock) -> None:
        self._database = database
        self._clock = clock
        self._bench = SettlingBench(database)
        self._runs = RunBench(database)

    async def _state(self, execution: UUID) -> str:
        return (await self._bench.look(execution)).state

    async def _ended(self, outcome: str, **spec: Any) -> UUID:
        execution, session = await self._bench.started(**{"retries": ONCE, **spec})
        assert await self._bench.end(execution, session, outcome)
        return execution

    async def scheduled(self) -> str:
        at = self._clock.now + timedelta(hours=1)
        submission = executions.Submission(TENANT, "test", await self._bench.job(), at=at)
        execution = await self._bench.submitter.submit(submission)
        assert (await self._bench.look(execution)).due_at == at
        return await self._state(execution)

    async def pending(self) -> str:
        at = self._clock.now + timedelta(seconds=1)
        submission = executions.Submission(TENANT, "test", await self._bench.job(), at=at)
        execution = await self._bench.submitter.submit(submission)
        await self._clock.set(at)
        return await self._state(execution)

    async def queued(self) -> str:
        return await self._state(await self._bench.submit(await self._bench.job()))

    async def running(self) -> str:
        return await self._state((await self._bench.started())[0])

    async def retrying(self) -> str:
        execution = await self._ended("failed", retries=RetryPolicy(max=1, base="10s", jitter="none"))
        assert (await self._bench.look(execution)).attempt == 1
        return await self._state(execution)

    async def succeeded(self) -> str:
        return await self._state(await self._ended("succeeded"))

    async def failed(self) -> str:
        return await self._state(await self._ended("failed"))

    async def timed_out(self) -> str:
        return await self._state(await self._ended("timed_out"))

    async def cancelled(self) -> str:
        execution = await self._bench.submit(await self._bench.job())
        await executions.cancel(self._database, execution, tenant=TENANT, by="test", reason="")
        return await self._state(execution)

    async def dead_lettered(self) -> str:
        execution = await self._ended("failed")
        async with self._database.connection() as connection:
            letter = await dead_letters.dead_letter_by_id(connection, tenant=TENANT, dead_letter_id=execution)
        assert letter is not None and letter.state == "open"
        return await self._state(execution)

    async def orphaned(self) -> str:
        execution, session = await self._bench.started(retries=ONCE)
        await self._bench.end_session(session)
        return await self._state(execution)

    async def _overlapping(self, policy: str) -> str:
        """What became of a fire while the one before it lives."""
        await add(self._database, policy, overlap=policy)
        scheduler = await scheduler_on(self._database)
        for _ in range(2):
            await self._clock.advance(seconds=60)
            await step(scheduler)
        return (await ledger(self._database, policy))[-1][1]

    async def blocked(self) -> str:
        run = await self._runs.begin("behind", {"a": {}, "b": {"needs": ["a"]}})
        assert {s.name: s.state for s in (await self._runs.get(run)).steps}["b"] == "blocked"
        return await self._overlapping("queue_all")

    async def skipped(self) -> str:
        return await self._overlapping("skip")

    async def waiting_on_dependencies(self) -> str:
        for name in ("parent", "child"):
            await add(self._database, name)
        request = wire.NewDependency(job="parent")
        await dependencies.add(self._database, "child", request, tenant=TENANT, by="test")
        scheduler = await scheduler_on(self._database)
        await self._clock.advance(seconds=60)
        await step(scheduler)
        return (await ledger(self._database, "child"))[-1][1]

    async def upstream_failed(self) -> str:
        run = await self._runs.begin("broken", {"a": {}, "b": {"needs": ["a"]}})
        await self._runs.work(lambda _: "failed")
        behind = {s.name: s for s in (await self._runs.get(run)).steps}["b"]
        assert behind.reason == "a needed step failed"
        return behind.state

    async def force_completed(self) -> str:
        run = await self._runs.begin("forced", {"a": {}})
        await run_actions.force_complete(
            self._runs.runs, run.run_id, "a", "done by hand", None, tenant=TENANT, by="test"
        )
        (forced,) = (await self._runs.get(run)).steps
        assert forced.flag == "forced"
        return forced.state


# In this order, because some leave things in the queue.
REACHED: dict[str, Callable[[World], Awaitable[str]]] = {
    "running": World.running, "retrying": World.retrying, "success": World.succeeded, "failed": World.failed,
    "timed out": World.timed_out, "cancelled": World.cancelled, "dead-lettered": World.dead_lettered,
    "orphaned": World.orphaned, "skipped (upstream failed)": World.upstream_failed,
    "force-completed": World.force_completed, "scheduled": World.scheduled, "pending": World.pending,
    "queued": World.queued, "blocked": World.blocked, "skipped": World.skipped,
    "waiting on dependencies": World.waiting_on_dependencies,
}  # fmt: skip
SAME = {"completed": "success", "permanently failed": "dead-lettered"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the documentation's table with this first heading."""
    text = transitions_page().read_text(encoding="utf-8")
    table = text.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def documented() -> dict[str, str]:
    """Our state for each word used elsewhere."""
    return {word: state.strip("`") for words, state, _ in rows("elsewhere") for word in words.split(", ")}


def test_the_documented_state_machine_is_the_one_in_force() -> None:
    table = {state.strip("`"): set(re.findall(r"`(\w+)`", follow)) for state, _, follow in rows("state")}
    assert table == {state: {t.after for t in TRANSITIONS if t.before == state} for state in STATES}


@pytest.mark.requirement(60)
async def test_every_state_that_is_common_is_documented_and_reached(fresh: Database, virtual: VirtualClock) -> None:
    world = World(fresh, virtual)
    found = {word: await reach(world) for word, reach in REACHED.items()}
    found |= {word: found[other] for word, other in SAME.items()}
    assert found == documented()
    assert set(found.values()) == set(STATES)
