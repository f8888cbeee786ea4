"""Settling is independent of dispatch: while it is stopped everywhere, workers keep working and keep their results."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Unavailable
from mainspring.results.batch import Report
from mainspring.worker.transport import delivery
from tests.conftest import Cluster, started
from tests.support.processes import until, until_async

pytestmark = pytest.mark.anyio

PROCESSORS, SLOTS, EACH = 3, 4, 60
JOBS = {
    "fine": {"kind": "noop"},
    "prints": {"kind": "shell", "argv": ["echo", "done"]},
    "fails": {"kind": "shell", "argv": ["sh", "-c", "exit 3"]},
}


class Gate:
    """A gate in front of the settler of an api process; nothing settles while it is shut."""

    def __init__(self, cluster: Cluster) -> None:
        self.shut = False
        self.refused = self.passed = 0
        self._settle = cluster.server.settler.settle
        cluster.server.settler.settle = self  # type: ignore[method-assign]

    async def __call__(self, report: Report, **more: Any) -> Any:
        if self.shut:
            self.refused += 1
            raise Unavailable("settling is stopped")
        self.passed += 1
        return await self._settle(report, **more)


@pytest.mark.requirement(45)
async def test_workers_go_on_while_nothing_is_settled(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_S", 0.1)
    async with AsyncExitStack() as stack:
        apis = [await stack.enter_async_context(started(database_url)) for _ in range(PROCESSORS)]
        gates = [Gate(api) for api in apis]
        client = await stack.enter_async_context(apis[0].client())
        for name, task in JOBS.items():
            await client.create_job({"name": name, "task": task, "retries": {"max": 0}})
        for n, api in enumerate(apis):
            await stack.enter_async_context(api.worker(slots=SLOTS, name=f"worker-{n}"))

        async def submit() -> list[Any]:
            items = [wire.BatchItem(job=name) for name in JOBS for _ in range(EACH)]
            answer = await client.submit(items)
            return [item.execution_id for item in answer.items]

        async def live(state: str) -> int:
            async with apis[0].database.connection() as connection:
                return int(await connection.fetchval("SELECT count(*) FROM executions WHERE state = $1", state))

        async def none_live() -> bool:
            return await live("queued") + await live("running") == 0

        ids = await submit()
        await until_async("the load", none_live, within_s=120)
        for gate in gates:
            gate.shut = True
        settled = [gate.passed for gate in gates]
        ids += await submit()

        async def all_started() -> bool:
            return await live("running") == len(JOBS) * EACH

        # Each worker starts many times as many as it has slots: what has ended waits to be told, and holds none.
        await until_async("all to be started though none is settled", all_started, within_s=120)
        await until("every api to refuse results", lambda: all(gate.refused for gate in gates), within_s=60)
        assert [gate.passed for gate in gates] == settled
        for gate in gates:
            gate.shut = False
        await until_async("the backlog", none_live, within_s=120)

        pages = [await client.executions(job=name, limit=500) for name in JOBS]
        found = [execution for page in pages for execution in page.items]
        assert {execution.execution_id for execution in found} == set(ids)
        assert Counter((e.job, e.state, e.exit_code, e.attempt) for e in found) == {
            ("fine", "succeeded", 0, 1): 2 * EACH,
            ("prints", "succeeded", 0, 1): 2 * EACH,
            ("fails", "failed", 3, 1): 2 * EACH,
        }
        assert {e.worker for e in found} == {f"worker-{n}" for n in range(PROCESSORS)}
        for execution in ids[-2 * EACH : -EACH]:
            assert [chunk.text for chunk in (await client.logs(execution)).chunks] == ["done\n"], "output too, once"
