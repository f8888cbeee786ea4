"""PostgreSQL goes away under load and comes back: late, never lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mainspring.embedded.server import EmbeddedServer
from tests.support.fleet import ROUNDS, fleet
from tests.support.processes import until

pytestmark = pytest.mark.fault


async def take_down(server: EmbeddedServer, how: str) -> None:
    if how == "fast":
        await server.stop()
        return
    assert server.pid is not None
    os.kill(server.pid, signal.SIGQUIT if how == "immediate" else signal.SIGKILL)
    await until("the end of PostgreSQL", lambda: server.pid is None, within_s=20)


@pytest.mark.fault("F9")
@pytest.mark.parametrize("how", ["fast", "immediate", "killed"])
async def test_postgresql_restarted_under_load(durable: EmbeddedServer, loaded: str, tmp_path: Path, how: str) -> None:
    """Firing resumes within five seconds of the server accepting connections, and nothing is lost or doubled."""
    resumed: list[float] = []
    async with fleet(durable, loaded, tmp_path) as schedulers:
        for _ in range(ROUNDS):
            await take_down(durable, how)
            await durable.start()
            back = await schedulers.now_s()
            await schedulers.decided(back + 3)
            verdict = await schedulers.judge()
            first = verdict.first_after(back, range(64))
            assert len(first) == 64
            resumed += first.values()
        await schedulers.balanced(3)
        verdict = await schedulers.judge()
    verdict.demand(f"PostgreSQL restarted ({how})", resume_max_s=round(max(resumed), 3))
    assert max(resumed) <= 5


@pytest.mark.fault("F9")
@pytest.mark.requirement(28)
async def test_an_outage_longer_than_the_lease(durable: EmbeddedServer, loaded: str, tmp_path: Path) -> None:
    """Everything that came due meanwhile appears afterwards; with `make faults` after half a minute."""
    outage_s = 6 if ROUNDS == 1 else 30
    async with fleet(durable, loaded, tmp_path, lease_s=2) as schedulers:
        down = await schedulers.now_s()
        await durable.stop()
        await until_gone(outage_s)
        await durable.start()
        back = await schedulers.now_s()
        await schedulers.decided(back + 3)
        verdict = await schedulers.judge()
        meanwhile = [f for f in verdict.fires if down + 1 < f.at_s < back]
        resumed = max(verdict.first_after(back, range(64)).values())
        await schedulers.balanced(3)
        verdict = await schedulers.judge()
    verdict.demand("outage", outage_s=outage_s, fires_meanwhile=len(meanwhile), resume_max_s=round(resumed, 3))
    assert len(meanwhile) > 100 * (outage_s - 2)
    assert resumed <= 5


async def until_gone(seconds: float) -> None:
    """Wait out the outage; only the clock can end it."""
    import time

    end = time.monotonic() + seconds
    await until("the end of the outage", lambda: time.monotonic() >= end, within_s=seconds + 5)
