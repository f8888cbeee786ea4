"""What a queue allows: a job whose timeout is beyond its queue's bound is refused, unless its writer may exceed it."""

from __future__ import annotations

from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.errors import invalid
from mainspring.domain.job import JobSpec
from mainspring.store import queues
from mainspring.store.db import Connection

RIGHT = "exceed"
"""The scope of tokens that may write jobs whose timeout is beyond their queue's bound."""


async def exceeds_bound(
    connection: Connection,
    spec: JobSpec,
    *,
    tenant: int,
    may_exceed: bool,
    pointer: str = "/timeout",
    before: tuple[JobSpec, bool] | None = None,
) -> bool:
    """Whether the timeout is beyond the queue's bound, and may be.

    `before` is the definition as it was, and whether that might: what an edit does not touch it does not ask about.
    """
    if spec.timeout is None:
        return False
    if before is not None and (before[0].timeout, before[0].queue_name) == (spec.timeout, spec.queue_name):
        return before[1]
    settings = (await queues.queue_settings(connection, tenant=tenant)).get(spec.queue_name)
    bound_s = None if settings is None else settings.max_duration_s
    if bound_s is None or parse_duration(spec.timeout) <= bound_s:
        return False
    if may_exceed:
        return True
    bound = format_duration(bound_s)
    raise invalid(
        pointer,
        f"the queue {spec.queue_name} allows at most {bound}, and this asks for "
        f"{format_duration(parse_duration(spec.timeout))}",
        hint=f"ask for {bound} or less, use another queue, or have a token with the scope {RIGHT!r} write it",
        code="max_duration",
    )
