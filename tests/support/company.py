"""The shop of examples/company, started by its one command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring.client import AsyncClient
from tests.support.browser_scene import Scene
from tests.support.processes import Dev, dev

PROGRAM = Path(__file__).parents[2] / "examples" / "company" / "start.py"


@asynccontextmanager
async def company(folder: Path) -> AsyncIterator[Dev]:
    async with dev(folder, str(folder), command=[str(PROGRAM)]) as running:
        yield running


async def scene_of(client: AsyncClient) -> Scene:
    """Objects of the shop for every route of the UI."""
    failed = (await client.executions(job="data-quality", limit=1)).items[0]
    running = (await client.executions(job="search-reindex", limit=1)).items[0]
    broken = (await client.runs(workflow="shop-catalog-import", limit=1)).items[0]
    waiting = (await client.runs(workflow="shop-release", limit=1)).items[0]
    exact = {"/executions/{ref}/cancel": str(running.execution_id), "/api/docs/{ref}": "jobs_trigger"}
    exact |= {f"/runs/{{ref}}/{what}": str(waiting.run_id) for what in ("cancel", "decide")}
    refs = {"jobs": "finance-ledger-export", "executions": str(failed.execution_id), "runs": str(broken.run_id)}
    refs |= {"failures": str(failed.execution_id), "workflows": "data-nightly", "workers": "general-1", "queues": "gpu"}
    return Scene({**refs, **exact})
