"""Minimum isolation of a queue: a task that can't have it is refused."""

from __future__ import annotations

from mainspring.domain.errors import invalid
from mainspring.domain.job import JobSpec
from mainspring.domain.placement.isolation import CONFINED_KINDS, can_reach
from mainspring.store import queues
from mainspring.store.db import Connection


async def check_isolation(connection: Connection, spec: JobSpec, *, tenant: int, pointer: str = "/task") -> None:
    """Refuse a program or function in a queue of containers. A weaker sandbox is raised when an attempt starts."""
    if spec.kind not in CONFINED_KINDS:
        return
    minimum = await queues.min_isolation(connection, tenant=tenant, queue=spec.queue_name)
    if not can_reach(spec.kind, minimum):
        raise invalid(
            pointer,
            f"the queue {spec.queue_name} requires isolation {minimum}, which a {spec.kind} task can't have",
            hint="use a container task, or another queue",
            code="min_isolation",
        )
