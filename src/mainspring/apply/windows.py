"""Blackouts and reservations: windows of time, replaced instead of edited."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.apply.adapter import Adapter, Live, Writer, Written
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.placement.resources import parse_amounts
from mainspring.intake import blackouts as blackout_intake
from mainspring.intake import reservations as reservation_intake
from mainspring.manifest import without_defaults
from mainspring.store import blackouts, manifests, reservations
from mainspring.store.blackouts import BlackoutRow
from mainspring.store.db import Connection
from mainspring.store.reservations import ReservationRow
from mainspring.views import refs

MAX_BLACKOUTS = 10_000


class Blackouts(Adapter):
    """A blackout has no name on the server: its manifest gives it one, and its id is remembered.

    A blackout that no manifest has named has its id as its name.
    """

    locks_shards = True

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        found = {}
        for name, applied_id in wanted.items():
            blackout_id = applied_id or (UUID(name) if refs.is_id(name) else None)
            if blackout_id is not None:
                for row in await blackouts.list_blackouts(connection, tenant=tenant, blackout_id=blackout_id):
                    found[name] = _blackout(row)
        return found

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        names = await manifests.applied_names(connection, tenant=tenant, kind="Blackout")
        rows = await blackouts.list_blackouts(connection, tenant=tenant, limit=MAX_BLACKOUTS)
        named = {names.get(row.blackout_id, str(row.blackout_id)): row for row in rows}
        return [(name, _blackout(named[name])) for name in sorted(named) if name > after][:limit]

    async def write(self, writer: Writer, name: str, definition: wire.NewBlackout, live: Live | None) -> Written:
        if live is not None:
            await blackout_intake.delete(writer.database, str(live.object_id), tenant=writer.tenant, by=writer.by)
        made = await blackout_intake.create(writer.database, definition, tenant=writer.tenant, by=writer.by)
        return Written(made.blackout_id)

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await blackout_intake.delete(writer.database, str(live.object_id), tenant=writer.tenant, by=writer.by)

    def comparable(self, values: dict[str, Any]) -> dict[str, Any]:
        found = _with_instants(values)
        if found.get("lasts") is not None:
            with suppress(ValueError):  # an invalid one, which intake refuses
                found["lasts"] = parse_duration(found["lasts"])
        return found


class Reservations(Adapter):
    reports_kept = False  # the resources of its job are filled in

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        rows = await reservations.open_reservations(connection, tenant=tenant)
        return {row.reservation.name: _reservation(row) for row in rows if row.reservation.name in wanted}

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        rows = await reservations.open_reservations(connection, tenant=tenant)
        rows.sort(key=lambda row: row.reservation.name)
        return [(row.reservation.name, _reservation(row)) for row in rows if row.reservation.name > after][:limit]

    async def write(self, writer: Writer, name: str, definition: wire.NewReservation, live: Live | None) -> Written:
        if live is not None:
            await reservation_intake.delete(writer.database, name, tenant=writer.tenant, by=writer.by)
        made = await reservation_intake.create(
            writer.database, definition, tenant=writer.tenant, by=writer.by, may_share=writer.may_share
        )
        return Written(made.reservation_id)

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await reservation_intake.delete(writer.database, name, tenant=writer.tenant, by=writer.by)

    def comparable(self, values: dict[str, Any]) -> dict[str, Any]:
        found = _with_instants(values)
        found.pop("anyway", None)  # how to create it, not what it is
        if found.get("resources"):
            with suppress(ValueError):
                found["resources"] = parse_amounts(found["resources"])
        return found


def has_ended(definition: Any, now: datetime) -> bool:
    """Whether a definition is a window that is over: there is nothing to create any more."""
    if not isinstance(definition, wire.NewBlackout | wire.NewReservation):
        return False
    return definition.end_at is not None and definition.end_at <= now


def _with_instants(values: dict[str, Any]) -> dict[str, Any]:
    """Instants in UTC and to the millisecond, as the server stores them."""
    found = dict(values)
    for name, up in (("start_at", False), ("end_at", True)):
        if isinstance(at := found.get(name), str):
            ms = datetime.fromisoformat(at).timestamp() * 1000
            found[name] = _shown(instant(-(-ms // 1) if up else ms // 1))
    return found


def _shown(at: datetime) -> str:
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "Z").replace("+00:00", "Z")


def _blackout(row: BlackoutRow) -> Live:
    lasts_s = None if row.lasts_ms is None else row.lasts_ms / 1000
    values = without_defaults(
        wire.NewBlackout(
            start_at=row.start_at,
            end_at=row.end_at,
            schedule=row.schedule,
            lasts=int(lasts_s) if lasts_s is not None and lasts_s == int(lasts_s) else lasts_s,
            queue=row.queue,
            job=row.job,
            reason=row.reason,
        )
    )
    return Live(_with_instants(values), row.blackout_id, source=row)


def _reservation(row: ReservationRow) -> Live:
    r = row.reservation
    values = without_defaults(
        wire.NewReservation(
            name=r.name,
            start_at=instant(r.start_ms),
            end_at=instant(r.end_ms),
            slots=r.slots,
            resources={name: f"{amount}m" if name == "cpu" else amount for name, amount in r.resources.items()},
            labels=dict(r.labels),
            queue=r.queue,
            job=row.job,
            shared=r.shared,
            reason=row.reason,
        )
    )
    del values["name"]
    return Live(_with_instants(values), r.reservation_id, source=row)
