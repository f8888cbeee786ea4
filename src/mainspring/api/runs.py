"""Routes of workflow runs."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import runs as run_actions
from mainspring.views import refs

table = Table()
RUNS = "/api/v1/runs"
RUN = RUNS + "/{run_id}"
STEP = RUN + "/steps/{step}"


@table.route(
    "GET",
    RUNS,
    scope="read",
    response=wire.Page[wire.Run],
    query=("workflow", "state", "limit", "cursor"),
    replica=True,
)
async def list_runs(call: Call) -> wire.Page[wire.Run]:
    """List runs without their steps, newest first."""
    states = call.query("state")
    return await call.context.run_views.list_runs(
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        workflow=call.query("workflow"),
        states=states.split(",") if states else (),
    )


@table.route("GET", RUN, scope="read", response=wire.Run, query=("items",))
async def get(call: Call) -> wire.Run:
    """Get a run with its steps; `items=true` includes each item of mapped and repeated steps."""
    return await call.context.run_views.get(await _id(call), tenant=call.tenant, items=call.query("items") == "true")


@table.route("POST", RUN + "/cancel", scope="write", body=wire.RunCancel, response=wire.Run)
async def cancel(call: Call) -> wire.Run:
    """Cancel a run.

    Pending steps do not start and running ones are cancelled; steps with the rule `always` still run.
    """
    return await run_actions.cancel(
        call.context.runs, await _id(call), tenant=call.tenant, by=call.caller.name, reason=call.body.reason
    )


@table.route("POST", RUN + "/rerun", scope="operate", body=wire.Rerun, response=wire.Run, status=201, creates=True)
async def rerun(call: Call) -> wire.Run:
    """Rerun a finished run from the steps that did not succeed, or from a given step.

    Results of the steps before are kept.
    """
    return await run_actions.rerun(
        call.context.runs, await _id(call), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", RUN + "/events/{name}", scope="write", body=wire.RunEvent, response=wire.Run)
async def event(call: Call) -> wire.Run:
    """Send an event to a run.

    It may arrive before the step waits for it, or before the run has started.
    A second event of the same name is a conflict.
    """
    return await run_actions.send_event(
        call.context.runs,
        await _id(call),
        call.path("name"),
        call.body.payload,
        tenant=call.tenant,
        by=call.caller.name,
    )


@table.route("GET", STEP, scope="read", response=wire.StepTimeline, query=("item",))
async def timeline(call: Call) -> wire.StepTimeline:
    """Get the events of a step in order; `item` selects one item of a mapped or repeated step."""
    item = call.number("item", -1)
    return await call.context.run_views.step_timeline(
        await _id(call), call.path("step"), tenant=call.tenant, item=None if item < 0 else item
    )


@table.route("POST", STEP + "/approve", scope="write", body=wire.Decision, response=wire.Run)
async def approve(call: Call) -> wire.Run:
    """Approve a step that waits for approval."""
    return await _decide(call, approved=True)


@table.route("POST", STEP + "/reject", scope="write", body=wire.Decision, response=wire.Run)
async def reject(call: Call) -> wire.Run:
    """Reject a step that waits for approval; the step fails."""
    return await _decide(call, approved=False)


@table.route("POST", STEP + "/skip", scope="operate", body=wire.Override, response=wire.Run)
async def skip(call: Call) -> wire.Run:
    """Skip a step that has not succeeded; its successors continue and can see that it was skipped.

    For a failed step of a run that has ended, the answer is a new run: it keeps what had succeeded and continues
    behind the step.
    """
    return await run_actions.skip(
        call.context.runs,
        await _id(call),
        call.path("step"),
        call.body.reason,
        tenant=call.tenant,
        by=call.caller.name,
        scopes=sorted(call.caller.scopes),
    )


@table.route("POST", STEP + "/force-complete", scope="operate", body=wire.Override, response=wire.Run)
async def force_complete(call: Call) -> wire.Run:
    """Mark a step as succeeded, with the given result, also one that has failed.

    For a failed step of a run that has ended, the answer is a new run: it keeps what had succeeded and continues
    behind the step.
    """
    return await run_actions.force_complete(
        call.context.runs,
        await _id(call),
        call.path("step"),
        call.body.reason,
        call.body.result,
        tenant=call.tenant,
        by=call.caller.name,
        scopes=sorted(call.caller.scopes),
    )


async def _decide(call: Call, *, approved: bool) -> wire.Run:
    return await run_actions.decide(
        call.context.runs,
        await _id(call),
        call.path("step"),
        call.body,
        tenant=call.tenant,
        by=call.caller.name,
        scopes=sorted(call.caller.scopes),
        approved=approved,
    )


async def _id(call: Call) -> UUID:
    """Find the run by its id or a unique prefix of it."""
    return await refs.run_id(call.context.database, call.path("run_id"), tenant=call.tenant)
