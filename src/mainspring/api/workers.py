"""Routes of the worker protocol, and the list of workers."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.api.context import Context
from mainspring.api.route import Call, Table
from mainspring.codec import encode
from mainspring.domain.errors import Conflict, Forbidden, Invalid, invalid
from mainspring.domain.job import QUEUE
from mainspring.domain.settlement import AttemptResult
from mainspring.intake.declare import declare
from mainspring.intake.validate import plugins
from mainspring.results.batch import Report
from mainspring.results.rescue import rescue_orphans
from mainspring.store import checkpoints, queues, sessions
from mainspring.store.sessions import Heartbeat
from mainspring.views import workers as worker_views

table = Table()
WORKER = "/api/v1/worker"
MOST_RESULT_BYTES = 8_000_000
MOST_CHECKPOINT_BYTES = 64_000


@table.route("POST", WORKER + "/sessions", scope="worker", body=wire.Register, response=wire.Registered, status=201)
async def register(call: Call) -> wire.Registered:
    """Register a worker process and start its session."""
    check_protocol(call)
    for queue in call.body.queues:
        if not QUEUE.match(queue):
            raise Invalid(f"{queue!r} is not a queue name")
    if call.body.shared and "shared" not in call.caller.scopes:
        raise Forbidden("a shared worker needs a token with the scope 'shared'")
    session_id = uuid4()
    async with call.context.registering, call.context.database.transaction() as connection:
        settings = await queues.queue_settings(connection, tenant=call.tenant)
        leases = [s.lease_s for name in call.body.queues if (s := settings.get(name)) and s.lease_s is not None]
        lease_s = max(leases, default=call.context.session_lease_s)
        await sessions.insert_session(
            connection,
            tenant=call.tenant,
            session_id=session_id,
            worker_id=uuid4(),
            register=call.body,
            lease_s=lease_s,
        )
        schemas = call.body.schemas or {}
        await plugins.register_schemas(connection, schemas, tenant=call.tenant, shared=call.body.shared)
    takes = ["progress", "no_retry", "checkpoints", "artifacts", "artifacts_in", "stream"]
    return wire.Registered(session_id=session_id, lease_s=lease_s, heartbeat_s=lease_s / 4, takes=takes)


@table.route("POST", WORKER + "/poll", scope="worker", body=wire.Poll, response=wire.Polled)
async def poll(call: Call) -> wire.Polled | Response:
    """Claim executions; the response is delayed until there are some or `wait_s` have passed."""
    check_protocol(call)
    polling = asyncio.ensure_future(call.context.dispatcher.poll(call.body, tenant=call.tenant))
    gone = asyncio.ensure_future(_disconnected(call))
    try:
        await asyncio.wait({polling, gone}, return_when=asyncio.FIRST_COMPLETED)
        if polling.done():
            return polling.result()
        return Response(status_code=499)
    finally:
        polling.cancel()
        gone.cancel()


@table.route(
    "POST", WORKER + "/results", scope="worker", body=wire.Results, response=wire.Settled, limit=MOST_RESULT_BYTES
)
async def results(call: Call) -> wire.Settled:
    """Report the outcomes and the log output of attempts."""
    check_protocol(call)
    body: wire.Results = call.body
    await _serves(call, body.session_id)
    return await settle_results(call.context, body, session_id=body.session_id)


@table.route(
    "POST", WORKER + "/heartbeat", scope="worker", body=wire.Heartbeat, response=wire.Beat, limit=MOST_RESULT_BYTES
)
async def heartbeat(call: Call) -> wire.Beat:
    """Renew the session's lease; the response lists what to cancel."""
    check_protocol(call)
    body: wire.Heartbeat = call.body
    return await renew_lease(call.context, body, session_id=body.session_id, tenant=call.tenant)


@table.route("POST", WORKER + "/checkpoints", scope="worker", body=wire.SaveCheckpoints, limit=MOST_RESULT_BYTES)
async def save_checkpoints(call: Call) -> None:
    """Save checkpoints of running attempts."""
    check_protocol(call)
    body: wire.SaveCheckpoints = call.body
    await _serves(call, body.session_id)
    for index, report in enumerate(body.checkpoints):
        if len(encode(report.value)) > MOST_CHECKPOINT_BYTES:
            pointer = f"/checkpoints/{index}/2"
            raise invalid(
                pointer,
                f"a checkpoint may have at most {MOST_CHECKPOINT_BYTES:,} bytes",
                hint="store large data elsewhere",
            )
    saved = [(report.execution_id, report.attempt, report.value) for report in body.checkpoints]
    async with call.context.database.connection() as connection:
        await checkpoints.save_checkpoints(connection, session_id=body.session_id, saved=saved)


