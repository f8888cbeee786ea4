"""Reservations of slots on workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mainspring import ports
from mainspring.clock import instant, millis
from mainspring.domain.placement.demand import read_demand
from mainspring.domain.placement.reservation import Reservation
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class ReservationRow:
    reservation: Reservation
    job: str | None
    reason: str
    created_at: datetime
    created_by: str


async def lock_reservations(connection: Connection) -> None:
    """Serialize writers over all tenants: they share workers."""
    await connection.execute(q("lock_reservations"))


async def open_reservations(connection: Connection, *, tenant: int | None) -> list[ReservationRow]:
    """Open reservations of one tenant, or of all for the dispatcher."""
    return [_row(r) for r in await connection.fetch(q("open_reservations"), tenant)]


async def insert_reservation(
    connection: Connection, *, tenant: int, reservation: Reservation, reason: str, by: str
) -> None:
    r = reservation
    await connection.execute(
        q("insert_reservation"),
        r.reservation_id,
        tenant,
        r.name,
        instant(r.start_ms),
        instant(r.end_ms),
        r.slots,
        dict(r.resources),
        dict(r.labels),
        r.queue,
        r.job_id,
        r.shared,
        list(r.workers),
        reason,
        by,
    )
    hint(connection, ports.SETTINGS, str(tenant))


async def delete_reservation(connection: Connection, *, tenant: int, name: str, by: str) -> bool:
    hint(connection, ports.SETTINGS, str(tenant))
    return bool(await connection.fetch(q("delete_reservation"), tenant, name, by))


async def end_past_reservations(connection: Connection, *, tenant: int, name: str) -> None:
    await connection.execute(q("end_past_reservations"), tenant, name)


def _row(r: Any) -> ReservationRow:
    reservation = Reservation(
        r["reservation_id"],
        r["tenant_id"],
        r["name"],
        millis(r["start_at"]),
        millis(r["end_at"]),
        r["slots"],
        r["resources"],
        r["labels"],
        r["queue"],
        r["job_id"],
        r["shared"],
        tuple(r["workers"]),
        r["serves"],
        None if r["demand"] is None else read_demand(r["demand"]),
    )
    return ReservationRow(reservation, r["job"], r["reason"], r["created_at"], r["created_by"])
