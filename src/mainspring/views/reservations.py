"""Reservations, with the workers that hold their slots."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.placement.reservation import Layout, WorkerCapacity, lay_out
from mainspring.store import evictions, reservations
from mainspring.store.db import Database, database_now_ms
from mainspring.store.reservations import ReservationRow


async def list_reservations(database: Database, *, tenant: int) -> wire.Page[wire.Reservation]:
    """Open reservations, the next first, each with its current workers."""
    async with database.connection() as connection:
        now_ms = float(await database_now_ms(connection))
        rows = await reservations.open_reservations(connection, tenant=None)
        places = await evictions.active_workers(connection) if rows else []
    layout = lay_out([row.reservation for row in rows], places)
    mine = [row for row in rows if row.reservation.tenant == tenant]
    return wire.Page(items=[as_reservation(row, layout, places, now_ms, shortage(row, layout)) for row in mine])


def shortage(row: ReservationRow, layout: Layout) -> list[str]:
    kept = sum(layout[row.reservation.reservation_id].values())
    if kept >= row.reservation.slots:
        return []
    return [f"{kept} of {row.reservation.slots} slots are reserved: no other present worker matches"]


def as_reservation(
    row: ReservationRow, layout: Layout, places: Sequence[WorkerCapacity], now_ms: float, warnings: list[str]
) -> wire.Reservation:
    r = row.reservation
    kept: dict[str, int] = {}
    for place in places:
        if n := layout[r.reservation_id].get(place.session_id):
            kept[place.name] = kept.get(place.name, 0) + n
    return wire.Reservation(
        reservation_id=r.reservation_id,
        name=r.name,
        start_at=instant(r.start_ms),
        end_at=instant(r.end_ms),
        slots=r.slots,
        resources=dict(r.resources),
        labels=dict(r.labels),
        queue=r.queue,
        job=row.job,
        shared=r.shared,
        begun=r.start_ms <= now_ms,
        places=dict(sorted(kept.items())),
        reason=row.reason,
        created_at=row.created_at,
        created_by=row.created_by,
        warnings=warnings,
    )
