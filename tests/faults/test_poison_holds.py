"""No kind of poison holds the event loop of a server and its worker for more than 100 ms of CPU time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import httpx2
import pytest

from tests.conftest import Cluster
from tests.faults.test_poison_definitions import save
from tests.support.figures import record
from tests.support.pages import NAVIGATION, sign_in
from tests.support.poison_kinds import COLOURED, COSTLY, Stranger
from tests.support.processes import until_async

pytestmark = [pytest.mark.anyio, pytest.mark.fault]

LONGEST_S = 0.1
EACH = 6
TURN_S = 0.001


async def longest_hold(work: Awaitable[object]) -> float:
    """The most CPU time of this thread between two turns of another task: server, worker and client share the loop."""
    longest, before = 0.0, time.thread_time()
    done = asyncio.ensure_future(work)
    while not done.done():
        await asyncio.wait([done], timeout=TURN_S)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    await done
    return longest


async def test_no_kind_of_poison_holds_the_event_loop(cluster: Cluster) -> None:
    """F27, in CPU time: start delays on a machine that is busy itself say little."""
    token = {"Authorization": f"Bearer {cluster.token}"}
    worker_token = {"Authorization": f"Bearer {cluster.worker_token}", "Mainspring-Protocol": "1"}
    async with (
        httpx2.AsyncClient(base_url=cluster.url, headers=token, timeout=60) as http,
        httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser,
        httpx2.AsyncClient(base_url=cluster.url, headers=worker_token, timeout=60) as registering,
        cluster.worker(),
        cluster.client() as client,
    ):
        await sign_in(browser, cluster.token)
        await save(cluster.database.dsn)
        for path, body in (("jobs", COLOURED), ("workflows", COSTLY)):
            assert (await http.post(f"/api/v1/{path}", json=body)).status_code == 201

        async def has_output() -> bool:
            ended = (await client.history(str(COLOURED["name"]))).items
            return any(execution.state == "succeeded" for execution in ended)

        await until_async("output in colours", has_output, within_s=60)
        kinds = Stranger(http, browser, registering).kinds()
        for one in kinds.values():  # what is imported and compiled once is not poison
            await one(0)
            await one(1)
        held = {kind: max([await longest_hold(one(n)) for n in range(EACH)]) for kind, one in kinds.items()}
    figures: dict[str, Any] = {kind: round(hold, 3) for kind, hold in held.items()}
    record("longest hold of the event loop", **figures)
    assert len(held) == 10 and [kind for kind, hold in held.items() if hold > LONGEST_S] == []
