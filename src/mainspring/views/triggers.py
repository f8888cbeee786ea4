"""Triggers with their latest delivery, and the list of deliveries."""

from __future__ import annotations

from typing import Literal

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.secret import SCHEME
from mainspring.domain.suggestion import closest
from mainspring.domain.trigger import DELIVERY_OUTCOMES
from mainspring.store import triggers
from mainspring.store.db import Connection, Database
from mainspring.store.triggers import LAST_ID, DeliveryRow, TriggerRow
from mainspring.views import refs

HOOKS = "/hooks"
MAX_WAITS = 10


async def get(database: Database, name: str, *, tenant: int) -> wire.Trigger:
    async with database.connection() as connection:
        return shown(await named(connection, name, tenant=tenant))


async def named(connection: Connection, name: str, *, tenant: int) -> TriggerRow:
    found = await triggers.triggers_named(connection, tenant=tenant, names=[name])
    if not found:
        raise unknown(name)
    return found[0]


async def list_triggers(
    database: Database,
    *,
    tenant: int,
    limit: int = 100,
    cursor: str | None = None,
    job: str | None = None,
    kind: str | None = None,
) -> wire.Page[wire.Trigger]:
    """Triggers by name; those that start one job, or of one kind, if given."""
    refs.check_limit(limit)
    async with database.connection() as connection:
        rows = await triggers.list_triggers(
            connection, tenant=tenant, after=cursor or "", limit=limit + 1, job=job, kind=kind
        )
    return wire.Page(
        items=[shown(row) for row in rows[:limit]], next_cursor=rows[limit - 1].name if len(rows) > limit else None
    )


async def deliveries(
    database: Database,
    name: str,
    *,
    tenant: int,
    limit: int = 50,
    cursor: str | None = None,
    outcome: str | None = None,
) -> wire.Page[wire.TriggerDelivery]:
    """Deliveries to a trigger, newest first."""
    refs.check_limit(limit)
    if outcome is not None and outcome not in DELIVERY_OUTCOMES:
        close = closest(outcome, DELIVERY_OUTCOMES)
        hint = f"did you mean {close}?" if close else f"one of {', '.join(DELIVERY_OUTCOMES)}"
        raise invalid("/outcome", f"unknown outcome {outcome[:100]!r}", hint=hint)
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18):
        raise invalid("/cursor", f"invalid cursor {cursor[:100]!r}", hint="pass next_cursor of the previous page")
    async with database.connection() as connection:
        row = await named(connection, name, tenant=tenant)
        found = await triggers.list_trigger_deliveries(
            connection,
            tenant=tenant,
            trigger_id=row.trigger_id,
            before=LAST_ID if cursor is None else int(cursor),
            limit=limit + 1,
            outcome=outcome,
        )
    more = str(found[limit - 1].delivery_id) if len(found) > limit else None
    return wire.Page(items=[as_delivery(one) for one in found[:limit]], next_cursor=more)


async def waits_of(database: Database, job: str, *, tenant: int) -> list[str]:
    """A sentence for each trigger that starts a job: which it is, and what reached it last."""
    async with database.connection() as connection:
        rows = await triggers.list_triggers(connection, tenant=tenant, limit=MAX_WAITS, job=job)
    return [_wait(row) for row in rows]


def _wait(row: TriggerRow) -> str:
    last = row.last_delivery
    if row.paused_at is not None:
        why = f": {row.pause_reason}" if row.pause_reason else ""
        return f"trigger {row.name} is paused{why}"
    if row.watch is not None and row.watch.error is not None:
        return f"trigger {row.name} cannot read its {'topic' if row.kind == 'topic' else 'place'}: {row.watch.error}"
    if last is None:
        return f"it waits for trigger {row.name}; no delivery so far"
    reason = f": {last.reason}" if last.reason else ""
    at = f"{last.received_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"it waits for trigger {row.name}; last delivery {at} {last.outcome}{reason}"


def shown(row: TriggerRow) -> wire.Trigger:
    """Return a trigger without its secrets."""
    previous = row.secrets.plain.get("previous_until_s")
    reference = row.secrets.plain.get("current", "")
    return wire.Trigger(
        trigger_id=row.trigger_id,
        name=row.name,
        kind=row.kind,
        job=row.spec.job,
        spec=row.spec,
        state=_state(row),
        path=f"{HOOKS}/{row.trigger_id}" if row.kind == "webhook" else None,
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        paused_at=row.paused_at,
        pause_reason=row.pause_reason,
        secret_reference=reference if reference.startswith(SCHEME) else None,
        previous_secret_until=None if previous is None else instant(previous * 1000),
        last_delivery=None if row.last_delivery is None else as_delivery(row.last_delivery),
        last_rejected_at=row.last_rejected_at,
        last_rejection=row.last_rejection,
        looked_at=None if row.watch is None else row.watch.looked_at,
        next_look_at=row.watch.next_look_at if row.watch is not None and _looks(row) else None,
        lag=None if row.watch is None else row.watch.lag,
        last_error=None if row.watch is None else row.watch.error,
        last_error_at=None if row.watch is None else row.watch.error_at,
    )


def _looks(row: TriggerRow) -> bool:
    return row.kind == "files" and row.paused_at is None


def _state(row: TriggerRow) -> Literal["active", "paused", "failing"]:
    if row.paused_at is not None:
        return "paused"
    return "active" if row.watch is None or row.watch.error is None else "failing"


def as_delivery(row: DeliveryRow) -> wire.TriggerDelivery:
    return wire.TriggerDelivery(
        delivery_id=row.delivery_id,
        key=row.key,
        event=row.event,
        outcome=row.outcome,
        reason=row.reason,
        execution_id=row.execution_id,
        params=row.params,
        repeats=row.repeats,
        received_at=row.received_at,
    )


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no trigger {name[:200]!r}")
