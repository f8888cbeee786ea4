"""Queues and workers: is capacity right, who executes what, and what happened to a worker."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import invalid
from mainspring.intake.queues import change as change_queue
from mainspring.views import queues
from mainspring.views import workers as worker_views
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.draw.labels import given_labels
from mainspring.web.render import fragment, page

ALIVE = ("idle", "busy", "draining")


async def list_queues(visit: Visit) -> Response:
    return page("queues.html", visit.caller, **await _queues(visit))


async def queue_parts(visit: Visit) -> str:
    """What an open page of queues is told."""
    return fragment("fleet.html", "queue_tables", visit.caller, **await _queues(visit))


async def pause_queue(visit: Visit) -> Response:
    return await _set_paused(visit, True)


async def resume_queue(visit: Visit) -> Response:
    return await _set_paused(visit, False)


async def workers(visit: Visit) -> Response:
    """All workers, or those with a label (`?label=zone=a`) or that serve a queue."""
    found = await worker_views.list_workers(visit.context.database, tenant=visit.caller.tenant)
    label, queue = visit.query("label"), visit.query("queue")
    if label and "=" not in label:
        raise invalid("/label", f"{label!r} is not a label", hint="name=value, such as zone=a")
    shown = [w for w in found if _has(w, label) and (not queue or queue in w.queues)]
    labels = sorted({label for w in found for label in given_labels(w.labels)})
    alive = [w for w in shown if w.state in ALIVE]
    return page(
        "workers.html",
        visit.caller,
        workers=shown,
        labels=labels,
        label=label,
        queue=queue,
        alive=len(alive),
        busy=sum(w.busy for w in alive),
        slots=sum(w.slots for w in alive),
    )


async def _queues(visit: Visit) -> dict[str, Any]:
    database, tenant = visit.context.database, visit.caller.tenant
    found = await queues.overview(database, tenant=tenant)
    return {"queues": found.items, "limits": found.limits, "flow": await queues.flow(database, tenant=tenant)}


async def _set_paused(visit: Visit, paused: bool) -> Response:
    await change_queue(
        visit.context.database, visit.ref, {"paused": paused}, tenant=visit.caller.tenant, by=visit.caller.name
    )
    return RedirectResponse(f"/queues#q-{quote(visit.ref)}", 303, render.HEADERS)


def _has(worker: wire.Worker, label: str) -> bool:
    name, _, value = label.partition("=")
    return not label or worker.labels.get(name) == value
