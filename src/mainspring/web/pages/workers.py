"""The list of workers and the page of one: sessions, running executions, lost and failed attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import invalid
from mainspring.intake.workers import set_draining
from mainspring.views import queues as queue_views
from mainspring.views import workers as worker_views
from mainspring.web.draw.filters import given_labels
from mainspring.web.draw.states import STATE_STYLES
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.actions import reason_of
from mainspring.web.render import HEADERS, fragment, page

ALIVE = ("idle", "busy", "draining")
REFRESH_S = 1.0
"""The history of a worker is read at most this often, no matter how many executions change."""


async def workers(request: PageRequest) -> Response:
    """GET /workers: all workers, those with a label (`?label=zone=a`), or those that serve a queue (`?queue=long`)."""
    found = await worker_views.list_workers(request.context.database, tenant=request.caller.tenant)
    label, queue = request.query("label"), request.query("queue")
    if label and "=" not in label:
        raise invalid("/label", f"{label!r} is not a label", hint="name=value, such as zone=a")
    shown = [w for w in found if _has(w, label) and (not queue or queue in w.queues)]
    labels = sorted({label for w in found for label in given_labels(w.labels)})
    alive = [w for w in shown if w.state in ALIVE]
    return page(
        "workers.html",
        request.caller,
        workers=shown,
        running=await running_by_worker(request, alive),
        **await _backlog(request, queue if queue and not shown else ""),
        labels=labels,
        label=label,
        queue=queue,
        alive=len(alive),
        busy=sum(w.busy for w in alive),
        slots=sum(w.slots for w in alive),
    )


async def running_by_worker(request: PageRequest, alive: Sequence[wire.Worker]) -> dict[str, list[wire.Execution]]:
    """What each worker runs, for the list."""
    sessions = [w.session_id for w in alive]
    running = await worker_views.running(request.context.database, sessions, tenant=request.caller.tenant)
    found: dict[str, list[wire.Execution]] = {}
    for execution in running:
        found.setdefault(execution.worker or "", []).append(execution)
    return found


async def _backlog(request: PageRequest, queue: str) -> dict[str, Any]:
    """The depth of a queue that no worker serves."""
    if not queue:
        return {"depth": 0, "oldest_s": 0.0}
    found = await queue_views.overview(request.context.database, tenant=request.caller.tenant)
    known = next((q for q in found.items if q.name == queue), None)
    return {"depth": known.depth if known else 0, "oldest_s": known.oldest_s if known else 0.0}


async def resume(request: PageRequest) -> Response:
    """POST /workers/{ref}/resume."""
    return await _set_draining(request, draining=False)


async def drain(request: PageRequest) -> Response:
    """POST /workers/{ref}/drain."""
    return await _set_draining(request, draining=True)


async def _set_draining(request: PageRequest, *, draining: bool) -> Response:
    database, tenant = request.context.database, request.caller.tenant
    name = (await worker_views.history(database, request.ref, tenant=tenant)).worker.name
    await set_draining(
        database, name, draining=draining, reason=reason_of(request), tenant=tenant, by=request.caller.name
    )
    return RedirectResponse("/workers", 303, HEADERS)


async def worker(request: PageRequest) -> Response:
    """GET /workers/{ref}."""
    return page("worker.html", request.caller, **await _values(request, request.ref))


async def watch(request: PageRequest, changes: AsyncIterator[Any], message: Callable[..., str]) -> AsyncIterator[str]:
    """Yield the worker's page again whenever it has changed."""
    sent, read_at = "", 0.0
    loop = asyncio.get_running_loop()
    async for changed in changes:
        if changed and loop.time() - read_at < REFRESH_S:
            continue
        read_at = loop.time()
        values = await _values(request, request.query("worker"))
        text = fragment("worker_parts.html", "details", request.caller, **values)
        if text != sent:
            sent = text
            yield message(text)


async def _values(request: PageRequest, ref: str) -> dict[str, Any]:
    found = await worker_views.history(request.context.database, ref, tenant=request.caller.tenant)
    return {
        "history": found,
        "sentence": worker_views.summary(found),
        "outcome_of": worker_views.outcome_of,
        "styles": STATE_STYLES,
    }


def _has(worker: wire.Worker, label: str) -> bool:
    name, _, value = label.partition("=")
    return not label or worker.labels.get(name) == value
