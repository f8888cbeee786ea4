"""Runs of workflows over HTTP."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake.runs import find_run

table = Table()
RUNS = "/api/v1/runs"
RUN = RUNS + "/{run_id}"
STEP = RUN + "/steps/{step}"


@table.route("GET", RUNS, scope="read", answer=wire.Page[wire.Run], query=("workflow", "state", "limit", "cursor"))
async def list_runs(call: Call) -> wire.Page[wire.Run]:
    """List runs, newest first; their steps are told only of one at a time."""
    states = call.query("state")
    return await call.context.runs.list(
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        workflow=call.query("workflow"),
        states=states.split(",") if states else (),
    )


@table.route("GET", RUN, scope="read", answer=wire.Run, query=("items",))
async def get(call: Call) -> wire.Run:
    """Get a run with its steps; `items=true` also tells of each item of mapped and repeated steps."""
    return await call.context.runs.get(await _id(call), tenant=call.tenant, items=call.query("items") == "true")


@table.route("POST", RUN + "/cancel", scope="write", body=wire.RunCancel, answer=wire.Run)
async def cancel(call: Call) -> wire.Run:
    """End a run: what has not begun never will, what runs is asked to end; steps with the rule `always` still run."""
    return await call.context.runs.cancel(
        await _id(call), tenant=call.tenant, by=call.caller.name, reason=call.body.reason
    )


@table.route("POST", RUN + "/rerun", scope="write", body=wire.Rerun, answer=wire.Run, status=201)
async def rerun(call: Call) -> wire.Run:
    """Repeat a run that has ended, from the steps that did not succeed or from one on; earlier results are kept."""
    return await call.context.runs.rerun(await _id(call), call.body, tenant=call.tenant, by=call.caller.name)


@table.route("POST", RUN + "/events/{name}", scope="write", body=wire.RunEvent, answer=wire.Run)
async def event(call: Call) -> wire.Run:
    """Send an event to a run, also ahead of its step or of its start; a second one of the same name is a conflict."""
    return await call.context.runs.event(
        await _id(call), call.path("name"), call.body.payload, tenant=call.tenant, by=call.caller.name
    )


@table.route("GET", STEP, scope="read", answer=wire.StepTimeline, query=("item",))
async def timeline(call: Call) -> wire.StepTimeline:
    """What happened to a step, in order; `item` asks for one of a mapped or repeated step."""
    item = call.number("item", -1)
    return await call.context.runs.timeline(
        await _id(call), call.path("step"), tenant=call.tenant, item=None if item < 0 else item
    )


@table.route("POST", STEP + "/approve", scope="write", body=wire.Decision, answer=wire.Run)
async def approve(call: Call) -> wire.Run:
    """Approve a step that waits for it."""
    return await _decide(call, approved=True)


@table.route("POST", STEP + "/reject", scope="write", body=wire.Decision, answer=wire.Run)
async def reject(call: Call) -> wire.Run:
    """Reject a step that waits for approval: it has failed."""
    return await _decide(call, approved=False)


@table.route("POST", STEP + "/skip", scope="write", body=wire.Override, answer=wire.Run)
async def skip(call: Call) -> wire.Run:
    """Leave a step out: those behind it go on, and see that it was not executed."""
    return await call.context.runs.skip(
        await _id(call),
        call.path("step"),
        call.body.reason,
        tenant=call.tenant,
        by=call.caller.name,
        scopes=sorted(call.caller.scopes),
    )


@table.route("POST", STEP + "/force-complete", scope="write", body=wire.Override, answer=wire.Run)
async def force_complete(call: Call) -> wire.Run:
    """Count a step as succeeded, with the result that is given."""
    return await call.context.runs.force_complete(
        await _id(call),
        call.path("step"),
        call.body.reason,
        call.body.result,
        tenant=call.tenant,
        by=call.caller.name,
        scopes=sorted(call.caller.scopes),
    )


async def _decide(call: Call, *, approved: bool) -> wire.Run:
    return await call.context.runs.decide(
        await _id(call),
        call.path("step"),
        call.body,
        tenant=call.tenant,
        by=call.caller.name,
        scopes=sorted(call.caller.scopes),
        approved=approved,
    )


async def _id(call: Call) -> UUID:
    """A run's id by itself, or by a unique beginning as an execution's."""
    return await find_run(call.context.database, call.path("run_id"), tenant=call.tenant)
