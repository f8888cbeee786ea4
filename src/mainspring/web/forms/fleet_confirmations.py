"""Confirmations of actions on queues and workers, which take a reason."""

from __future__ import annotations

import shlex
from urllib.parse import quote

from mainspring.domain.errors import invalid
from mainspring.domain.job import QUEUE
from mainspring.views import workers as worker_views
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.confirmations import REASON, Confirmation, ConfirmedAction
from mainspring.web.pages import queues, workers


async def confirm_pause_queue(request: PageRequest) -> Confirmation:
    name = request.ref
    if not QUEUE.match(name):
        raise invalid("/name", f"{name!r} is not a queue name", hint="lower case letters, digits, '_', '-'")
    return Confirmation(
        f"Pause the queue {name}",
        "No execution of this queue starts while it is paused. Running executions continue, and jobs keep firing.",
        f"/queues/{quote(name)}/pause",
        "/queues",
        (("Queues", "/queues"),),
        "Pause",
        fields=(REASON,),
        command=f"mainspring queues pause {shlex.quote(name)}",
    )


async def confirm_drain(request: PageRequest) -> Confirmation:
    found = await worker_views.history(request.context.database, request.ref, tenant=request.caller.tenant)
    worker = found.worker
    return Confirmation(
        f"Drain {worker.name}",
        "The worker finishes what it runs and claims nothing more, until it is resumed or restarted.",
        f"/workers/{worker.worker_id}/drain",
        f"/workers/{worker.worker_id}",
        (("Workers", "/workers"), (worker.name, f"/workers/{worker.worker_id}")),
        "Drain",
        fields=(REASON,),
        command=f"mainspring workers drain {shlex.quote(worker.name)}",
    )


PAUSE_QUEUE = ConfirmedAction(confirm_pause_queue, queues.pause)
DRAIN = ConfirmedAction(confirm_drain, workers.drain)
