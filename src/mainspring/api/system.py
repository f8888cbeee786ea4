"""Routes of the doctor, shards, login links and metrics."""

from __future__ import annotations

from typing import get_args

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.api.metrics import channels_of, exposition
from mainspring.api.route import Call, Table
from mainspring.domain.alert import Severity
from mainspring.domain.audit_chain import CLUSTER
from mainspring.store import alerts, dead_letters, doctor, holds, queues, runs, sessions, shards, system, tokens
from mainspring.store.database_roles import role_notes
from mainspring.telemetry import metrics
from mainspring.views.audit_verification import verify_newest
from mainspring.views.overview import shards_now
from mainspring.views.queues import depths_of

table = Table()
MOST_AUDIT_ENTRIES = 1_000_000


@table.route("GET", "/api/v1/doctor", scope="admin", response=wire.Diagnosis, query=("all",))
async def examine(call: Call) -> wire.Diagnosis:
    """Check the invariants and list violations among the newest executions, or among all with `all=true`.

    Cluster administrators see those of all tenants.
    """
    async with call.context.database.root.connection() as connection:
        found = await doctor.examine(
            connection, tenant=call.caller.visible_tenant, everything=call.query("all") == "true"
        )
        exposed = await sessions.exposed_workers(connection, tenant=call.tenant)
        unbound = await tokens.unbound_worker_tokens(connection, tenant=call.tenant)
    notes = [*map(_exposure, exposed), *map(_unbound, unbound)]
    if call.caller.is_cluster_admin:
        notes += await role_notes(call.context.database.root)
        async with call.context.database.root.connection() as connection:
            notes += [str(state) for state in await system.engines(connection) if not state.up]
        notes += [] if call.context.replica is None else call.context.replica.notes()
    found = msgspec.structs.replace(found, notes=[*found.notes, *notes])
    return await _with_audit(call, found, everything=call.query("all") == "true")


async def _with_audit(call: Call, found: wire.Diagnosis, *, everything: bool) -> wire.Diagnosis:
    """Also hash the newest audit entries of the tenant, or all; of the cluster for its administrators."""
    most = MOST_AUDIT_ENTRIES if everything else doctor.NEWEST_CHECKED
    findings = []
    for tenant in (call.tenant, *((CLUSTER,) if call.caller.is_cluster_admin else ())):
        problem = await verify_newest(call.context.database.root, call.context.vault, tenant=tenant, most=most)
        if problem is not None:
            offender = f"{tenant}:{problem.seq}"
            findings.append(wire.Finding(check=doctor.AUDIT_CHECK, offender=offender, what=problem.what))
    if not findings:
        return found
    checks = found.checks | {doctor.AUDIT_CHECK: f"{len(findings)} violations"}
    return msgspec.structs.replace(found, healthy=False, checks=checks, findings=[*found.findings, *findings])


def _exposure(worker: sessions.ExposedWorker) -> str:
    who = f"worker {worker.name} on {worker.host} runs as"
    if worker.uid == 0:
        return f"{who} root: its jobs can read and change everything there; give it a system user of its own"
    return f"{who} the user of the server (uid {worker.uid}): its jobs can read the server's files and stop it"


def _unbound(name: str) -> str:
    return (
        f"worker token {name!r} grants every queue and label, as it is older than grants: replace it by one of"
        " `mainspring workers token`"
    )


@table.route("GET", "/api/v1/system/shards", scope="admin", response=wire.Shards)
async def list_shards(call: Call) -> wire.Shards:
    """List the scheduler processes and the owner of each shard. Cluster administrators also see their hosts."""
    return await shards_now(call.context.database.root, named=call.caller.is_cluster_admin)


@table.route("POST", "/api/v1/login-links", scope="read", response=wire.LoginLink, status=201, creates=True)
async def login_link(call: Call) -> wire.LoginLink:
    """Create a link that signs one browser in; it works once and expires after an hour."""
    key, expires_at = await call.context.auth.new_login_link(call.caller, database=call.context.database)
    return wire.LoginLink(path=f"/login?k={key}", expires_at=expires_at)


@table.route("GET", "/metrics", scope="read")
async def scrape(call: Call) -> Response:
    """Get the metrics in Prometheus format. Only cluster administrators see names of other tenants."""
    visible = call.caller.visible_tenant
    async with call.context.database.root.connection() as connection:
        depths = await depths_of(connection, tenant=visible)
        leases = await shards.list_shards(connection)
        metrics.FIRING_HELD.set(await holds.open_hold(connection) is not None)
        open_letters = await dead_letters.count_open(connection, tenant=call.tenant)
        firing = await alerts.firing_counts(connection, tenant=visible)
        own_channels = await channels_of(connection, tenant=visible)
        kept = await runs.sla_ratios(connection, tenant=call.tenant)
        running = await queues.count_running(connection, tenants=[call.tenant])
        workers = [w for w in await sessions.list_workers(connection, tenant=call.tenant) if w.state != "lost"]
    metrics.RUN_SLA_RATIO.clear()
    for workflow, ratio in kept.items():
        metrics.RUN_SLA_RATIO.labels(workflow).set(ratio)
    metrics.JOB_QUEUE_SIZE.clear()
    for gauge in (metrics.QUEUE_OLDEST, metrics.QUEUE_RUNNING, metrics.QUEUE_SLOTS):
        gauge.clear()
    oldest: dict[str, float] = {}
    for depth in depths:
        metrics.JOB_QUEUE_SIZE.labels(depth.queue, str(depth.priority)).inc(depth.depth)
        oldest[depth.queue] = max(depth.oldest_s, oldest.get(depth.queue, 0.0))
    for queue, seconds in oldest.items():
        metrics.QUEUE_OLDEST.labels(queue).set(seconds)
    for severity in get_args(Severity):
        metrics.ALERTS_FIRING.labels(severity).set(firing.get(severity, 0))
    for lease in leases:
        age_s = float("inf") if lease.seen_at is None else (lease.now - lease.seen_at).total_seconds()
        metrics.SHARD_HEARTBEAT_AGE.labels(str(lease.shard)).set(max(age_s, 0.0))
    live = [w for w in workers if w.state in ("idle", "busy", "draining", "suspect")]
    for (_, queue), n in running.items():
        metrics.QUEUE_RUNNING.labels(queue).set(n)
    for w in live:
        for queue in w.queues:
            metrics.QUEUE_SLOTS.labels(queue).inc(w.slots)
    metrics.ACTIVE_WORKERS.set(len(live))
    metrics.DEAD_LETTERS.set(open_letters)
    slots = sum(w.slots for w in live)
    metrics.WORKER_UTILIZATION.set(sum(w.busy for w in live) / slots if slots else 0.0)
    return exposition(own_channels)
