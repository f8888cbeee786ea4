"""The route of the forecast."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.views import forecast

table = Table()
DAYS = 7


@table.route("GET", "/api/v1/forecast", scope="read", response=wire.Forecast, query=("days", "workers", "slots"))
async def coming_days(call: Call) -> wire.Forecast:
    """Get the load expected from schedules in the coming days (7, at most 14), crowded minutes, and how to spread them.

    Busy slots are computed from the durations of the last week. With `workers`, each with `slots` (8), the executions
    are also simulated, and `capacity` has how long they wait.
    """
    workers = call.number("workers", 0) if call.query("workers") is not None else None
    slots = call.number("slots", 0) if call.query("slots") is not None else None
    days = call.number("days", DAYS)
    return await forecast.forecast(call.context.database, tenant=call.tenant, days=days, workers=workers, slots=slots)
