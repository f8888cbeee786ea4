"""The route of the cost report."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.errors import invalid
from mainspring.views import costs

table = Table()
DAYS = 30.0
JOBS = 50


@table.route("GET", "/api/v1/costs", scope="read", response=wire.Costs, query=("days", "jobs"))
async def report(call: Call) -> wire.Costs:
    """Get executions, hours and costs of the last days (30, at most 35) by queue, and of the most expensive jobs.

    Cluster administrators see the totals of all tenants.
    """
    text = call.query("days")
    try:
        days = DAYS if text is None else float(text)
    except ValueError:
        raise invalid("/days", f"{text!r} is not a number", hint="use a number of days such as 7") from None
    return await costs.costs(
        call.context.database,
        call.context.prices,
        windows=call.context.price_windows,
        tenant=call.tenant,
        every_tenant=call.caller.is_cluster_admin,
        days=days,
        jobs=call.number("jobs", JOBS),
    )
