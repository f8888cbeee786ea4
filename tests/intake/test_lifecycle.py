"""What happened to an execution, by what is stored of it."""

from __future__ import annotations

import pytest

from mainspring.domain.events import LIFECYCLE
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import executions
from mainspring.intake.lifecycle import events_of
from mainspring.store import fires
from mainspring.store.db import Database
from tests.clocks import VirtualClock
from tests.results.test_settle import TENANT, Bench

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(fresh: Database) -> Bench:
    return Bench(fresh)


async def names(bench: Bench, execution: object) -> list[str]:
    found = events_of(await bench.look(execution))  # type: ignore[arg-type]
    assert {event.event for event in found} <= set(LIFECYCLE)
    assert [event.at for event in found] == sorted(event.at for event in found)
    return [event.event.removeprefix("execution.") for event in found]


async def test_a_life_with_a_retry(bench: Bench, virtual: VirtualClock) -> None:
    job = await bench.job(retries=RetryPolicy(max=1, base="10s", jitter="none"))
    execution = await bench.submit(job)
    assert await names(bench, execution) == ["created", "due", "queued"]
    await virtual.advance(seconds=1)
    session = await bench.session(lease_s=3600)
    await bench.claim(session)
    assert await names(bench, execution) == ["created", "due", "queued", "started"]
    await virtual.advance(seconds=1)
    await bench.end(execution, session, "failed", error="oops")
    found = events_of(await bench.look(execution))
    assert [event.event for event in found if event.event == "execution.retrying"] == ["execution.retrying"]
    assert next(event.text for event in found if event.event == "execution.retrying") == "oops"
    await virtual.advance(seconds=10)
    async with bench.database.connection() as connection:
        await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
    await virtual.advance(seconds=1)
    await bench.claim(session)
    await virtual.advance(seconds=1)
    await bench.end(execution, session, "succeeded", attempt=2)
    assert await names(bench, execution) == [
        "created", "started", "retrying", "due", "queued", "started", "succeeded",
    ]  # fmt: skip


async def test_what_was_cancelled_before_it_began(bench: Bench, virtual: VirtualClock) -> None:
    execution = await bench.submit(await bench.job())
    await virtual.advance(seconds=1)
    await executions.cancel(bench.database, execution, tenant=TENANT, by="someone", reason="not needed")
    assert await names(bench, execution) == ["created", "due", "queued", "cancelled"]
    last = events_of(await bench.look(execution))[-1]
    assert last.text == "cancelled by someone: not needed"
