"""Routes of calendars."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import calendars
from mainspring.views import calendars as calendar_views

table = Table()
CALENDARS = "/api/v1/calendars"
CALENDAR = CALENDARS + "/{name}"


@table.route("GET", CALENDARS, scope="read", response=wire.Page[wire.Calendar], query=("limit", "cursor"))
async def list_calendars(call: Call) -> wire.Page[wire.Calendar]:
    """List calendars by name."""
    return await calendar_views.list_calendars(
        call.context.database, tenant=call.tenant, cursor=call.query("cursor"), limit=call.number("limit", 50)
    )


@table.route("GET", CALENDAR, scope="read", response=wire.Calendar)
async def get(call: Call) -> wire.Calendar:
    """Get a calendar by name."""
    return await calendar_views.get(call.context.database, call.path("name"), tenant=call.tenant)


@table.route("PUT", CALENDAR, scope="write", body=wire.CalendarDays, response=wire.Calendar, query=("dry_run",))
async def put(call: Call) -> wire.Calendar | wire.CalendarChange:
    """Create or replace a calendar; jobs that follow it use the new version at once.

    With `dry_run=true`, nothing is written and the response is a CalendarChange.
    """
    name, dry_run = call.path("name"), call.query("dry_run") in ("true", "1")
    change = await calendars.put(
        call.context.database, name, call.body, tenant=call.tenant, by=call.caller.name, dry_run=dry_run
    )
    return change if dry_run else await calendar_views.get(call.context.database, name, tenant=call.tenant)


@table.route("DELETE", CALENDAR, scope="write", status=204)
async def delete(call: Call) -> None:
    """Delete a calendar that no job follows; its versions stay readable."""
    await calendars.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route(
    "GET", CALENDAR + "/versions", scope="read", response=wire.Page[wire.CalendarVersion], query=("limit", "cursor")
)
async def versions(call: Call) -> wire.Page[wire.CalendarVersion]:
    """List the versions of a calendar, newest first."""
    return await calendar_views.list_versions(
        call.context.database,
        call.path("name"),
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
    )


@table.route("GET", CALENDAR + "/days", scope="read", response=wire.ClosedDays, query=("count",))
async def days(call: Call) -> wire.ClosedDays:
    """List the upcoming days on which schedules that follow the calendar do not fire."""
    return await calendar_views.closed_days(
        call.context.database, call.path("name"), tenant=call.tenant, count=call.number("count", 90)
    )
