"""Ticks whose connection dies: before the commit nothing is written, after it nothing is decided again."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from mainspring.scheduler.service import Scheduler
from mainspring.store import fires, shards
from mainspring.store.db import AWAY, Connection, Database
from mainspring.testing.clock import VirtualClock
from tests.support.flaky_database import Flaky
from tests.support.scheduling import add, finish_all, ledger, scheduler_on, sees_the_time, step
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio


async def test_a_fire_whose_commit_was_not_answered_is_not_decided_again_after_it_has_ended(
    fresh: Database, virtual: VirtualClock
) -> None:
    """Its id is no protection then: the execution has left the table of live ones. The watermark is."""
    await add(fresh, "job", overlap="allow")
    flaky = Flaky(fresh.dsn)
    async with flaky:
        scheduler = Scheduler(flaky, SilentBus(), lease_s=300)
        await step(scheduler)
        await virtual.advance(seconds=60)
        sees_the_time(scheduler, virtual.now)
        flaky.trouble = ["after"]
        with pytest.raises(ConnectionResetError):
            await scheduler.decide()
        assert await ledger(fresh, "job") == [(60, "queued", None)], "the commit succeeded; only its answer was lost"
        await finish_all(fresh)
        await step(scheduler)
        assert await ledger(fresh, "job") == [(60, "succeeded", None)]


@pytest.mark.parametrize("where", ["fire", "advance_shards"])
async def test_a_connection_that_dies_inside_a_tick_leaves_neither_fire_nor_watermark(
    fresh: Database, virtual: VirtualClock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    await add(fresh, "job", overlap="allow")
    scheduler = await scheduler_on(fresh)
    before = await watermarks(fresh)
    await virtual.advance(seconds=60)
    sees_the_time(scheduler, virtual.now)
    module: Any = fires if where == "fire" else shards
    statement = getattr(module, where)

    async def dies(connection: Connection, **arguments: Any) -> Any:
        monkeypatch.undo()
        if where == "advance_shards":
            await statement(connection, **arguments)
        connection.terminate()
        raise ConnectionResetError("the process died here")

    monkeypatch.setattr(module, where, dies)
    with contextlib.suppress(*AWAY):
        await scheduler.decide()
    assert await ledger(fresh, "job") == [] and await watermarks(fresh) == before
    await step(scheduler)
    assert await ledger(fresh, "job") == [(60, "queued", None)]


async def watermarks(database: Database) -> dict[int, Any]:
    async with database.connection() as connection:
        return {row["shard"]: row["watermark"] for row in await connection.fetch("SELECT shard, watermark FROM shards")}
