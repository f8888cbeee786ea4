"""Create and delete reservations: slots on workers kept free for a queue or a job during a window.

Before the window, only executions that are certain to end in time use these slots; during it, only the queue or job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.errors import Conflict, NotFound, Problem, invalid
from mainspring.domain.job import LABEL, NAME, QUEUE
from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.line import demand_of
from mainspring.domain.placement.reservation import Layout, Reservation, WorkerCapacity, lay_out
from mainspring.domain.placement.resources import parse_amounts, show_amounts
from mainspring.domain.queue import DEFAULTS
from mainspring.store import audit, evictions, jobs, queues, reservations
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.store.evictions import RunningAttempt
from mainspring.views import refs
from mainspring.views.reservations import as_reservation, shortage

MAX_LENGTH_MS = 31 * 86_400_000
GRACE_MS = 11_000
"""Added to an attempt's timeout: the time to cancel and settle it."""


async def create(
    database: Database, request: wire.NewReservation, *, tenant: int, by: str, may_share: bool = False
) -> wire.Reservation:
    """Reserve slots from `start_at` to `end_at`; refused if the present workers lack them."""
    wanted = await _checked(database, request, tenant=tenant, may_share=may_share)
    try:
        async with database.transaction() as connection:
            await reservations.lock_reservations(connection)
            now_ms = float(await database_now_ms(connection))
            _check_window(wanted, now_ms)
            await reservations.end_past_reservations(connection, tenant=tenant, name=wanted.name)
            places = await evictions.active_workers(connection)
            lasting = await _lasting(connection, [p for p in places if wanted.suits(p)], wanted, now_ms)
            wanted = replace(wanted, workers=_preferred(places, wanted, lasting))
            others = [row.reservation for row in await reservations.open_reservations(connection, tenant=None)]
            layout = lay_out([*others, wanted], places)
            if not request.anyway:
                _check_layout(wanted, others, places, layout)
            await reservations.insert_reservation(
                connection, tenant=tenant, reservation=wanted, reason=request.reason, by=by
            )
            await audit.record(
                connection,
                "reservation.create",
                wanted.name,
                tenant=tenant,
                by=by,
                name=wanted.name,
                reason=request.reason,
                slots=wanted.slots,
                start_at=request.start_at.isoformat(),
                end_at=request.end_at.isoformat(),
            )
            rows = await reservations.open_reservations(connection, tenant=tenant)
    except Taken:
        raise _name_taken(wanted.name) from None
    row = next(row for row in rows if row.reservation.reservation_id == wanted.reservation_id)
    warnings = [*shortage(row, layout), *_still_busy(wanted, layout, places, lasting)]
    return as_reservation(row, layout, places, now_ms, warnings)


async def delete(database: Database, name: str, *, tenant: int, by: str) -> None:
    """Delete a reservation: its slots become available to all."""
    async with database.transaction() as connection:
        if not await reservations.delete_reservation(connection, tenant=tenant, name=name, by=by):
            raise NotFound(f"there is no reservation {name!r}")
        await audit.record(connection, "reservation.delete", name, tenant=tenant, by=by, name=name)


async def _checked(database: Database, request: wire.NewReservation, *, tenant: int, may_share: bool) -> Reservation:
    if not NAME.match(request.name):
        raise invalid(
            "/name", f"{request.name!r} is not a valid name", hint="letters, digits, '.', '_', '-'; at most 128"
        )
    if request.queue is not None and request.job is not None:
        raise invalid("/job", "a reservation is for a queue or for a job, not both", hint="create two reservations")
    if request.queue is not None and not QUEUE.match(request.queue):
        hint = "lower case letters, digits, '_', '-'"
        raise invalid("/queue", f"{request.queue!r} is not a queue name", hint=hint)
    for name, value in request.labels.items():
        if not LABEL.match(name) or not (value == "*" or LABEL.match(value)):
            raise invalid(
                f"/labels/{name}", f"{name}={value} is not a label", hint="letters, digits, '.', '_', '-', '/'"
            )
    if request.shared and not may_share:
        hint = "leave it out to reserve slots on this tenant's own workers"
        raise invalid("/shared", "reserving shared workers requires a token with the scope 'shared'", hint=hint)
    try:
        resources = parse_amounts(request.resources)
    except ValueError as error:
        raise invalid("/resources", str(error), hint='for example {"cpu": 2, "memory": "4Gi", "gpu": 1}') from None
    job_id, serves, demand = None, request.queue, None
    if request.job is not None:
        job_id, serves, demand = await _job(database, request.job, tenant=tenant)
        resources = resources or dict(demand.resources)
    return Reservation(
        uuid4(),
        tenant,
        request.name,
        millis(request.start_at),
        millis(request.end_at),
        request.slots,
        resources,
        request.labels,
        request.queue,
        job_id,
        request.shared,
        (),
        serves,
        demand,
    )


