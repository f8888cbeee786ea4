"""Routes of queues, scaling figures and wait explanations."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.bounds import Values
from mainspring.domain.errors import invalid
from mainspring.intake.queues import change as change_queue
from mainspring.intake.queues import set_min_isolation
from mainspring.views import queues
from mainspring.views import why_execution as reasons

table = Table()
QUEUES = "/api/v1/queues"


@table.route("GET", QUEUES, scope="read", response=wire.Queues)
async def overview(call: Call) -> wire.Queues:
    """List the queues with settings, backlog and running executions, and the limits in use with their holders."""
    return await queues.overview(call.context.database, tenant=call.tenant)


@table.route("GET", "/api/v1/scaling", scope="read", response=wire.Scaling, query=("target",))
async def scaling(call: Call) -> wire.Scaling:
    """Get the load of each queue, and how many slots it needs, for an autoscaler."""
    target = call.query("target")
    try:
        return await queues.scaling(
            call.context.database,
            tenant=call.tenant,
            target=queues.TARGET_UTILIZATION if target is None else float(target),
        )
    except ValueError:
        raise invalid(
            "/target", f"{target!r} is not a number", hint="use a number from 0.05 to 1, such as 0.7"
        ) from None


@table.route("PATCH", QUEUES, scope="admin", body=wire.AllQueues, response=wire.Queues)
async def change_all(call: Call) -> wire.Queues:
    """Change what holds in all queues: the minimum isolation. A queue can require more, not less."""
    return await set_min_isolation(
        call.context.database, call.body.min_isolation, tenant=call.tenant, by=call.caller.name
    )


@table.route("PATCH", QUEUES + "/{name}", scope="admin", body=Values, response=wire.Queue)
async def change(call: Call) -> wire.Queue:
    """Change a queue's settings; null resets a setting to its default."""
    return await change_queue(
        call.context.database, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("GET", "/api/v1/executions/{ref}/why", scope="read", response=wire.Why)
async def why_execution(call: Call) -> wire.Why:
    """Explain why an execution does not run yet: every reason in order, with the executions that block it."""
    return await reasons.execution(call.context.database, call.path("ref"), tenant=call.tenant)


@table.route("GET", "/api/v1/jobs/{ref}/why", scope="read", response=wire.Why)
async def why_job(call: Call) -> wire.Why:
    """Explain why a job's next execution does not run yet."""
    return await reasons.job(call.context.database, call.path("ref"), tenant=call.tenant)
