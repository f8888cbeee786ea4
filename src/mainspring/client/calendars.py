"""Client methods for calendars and blackouts."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params


class CalendarMethods(Connected):
    async def calendars(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Calendar]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Calendar], "GET", "/api/v1/calendars", params=params)

    async def calendar(self, name: str) -> wire.Calendar:
        return await self._transport.request(wire.Calendar, "GET", path_of("calendars", name))

    async def put_calendar(self, name: str, days: wire.CalendarDays) -> wire.Calendar:
        """Create or replace a calendar; jobs that follow it use the new version at once."""
        return await self._transport.request(wire.Calendar, "PUT", path_of("calendars", name), body=days)

    async def try_calendar(self, name: str, days: wire.CalendarDays) -> wire.CalendarChange:
        """Return what `put_calendar` would change, without changing it."""
        params: Params = {"dry_run": "true"}
        path = path_of("calendars", name)
        return await self._transport.request(wire.CalendarChange, "PUT", path, body=days, params=params)

    async def delete_calendar(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("calendars", name))

    async def calendar_versions(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.CalendarVersion]:
        """List every version of a calendar, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = path_of("calendars", name, "versions")
        return await self._transport.request(wire.Page[wire.CalendarVersion], "GET", path, params=params)

    async def closed_days(self, name: str, *, count: int = 90) -> wire.ClosedDays:
        """Return the upcoming days on which schedules that follow the calendar do not fire."""
        params: Params = {"count": count}
        return await self._transport.request(wire.ClosedDays, "GET", path_of("calendars", name, "days"), params=params)

    async def blackouts(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Blackout]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Blackout], "GET", "/api/v1/blackouts", params=params)

    async def add_blackout(self, blackout: wire.NewBlackout) -> wire.Blackout:
        """Add a window in which no fire starts."""
        return await self._transport.request(wire.Blackout, "POST", "/api/v1/blackouts", body=blackout, creates=True)

    async def delete_blackout(self, blackout_id: UUID) -> None:
        await self._transport.send("DELETE", path_of("blackouts", blackout_id))
