"""Answers of the database that are lost or late, and connections that it refuses. Figures are lines of JSON."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from mainspring.embedded.server import EmbeddedServer
from tests.support.fleet import ROUNDS, Fleet, fleet
from tests.support.tcp_proxy import proxy

pytestmark = pytest.mark.fault

DELAYS_MS = (50, 200) if ROUNDS == 1 else (50, 200, 1000)


async def warm(schedulers: Fleet) -> None:
    """Wait for both schedulers; lateness counts from now on."""
    await schedulers.balanced(2)
    schedulers.warm_s = await schedulers.now_s()


@pytest.mark.fault("F10")
async def test_commits_whose_answers_are_lost(durable: EmbeddedServer, loaded: str, tmp_path: Path) -> None:
    """The scheduler must assume that nothing was written, and finds by the watermark that everything was."""
    async with proxy(loaded) as door, fleet(durable, loaded, tmp_path, schedulers=0) as schedulers:
        for _ in range(2):
            schedulers.start(through=door.url)
        await warm(schedulers)
        for _ in range(3 * ROUNDS):
            door.lose_commits = 2
            begun = await schedulers.now_s()
            await schedulers.decided(begun + 2)
        door.lose_commits = 0
        await schedulers.balanced(2)
        verdict = await schedulers.judge()
    verdict.demand("answers to commits lost", lost=door.lost_commits)
    assert door.lost_commits >= 2 * ROUNDS, "ticks have lost answers"


@pytest.mark.fault("F13")
@pytest.mark.parametrize("delay_ms", DELAYS_MS)
async def test_a_slow_database(durable: EmbeddedServer, loaded: str, tmp_path: Path, delay_ms: int) -> None:
    """Each answer takes longer: fires are late by a few answers, none is lost, and no lease ends."""
    async with proxy(loaded) as door, fleet(durable, loaded, tmp_path, schedulers=0) as schedulers:
        for _ in range(2):
            schedulers.start(through=door.url)
        await warm(schedulers)
        epochs = await schedulers.epochs()
        door.delay_s = delay_ms / 1000
        begun = await schedulers.now_s()
        await schedulers.decided(begun + 4 * ROUNDS, within_s=60 + 4 * ROUNDS)
        assert await schedulers.epochs() == epochs, "every shard kept its owner"
        door.delay_s = 0.0
        await schedulers.balanced(2)
        verdict = await schedulers.judge()
    verdict.demand("slow database", delay_ms=delay_ms)


@pytest.mark.fault("F14")
async def test_the_connection_limit_is_reached(durable: EmbeddedServer, loaded: str, tmp_path: Path) -> None:
    """All connections end and few are accepted; when more are accepted again, everything is made up for."""
    name = loaded.split("?", maxsplit=1)[0].rpartition("/")[2]
    async with fleet(durable, loaded, tmp_path, lease_s=2) as schedulers:
        back = 0.0
        admin = await asyncpg.connect(durable.superuser_dsn("postgres"))
        try:
            for _ in range(ROUNDS):
                await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
                ended = await admin.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1", name
                )
                assert ended > 3
                await admin.execute("SELECT pg_sleep(5)")  # more than two leases
                await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
                back = await schedulers.now_s()
                await schedulers.decided(back + 2)
            await schedulers.balanced(3)
        finally:
            await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
            await admin.close()
        verdict = await schedulers.judge()
    resumed = max(verdict.first_after(back, range(64)).values())
    verdict.demand("connection limit", refused_s=5, resume_max_s=round(resumed, 3))
