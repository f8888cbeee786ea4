"""Poison of ten kinds at a server while other jobs fire every second: these start as soon as without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.faults.test_poison_definitions import save
from tests.support.figures import record
from tests.support.fleet import ROUNDS, Fleet, fleet
from tests.support.pages import NAVIGATION, sign_in
from tests.support.poison_kinds import COLOURED, COSTLY, Stranger
from tests.support.processes import until_async
from tests.support.worker_program import worker

pytestmark = pytest.mark.fault

SECONDS = 10 if ROUNDS == 1 else 60
PAUSE_S = 2.0
"""Between two requests of one kind."""
LATE_P99_S = 0.1
"""The promise, asserted in the long form."""
TIMES, MORE_S = 5, 1.0
"""The bound of the short form, whose machine is busy: a multiple of the delay without poison, and an allowance."""
DELAYS = """
SELECT extract(epoch FROM started_at - fire_at)::float8 AS late_s FROM mainspring.all_executions
JOIN mainspring.jobs USING (job_id)
WHERE name LIKE 'job-%' AND trigger = 'fire' AND state <> 'skipped' AND fire_at > to_timestamp($1)
  AND fire_at <= to_timestamp($2) ORDER BY late_s"""
UNSTARTED = """
SELECT count(*) = 0 FROM all_executions JOIN jobs USING (job_id)
WHERE name LIKE 'job-%' AND trigger = 'fire' AND state <> 'skipped' AND fire_at > to_timestamp($1)
  AND fire_at <= to_timestamp($2) AND started_at IS NULL"""


async def delays(running: Fleet) -> list[float]:
    """The sorted start delays of the healthy jobs over the next seconds."""
    begin = await running.now_s()
    await running.decided(begin + SECONDS, within_s=SECONDS + 60)
    await running.until("all have started", UNSTARTED, begin, begin + SECONDS, within_s=60)
    return [row["late_s"] for row in await running.ask(DELAYS, begin, begin + SECONDS)]


def figures(name: str, late: list[float]) -> dict[str, Any]:
    return {f"{name}_p50_s": round(late[len(late) // 2], 3), f"{name}_p99_s": round(late[int(len(late) * 0.99)], 3)}


@contextlib.asynccontextmanager
async def stranger(running: Fleet, url: str, token: str, works: str) -> AsyncIterator[Stranger]:
    """Sign in, and save what stays: schedules, a job with output in colours, and a workflow."""
    worker_headers = {"Authorization": f"Bearer {works}", "Mainspring-Protocol": "1"}
    async with (
        httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        httpx2.AsyncClient(base_url=url, headers=NAVIGATION, timeout=60) as browser,
        httpx2.AsyncClient(base_url=url, headers=worker_headers, timeout=60) as registering,
    ):
        assert (await sign_in(browser, token)).status_code == 303
        await save(running.url)
        for path, body in (("jobs", COLOURED), ("workflows", COSTLY)):
            answer = await http.post(f"/api/v1/{path}", json=body)
            assert answer.status_code == 201, answer.text
        yield Stranger(http, browser, registering)


async def poison(sender: Stranger, until: asyncio.Event) -> dict[str, Counter[int]]:
    """Send poison of every kind at the same time; return the answers by kind and status."""
    answers: dict[str, Counter[int]] = {}

    async def send(kind: str, one: Any) -> None:
        answers[kind] = Counter()
        n = 0
        while not until.is_set():
            answers[kind][(await one(n)).status_code] += 1
            n += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), PAUSE_S)

    await asyncio.gather(*[send(kind, one) for kind, one in sender.kinds().items()])
    return answers


async def ready(http: httpx2.AsyncClient, url: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return (await http.get(f"{url}/readyz")).status_code == 200
    return False


@pytest.mark.fault("F27")
async def test_ten_kinds_of_poison_delay_no_start(durable: EmbeddedServer, lightly_loaded: str, tmp_path: Path) -> None:
    """F27: in one run, first without poison and then with it, on the same server and worker."""
    async with fleet(durable, lightly_loaded, tmp_path, schedulers=0) as running:
        url = f"http://127.0.0.1:{running.ports[running.start(api=True)]}"
        async with httpx2.AsyncClient(timeout=5) as http:
            await until_async("the server is ready", lambda: ready(http, url), within_s=90)
        async with Database(lightly_loaded, size=1) as database, database.connection() as connection:
            token = await issue_token(connection, tenant=1, name="admin", scopes=("admin",))
            works = await issue_token(connection, tenant=1, name="worker", scopes=("worker",), grants=EVERYTHING)
        async with worker(tmp_path, url, works, "--slots", "64"):
            await running.balanced(1)
            without = await delays(running)
            async with stranger(running, url, token, works) as sender:
                stop = asyncio.Event()
                sending = asyncio.create_task(poison(sender, stop))
                with_poison = await delays(running)
                stop.set()
                answers = await sending
    found = figures("without", without) | figures("with", with_poison)
    record("ten kinds of poison", starts=len(with_poison), answers={k: dict(v) for k, v in answers.items()}, **found)
    assert len(answers) == 10 and all(sum(statuses.values()) > 1 for statuses in answers.values())
    assert [kind for kind, statuses in answers.items() if max(statuses) >= 500] == []
    assert min(len(without), len(with_poison)) > SECONDS
    assert found["with_p99_s"] <= TIMES * found["without_p99_s"] + MORE_S
    if ROUNDS > 1:
        assert found["with_p99_s"] < LATE_P99_S
