"""Request, approve, refuse, revoke and withdraw timeouts above the maximum of a queue.

An approval is for a job by name, in one queue, up to a duration. Who requested it cannot approve it.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from mainspring import wire
from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.errors import Conflict, Forbidden, NotFound, Problem, TooMany, invalid
from mainspring.domain.job import NAME, QUEUE
from mainspring.domain.principal import Principal
from mainspring.store import audit, duration_requests, queues
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.duration_requests import DurationRequestRow, State
from mainspring.views import refs

MAX_OPEN = 1000
"""Undecided requests of a tenant."""
MAX_TIMEOUT_S = 366 * 86_400.0


async def create(
    database: Database, new: wire.NewDurationRequest, *, tenant: int, by: Principal
) -> wire.DurationRequest:
    """Request that a job may have a timeout above the maximum of a queue."""
    timeout_s = _checked(new, by)
    try:
        async with database.transaction() as connection:
            settings = (await queues.queue_settings(connection, tenant=tenant)).get(new.queue)
            bound_s = None if settings is None else settings.max_duration_s
            if bound_s is None or timeout_s <= bound_s:
                most = "has no maximum" if bound_s is None else f"allows {format_duration(bound_s)}"
                raise invalid(
                    "/timeout", f"the queue {new.queue} {most}", hint="no request is needed", code="not_needed"
                )
            row = await duration_requests.insert_duration_request(
                connection,
                tenant=tenant,
                request_id=uuid4(),
                job=new.job,
                queue=new.queue,
                timeout_s=timeout_s,
                reason=new.reason,
                by=by,
                most=MAX_OPEN,
            )
            if row is None:
                raise TooMany(f"the tenant has {MAX_OPEN} undecided requests; withdraw or decide some")
            await _record(connection, "duration.request", row, tenant=tenant, by=by, reason=new.reason)
    except Taken:
        message = f"there is an undecided request for the job {new.job!r} in the queue {new.queue!r}"
        raise Conflict(message, code="already_requested") from None
    return shown(row)


async def decide(
    database: Database, ref: str, *, approved: bool, note: str, tenant: int, by: Principal
) -> wire.DurationRequest:
    """Approve or refuse a request. Refusing an approved one revokes it for later changes of the job."""
    async with database.transaction() as connection:
        row = await _locked(connection, ref, tenant=tenant)
        if approved and not may_approve(row, by):
            message = "you have requested it: another user has to approve it"
            if row.person_id != by.person_id:
                message = f"{row.requested_by} has requested it, and one of you issued the token of the other"
            raise Forbidden(message, code="self_approval", problems=(Problem("", message, "ask another operator"),))
        if row.state != "requested" and (approved or row.state != "approved"):
            raise Conflict(f"the request is {row.state} already", code="decided")
        state: State = "approved" if approved else "refused"
        return await _end(connection, row, state, note, tenant=tenant, by=by)


async def withdraw(database: Database, ref: str, *, tenant: int, by: Principal) -> wire.DurationRequest:
    """Take back a request of one's own that is not decided."""
    async with database.transaction() as connection:
        row = await _locked(connection, ref, tenant=tenant)
        if row.person_id != by.person_id:
            raise Forbidden("only who requested it can withdraw it; with the scope 'exceed' you can refuse it")
        if row.state != "requested":
            raise Conflict(f"the request is {row.state} already", code="decided")
        return await _end(connection, row, "withdrawn", "", tenant=tenant, by=by)


def may_approve(row: DurationRequestRow, by: Principal) -> bool:
    """Whether another user has requested it, and neither of the two issued the token of the other."""
    return not by.may_be(row.person_id, row.issuers)


def shown(row: DurationRequestRow) -> wire.DurationRequest:
    return wire.DurationRequest(
        request_id=row.request_id,
        job=row.job,
        queue=row.queue,
        timeout=format_duration(row.timeout_s),
        reason=row.reason,
        state=row.state,
        requested_at=row.requested_at,
        requested_by=row.requested_by,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
        note=row.note or "",
    )


def _checked(new: wire.NewDurationRequest, by: Principal) -> float:
    if not NAME.match(new.job):
        raise invalid("/job", f"{new.job!r} is not the name of a job", hint="letters, digits, '.', '_', '-'")
    if not QUEUE.match(new.queue):
        raise invalid("/queue", f"{new.queue!r} is not a queue name", hint="lower case letters, digits, '_', '-'")
    if by.grants is not None and (problems := tuple(by.grants.refusals([new.queue]))):
        raise Forbidden(f"{problems[0].message}; {problems[0].hint}", code="not_granted", problems=problems)
    try:
        timeout_s = parse_duration(new.timeout)
    except ValueError as error:
        raise invalid("/timeout", str(error), hint="for example 6h") from None
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise invalid("/timeout", f"{new.timeout!r} is out of range", hint="more than 0, at most 366 days")
    return timeout_s


async def _locked(connection: Connection, ref: str, *, tenant: int) -> DurationRequestRow:
    row = None
    if refs.is_id(ref):
        row = await duration_requests.lock_duration_request(connection, tenant=tenant, request_id=UUID(ref))
    if row is None:
        raise NotFound(f"there is no request {ref!r}")
    return row


async def _end(
    connection: Connection, row: DurationRequestRow, state: State, note: str, *, tenant: int, by: str
) -> wire.DurationRequest:
    decided = await duration_requests.decide_duration_request(
        connection, tenant=tenant, request_id=row.request_id, before=row.state, state=state, by=by, note=note
    )
    assert decided is not None, "its row is locked"
    verb = {"approved": "approve", "withdrawn": "withdraw"}.get(
        state, "refuse" if row.state == "requested" else "revoke"
    )
    await _record(connection, f"duration.{verb}", decided, tenant=tenant, by=by, reason=note)
    return shown(decided)


async def _record(
    connection: Connection, action: str, row: DurationRequestRow, *, tenant: int, by: str, reason: str
) -> None:
    await audit.record(
        connection,
        action,
        row.request_id,
        tenant=tenant,
        by=by,
        name=row.job,
        reason=reason,
        queue=row.queue,
        timeout=format_duration(row.timeout_s),
    )
