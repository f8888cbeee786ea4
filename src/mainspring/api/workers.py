"""Routes of the worker protocol, and the list of workers."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from starlette.responses import Response

from mainspring import wire
from mainspring.api.context import Context
from mainspring.api.route import Call, Table
from mainspring.api.worker_identity import check_credentials, new_session_key, process_of, proof_of, require_session
from mainspring.codec import encode
from mainspring.domain.errors import Conflict, Forbidden, Invalid, invalid
from mainspring.domain.job import QUEUE
from mainspring.domain.placement.functions import check_entries, function_set
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import executions as intake
from mainspring.intake import workers
from mainspring.intake.declare import declare
from mainspring.intake.secret_delivery import deliver
from mainspring.intake.validate import plugins
from mainspring.results.batch import Report
from mainspring.results.rescue import rescue_orphans
from mainspring.store import checkpoints, job_usage, queues, sessions
from mainspring.store.sessions import Heartbeat, SessionProof
from mainspring.views import refs
from mainspring.views import workers as worker_views

table = Table()
FEATURES = (
    "progress", "no_retry", "checkpoints", "artifacts", "artifacts_in", "stream", "functions", "secrets", "usage",
)  # fmt: skip
"""Optional protocol features that this server supports."""
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
    schemas = call.body.schemas or {}
    call.caller.demand_grants(call.body.queues, call.body.labels, [*call.body.kinds, *schemas])
    session_id = uuid4()
    key, key_digest = new_session_key() if "session_key" in call.body.takes else ("", None)
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
            proof=SessionProof(call.caller.token_id, key_digest),
            process=process_of(call),
        )
        await plugins.register_schemas(connection, schemas, tenant=call.tenant, shared=call.body.shared)
    return wire.Registered(session_id=session_id, lease_s=lease_s, heartbeat_s=lease_s / 4, key=key, takes=[*FEATURES])


@table.route("POST", WORKER + "/functions", scope="worker", body=wire.StateFunctions)
async def state_functions(call: Call) -> None:
    """State the Python functions that a session has; executions of other functions are not sent to it."""
    check_protocol(call)
    body: wire.StateFunctions = call.body
    await require_session(call, body.session_id)
    check_entries(body.functions, body.modules)
    functions = function_set(body.functions, body.modules)
    async with call.context.database.connection() as connection:
        live = await sessions.state_functions(
            connection, tenant=call.tenant, session_id=body.session_id, functions=functions, proof=proof_of(call)
        )
    if not live:
        raise Conflict("this session has ended; register again", code="session_ended")


@table.route("POST", WORKER + "/poll", scope="worker", body=wire.Poll, response=wire.Polled)
async def poll(call: Call) -> wire.Polled | Response:
    """Claim executions; the response is delayed until there are some or `wait_s` have passed."""
    check_protocol(call)
    polling = asyncio.ensure_future(call.context.dispatcher.poll(call.body, tenant=call.tenant, proof=proof_of(call)))
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
    demanded = await require_session(call, body.session_id)
    return await settle_results(call.context, body, session_id=body.session_id, proof=demanded)


@table.route(
    "POST", WORKER + "/heartbeat", scope="worker", body=wire.Heartbeat, response=wire.Beat, limit=MOST_RESULT_BYTES
)
async def heartbeat(call: Call) -> wire.Beat:
    """Renew the session's lease; the response lists what to cancel."""
    check_protocol(call)
    body: wire.Heartbeat = call.body
    proof = proof_of(call)
    call.context.dispatcher.sessions.check_cached(body.session_id, tenant=call.tenant, proof=proof)
    return await renew_lease(call.context, body, session_id=body.session_id, tenant=call.tenant, proof=proof)


@table.route("POST", WORKER + "/checkpoints", scope="worker", body=wire.SaveCheckpoints, limit=MOST_RESULT_BYTES)
async def save_checkpoints(call: Call) -> None:
    """Save checkpoints of running attempts."""
    check_protocol(call)
    body: wire.SaveCheckpoints = call.body
    demanded = await require_session(call, body.session_id)
    attempts = [(report.execution_id, report.attempt) for report in body.checkpoints]
    check_credentials(call, demanded, body.session_id, attempts, body.credentials)
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
    demanded = await require_session(call, body.session_id)
    stated = dict(zip(body.executions, body.attempts, strict=False))
    attempts = [(execution, stated.get(execution, 0)) for execution in body.executions]
    check_credentials(call, demanded, body.session_id, attempts, body.credentials)
    async with call.context.database.connection() as connection:
        found = await checkpoints.read_checkpoints(connection, session_id=body.session_id, attempts=attempts)
    return wire.Checkpoints(checkpoints=found)


@table.route("POST", WORKER + "/secrets", scope="worker", body=wire.FetchSecrets, response=wire.AttemptSecrets)
async def fetch_secrets(call: Call) -> wire.AttemptSecrets:
    """Get the secrets of a running attempt; its worker asks once, before it starts the task."""
    check_protocol(call)
    body: wire.FetchSecrets = call.body
    demanded = await require_session(call, body.session_id)
    if demanded.key_digest is None:
        raise Forbidden("secrets are only given to workers that prove their session; upgrade the worker")
    check_credentials(call, demanded, body.session_id, [(body.execution_id, body.attempt)], [body.credential])
    return await deliver(
        call.context.database,
        call.context.definitions,
        call.context.vault,
        call.context.bursts,
        session_id=body.session_id,
        execution_id=body.execution_id,
        attempt=body.attempt,
        by=call.caller.name,
    )


