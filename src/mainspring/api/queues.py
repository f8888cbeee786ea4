"""Queues over HTTP, and why something waits in one."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.errors import invalid
from mainspring.intake.queues import change as change_queue
from mainspring.views import queues
from mainspring.views import why_execution as reasons

table = Table()
QUEUES = "/api/v1/queues"


@table.route("GET", QUEUES, scope="read", answer=wire.Queues)
async def overview(call: Call) -> wire.Queues:
    """Every queue with its settings, how much waits and runs, and the limits in use with their holders."""
    return await queues.overview(call.context.database, tenant=call.tenant)


@table.route("GET", "/api/v1/scaling", scope="read", answer=wire.Scaling, query=("target",))
async def scaling(call: Call) -> wire.Scaling:
    """What an autoscaler wants to know: of each queue, what waits and runs, and how many slots that would take."""
    target = call.query("target")
    try:
        return await queues.scaling(
            call.context.database, tenant=call.tenant, target=queues.TARGET if target is None else float(target)
        )
    except ValueError:
        raise invalid("/target", f"{target!r} is not a number", hint="between 0.05 and 1, such as 0.7") from None


@table.route("PATCH", QUEUES + "/{name}", scope="admin", body=dict[str, Any], answer=wire.Queue)
async def change(call: Call) -> wire.Queue:
    """Change a queue's settings: what is given replaces what was, null takes it back to the default."""
    return await change_queue(
        call.context.database, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("GET", "/api/v1/executions/{ref}/why", scope="read", answer=wire.Why)
async def why_execution(call: Call) -> wire.Why:
    """Why an execution does not run yet: every reason, in order, with who holds it up."""
    return await reasons.execution(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route("GET", "/api/v1/jobs/{ref}/why", scope="read", answer=wire.Why)
async def why_job(call: Call) -> wire.Why:
    """Why a job's next execution does not run yet."""
    return await reasons.job(call.context.database, call.path("ref"), tenant=call.tenant)
