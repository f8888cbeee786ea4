"""Maximum duration of a queue: a longer timeout is refused, unless the caller may exceed it."""

from __future__ import annotations

from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.errors import invalid
from mainspring.domain.job import JobSpec
from mainspring.store import duration_requests, queues
from mainspring.store.db import Connection

EXCEED_SCOPE = "exceed"
"""The scope of tokens that may write jobs with a timeout above their queue's maximum."""


async def exceeds_bound(
    connection: Connection,
    spec: JobSpec,
    *,
    tenant: int,
    may_exceed: bool,
    pointer: str = "/timeout",
    before: tuple[JobSpec, bool] | None = None,
    workflow: str | None = None,
) -> bool:
    """Whether the timeout exceeds the queue's maximum with permission; refuses without.

    A caller who may exceed it has permission, and so has every writer of a job with an approved request, found by the
    name of the job, or of the `workflow` of a step. `before` is the old definition and whether it exceeded: an edit of
    other fields keeps that.
    """
    if spec.timeout is None:
        return False
    if before is not None and (before[0].timeout, before[0].queue_name) == (spec.timeout, spec.queue_name):
        return before[1]
    settings = (await queues.queue_settings(connection, tenant=tenant)).get(spec.queue_name)
    bound_s = None if settings is None else settings.max_duration_s
    if bound_s is None or parse_duration(spec.timeout) <= bound_s:
        return False
    job = workflow or spec.name
    if may_exceed or parse_duration(spec.timeout) <= await _approved_s(connection, job, spec.queue_name, tenant=tenant):
        return True
    bound = format_duration(bound_s)
    raise invalid(
        pointer,
        f"the timeout of {format_duration(parse_duration(spec.timeout))} exceeds the maximum of the queue "
        f"{spec.queue_name}, {bound}",
        hint=f"use {bound} or less, use another queue, have a token with the scope {EXCEED_SCOPE!r} write it, or "
        f"request it: mainspring duration-requests create {job} --queue {spec.queue_name} --timeout {spec.timeout}",
        code="max_duration",
    )


async def _approved_s(connection: Connection, job: str, queue: str, *, tenant: int) -> float:
    approved = await duration_requests.approved_duration(connection, tenant=tenant, job=job, queue=queue)
    return approved or 0.0