async def _job(database: Database, ref: str, *, tenant: int) -> tuple[UUID, str, Demand]:
    try:
        row = await refs.job_row(database, ref, tenant=tenant)
    except NotFound as error:
        raise invalid("/job", error.message, hint="a name or an id, as in mainspring jobs list") from None
    return row.job_id, row.spec.queue_name, demand_of(row.spec)


def _check_window(wanted: Reservation, now_ms: float) -> None:
    if wanted.end_ms <= wanted.start_ms:
        raise invalid("/end_at", "end_at is not after start_at", hint="choose a later end_at", code="bad_window")
    if wanted.end_ms <= now_ms:
        raise invalid("/end_at", "end_at is in the past", hint="choose a later end_at", code="past_time")
    if wanted.end_ms - wanted.start_ms > MAX_LENGTH_MS:
        hint = "for longer, run workers with a queue of their own"
        raise invalid("/end_at", "a reservation lasts at most 31 days", hint=hint, code="bad_window")


def _check_layout(
    wanted: Reservation, others: Sequence[Reservation], places: Sequence[WorkerCapacity], layout: Layout
) -> None:
    kept = sum(layout[wanted.reservation_id].values())
    if kept < wanted.slots:
        suits = sorted({place.name for place in places if wanted.suits(place)})
        each = f" with {show_amounts(wanted.resources)}" if wanted.resources else ""
        where = f"{len(suits)} workers match ({', '.join(suits[:5])})" if suits else "no worker matches"
        raise invalid(
            "/slots",
            f"only {kept} of {wanted.slots} slots{each} can be reserved: {where}",
            hint='ask for less, start workers first, or set "anyway": true if they will start in time',
            code="not_enough",
        )
    before = lay_out(others, places)
    for other in others:
        if sum(layout[other.reservation_id].values()) < sum(before[other.reservation_id].values()):
            message = f"it would take slots from the earlier reservation {other.name!r}"
            raise invalid("/slots", message, hint="choose another time, or ask for less", code="not_enough")


async def _lasting(
    connection: Connection, places: Sequence[WorkerCapacity], wanted: Reservation, now_ms: float
) -> dict[UUID, list[tuple[RunningAttempt, float]]]:
    """What runs on these workers and may still run when the window begins, with its latest end."""
    runs = await evictions.running_attempts(connection, session_ids=[place.session_id for place in places])
    found: dict[UUID, list[tuple[RunningAttempt, float]]] = {}
    if not runs:
        return found
    definitions = await jobs.definitions(connection, versions=list({(run.job_id, run.version) for run in runs}))
    settings = await queues.all_queue_settings(connection)
    for run in runs:
        bound_s = settings.get((run.tenant, run.queue), DEFAULTS).max_duration_s
        timeout_s = definitions[run.job_id, run.version].timeout_within(bound_s)
        ends_ms = now_ms + (timeout_s - run.ran_s) * 1000 + GRACE_MS
        if ends_ms > wanted.start_ms and not wanted.allows(tenant=run.tenant, queue=run.queue, job_id=run.job_id):
            found.setdefault(run.session_id, []).append((run, ends_ms))
    return found


def _preferred(
    places: Sequence[WorkerCapacity], wanted: Reservation, lasting: Mapping[UUID, list[tuple[RunningAttempt, float]]]
) -> tuple[str, ...]:
    """Workers in the order in which they become free."""
    suits = [place for place in places if wanted.suits(place)]
    suits.sort(key=lambda place: (max(0, len(lasting.get(place.session_id, ())) + 1 - place.slots), place.name))
    return tuple(dict.fromkeys(place.name for place in suits))


def _still_busy(
    wanted: Reservation,
    layout: Layout,
    places: Sequence[WorkerCapacity],
    lasting: Mapping[UUID, list[tuple[RunningAttempt, float]]],
) -> list[str]:
    """Warn of running executions that may outlast the start: a reservation does not preempt."""
    found = []
    for place in places:
        kept = layout[wanted.reservation_id].get(place.session_id, 0)
        staying = sorted(lasting.get(place.session_id, ()), key=lambda run: -run[1])
        over = kept + len(staying) - place.slots
        found += [
            f"execution {run.execution_id} on {place.name} may last until {instant(ends):%Y-%m-%d %H:%M:%S} UTC"
            for run, ends in staying[: max(0, over)]
            if kept
        ]
    return found


def _name_taken(name: str) -> Conflict:
    return Conflict(
        f"there is a reservation {name!r} already",
        code="name_taken",
        problems=(Problem("/name", f"{name!r} is taken", "choose another name, or delete that one first"),),
    )
