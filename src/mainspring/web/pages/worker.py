"""The page of a worker: how it does, what it runs, and what became of what it lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response

from mainspring.views import workers
from mainspring.web.access import Visit
from mainspring.web.draw.labels import LOOKS
from mainspring.web.render import fragment, page

LOOK_S = 1.0
"""However much happens elsewhere, a story is read again at most so often."""


async def worker(visit: Visit) -> Response:
    return page("worker.html", visit.caller, **await _values(visit, visit.ref))


async def watch(visit: Visit, heard: AsyncIterator[Any], message: Callable[..., str]) -> AsyncIterator[str]:
    """The whole story again whenever it has changed."""
    told, looked = "", 0.0
    loop = asyncio.get_running_loop()
    async for changed in heard:
        if changed and loop.time() - looked < LOOK_S:
            continue
        looked = loop.time()
        values = await _values(visit, visit.query("worker"))
        text = fragment("worker_story.html", "story", visit.caller, **values)
        if text != told:
            told = text
            yield message(text)


async def _values(visit: Visit, ref: str) -> dict[str, Any]:
    found = await workers.history(visit.context.database, ref, tenant=visit.caller.tenant)
    return {"it": found, "sentence": workers.summary(found), "became": workers.outcome_of, "looks": LOOKS}