@table.route("POST", WORKER + "/checkpoints/read", scope="worker", body=wire.ReadCheckpoints, response=wire.Checkpoints)
async def read_checkpoints(call: Call) -> wire.Checkpoints:
    """Read the checkpoints of earlier attempts."""
    check_protocol(call)
    body: wire.ReadCheckpoints = call.body
    await _serves(call, body.session_id)
    async with call.context.database.connection() as connection:
        found = await checkpoints.read_checkpoints(connection, session_id=body.session_id, executions=body.executions)
    return wire.Checkpoints(checkpoints=found)


@table.route("POST", WORKER + "/jobs", scope="worker", body=wire.Declare, response=wire.DeclareAnswer)
async def declare_jobs(call: Call) -> wire.DeclareAnswer:
    """Create or update the jobs that a worker's code declares; unchanged jobs keep their version."""
    check_protocol(call)
    found = [
        await declare(
            call.context.database, spec, tenant=call.tenant, by=call.caller.name, may_exceed=call.caller.may_exceed
        )
        for spec in call.body.jobs
    ]
    return wire.DeclareAnswer(jobs=found)


@table.route("POST", WORKER + "/goodbye", scope="worker", body=wire.Goodbye)
async def goodbye(call: Call) -> Response:
    """End a session; its unfinished executions are rescued at once."""
    async with call.context.database.connection() as connection:
        await sessions.end_session(connection, tenant=call.tenant, session_id=call.body.session_id, lost=call.body.lost)
    call.context.dispatcher.forget(call.body.session_id)
    await rescue_orphans(call.context.database, call.context.settler)
    return Response(encode({}), media_type="application/json")


@table.route("GET", "/api/v1/workers", scope="read", response=wire.Page[wire.Worker])
async def list_workers(call: Call) -> wire.Page[wire.Worker]:
    """List workers with their latest sessions."""
    return wire.Page(items=await worker_views.list_workers(call.context.database, tenant=call.tenant))


async def settle_results(
    context: Context, body: wire.Results | wire.ReportResults, *, session_id: UUID
) -> wire.Settled:
    ended = [
        AttemptResult(r.execution_id, r.attempt, session_id, r.outcome, r.duration_ms, r.exit_code, r.error, r.result)
        for r in body.results
    ]
    if body.no_retry:
        final = set(body.no_retry)
        ended = [msgspec.structs.replace(e, retry=False) if e.execution_id in final else e for e in ended]
    stale = await context.settler.settle(Report(session_id, ended, body.output))
    return wire.Settled(stale=sorted(stale))


async def renew_lease(
    context: Context, body: wire.Heartbeat | wire.RenewLease, *, session_id: UUID, tenant: int
) -> wire.Beat:
    beat = Heartbeat(tenant, session_id, body.running, body.draining, body.progress)
    renewed = await context.heartbeats.beat(beat)
    if renewed is None:
        raise Conflict("this session has ended; register again", code="session_ended")
    if body.progress:
        context.announcer.announce("output", [report.execution_id for report in body.progress])
    if renewed.strays:
        ended = [AttemptResult(execution, attempt, session_id, "preempted") for execution, attempt in renewed.strays]
        await context.settler.settle(Report(session_id, ended))
    preempts = [wire.Preempt(execution_id=execution, attempt=attempt) for execution, attempt in renewed.preempts]
    return wire.Beat(lease_s=renewed.lease_s, cancels=renewed.cancels, gone=renewed.gone, preempts=preempts)


async def _serves(call: Call, session_id: UUID) -> None:
    if not await call.context.dispatcher.sessions.belongs_to(session_id, tenant=call.tenant):
        raise Conflict("unknown or ended session; register again", code="session_ended")


async def _disconnected(call: Call) -> None:
    """Return when the worker disconnects, so that nothing is claimed for a closed connection."""
    while (await call.request.receive())["type"] != "http.disconnect":
        pass


def check_protocol(call: Call) -> None:
    given = call.request.headers.get("mainspring-protocol")
    if given != wire.PROTOCOL:
        raise Invalid(
            f"worker protocol mismatch: the server has {wire.PROTOCOL}, the worker {given}; upgrade the older one",
            code="protocol",
        )