@table.route("POST", WORKER + "/jobs", scope="worker", body=wire.Declare, response=wire.DeclareAnswer)
async def declare_jobs(call: Call) -> wire.DeclareAnswer:
    """Create or update the jobs that a worker's code declares; unchanged jobs keep their version."""
    check_protocol(call)
    found = [
        await declare(
            call.context.database,
            spec,
            tenant=call.tenant,
            by=call.caller.name,
            may_exceed=call.caller.may_exceed,
            grants=None if call.caller.may("admin") else call.caller.grants,
        )
        for spec in call.body.jobs
    ]
    return wire.DeclareAnswer(jobs=found)


@table.route("POST", WORKER + "/executions", scope="worker", body=wire.Begin, response=wire.Begun, status=201)
async def begin(call: Call) -> wire.Begun:
    """Begin an execution that the session runs on its own, such as a command that cron has started.

    It is in no queue and under no limits. The token must grant the queue of the job.
    """
    check_protocol(call)
    await require_session(call, call.body.session_id)
    row = await refs.job_row(call.context.database, call.body.job, tenant=call.tenant)
    call.caller.demand_grants([row.spec.queue_name], {}, [])
    made = await intake.begin(
        call.context.database, str(row.job_id), call.body.session_id, tenant=call.tenant, by=call.caller.name
    )
    call.context.announcer.announce("started", [made])
    return wire.Begun(execution_id=made, attempt=1)


@table.route("POST", WORKER + "/goodbye", scope="worker", body=wire.Goodbye)
async def goodbye(call: Call) -> Response:
    """End a session; its unfinished executions are rescued at once."""
    session_id, proof = call.body.session_id, proof_of(call)
    await require_session(call, session_id)
    async with call.context.database.connection() as connection:
        await sessions.end_session(
            connection, tenant=call.tenant, session_id=session_id, lost=call.body.lost, proof=proof
        )
    call.context.dispatcher.forget(session_id)
    await rescue_orphans(call.context.database, call.context.settler)
    return Response(encode({}), media_type="application/json")


@table.route("POST", "/api/v1/workers/{name}/drain", scope="admin", body=wire.DrainWorker, response=wire.Worker)
async def drain_worker(call: Call) -> wire.Worker:
    """Drain a worker: it finishes what it runs and claims nothing more, until it is resumed or restarted."""
    return await _set_draining(call, draining=True)


@table.route("POST", "/api/v1/workers/{name}/resume", scope="admin", body=wire.DrainWorker, response=wire.Worker)
async def resume_worker(call: Call) -> wire.Worker:
    """Let a drained worker claim executions again."""
    return await _set_draining(call, draining=False)


async def _set_draining(call: Call, *, draining: bool) -> wire.Worker:
    return await workers.set_draining(
        call.context.database,
        call.path("name"),
        draining=draining,
        reason=call.body.reason,
        tenant=call.tenant,
        by=call.caller.name,
    )


@table.route("GET", "/api/v1/workers", scope="read", response=wire.Page[wire.Worker])
async def list_workers(call: Call) -> wire.Page[wire.Worker]:
    """List workers with their latest sessions."""
    return wire.Page(items=await worker_views.list_workers(call.context.database, tenant=call.tenant))


async def settle_results(
    context: Context, body: wire.Results | wire.ReportResults, *, session_id: UUID, proof: SessionProof
) -> wire.Settled:
    stale = await context.results.accept(body, session_id=session_id, key_digest=proof.key_digest)
    return wire.Settled(stale=sorted(stale))


async def renew_lease(
    context: Context, body: wire.Heartbeat | wire.RenewLease, *, session_id: UUID, tenant: int, proof: SessionProof
) -> wire.Beat:
    beat = Heartbeat(tenant, session_id, body.running, body.draining, body.progress, proof)
    renewed = await context.heartbeats.beat(beat)
    if renewed is None:
        raise Conflict("this session has ended; register again", code="session_ended")
    if body.usage:
        async with context.database.connection() as connection:
            await job_usage.add_usage(connection, session_id=session_id, usage=body.usage)
    if body.progress:
        held = set(body.running).difference(renewed.gone)
        context.announcer.announce("output", [r.execution_id for r in body.progress if r.execution_id in held])
    if renewed.strays:
        await context.settler.catch_up()
        ended = [AttemptResult(execution, attempt, session_id, "preempted") for execution, attempt in renewed.strays]
        await context.settler.settle(Report(session_id, ended))
    preempts = [wire.Preempt(execution_id=execution, attempt=attempt) for execution, attempt in renewed.preempts]
    return wire.Beat(lease_s=renewed.lease_s, cancels=renewed.cancels, gone=renewed.gone, preempts=preempts)


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
