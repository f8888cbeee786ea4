"""Routes of the doctor, shards, login links and metrics."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from mainspring import wire
from mainspring.api.auth import LINK_S
from mainspring.api.route import Call, Table
from mainspring.clock import SystemClock, instant
from mainspring.domain.alert import Severity
from mainspring.store import alerts, dead_letters, doctor, queues, runs, sessions, shards
from mainspring.telemetry import metrics
from mainspring.views.overview import shards_now
from mainspring.views.queues import depths_of

table = Table()


@table.route("GET", "/api/v1/doctor", scope="admin", response=wire.Diagnosis, query=("all",))
async def examine(call: Call) -> wire.Diagnosis:
    """Check the invariants and list violations among the newest executions, or among all with `all=true`."""
    async with call.context.database.connection() as connection:
        return await doctor.examine(connection, everything=call.query("all") == "true")


@table.route("GET", "/api/v1/system/shards", scope="admin", response=wire.Shards)
async def list_shards(call: Call) -> wire.Shards:
    """List the scheduler processes and the owner of each shard."""
    return await shards_now(call.context.database)


@table.route("POST", "/api/v1/login-links", scope="read", response=wire.LoginLink, status=201)
async def login_link(call: Call) -> wire.LoginLink:
    """Create a link that opens the web UI; it expires after an hour."""
    key = call.context.auth.login_key(call.caller.token_id)
    expires_at = instant(SystemClock().now_ms()) + timedelta(seconds=LINK_S)
    return wire.LoginLink(path=f"/login?k={key}", expires_at=expires_at)


@table.route("GET", "/metrics", scope="read")
async def scrape(call: Call) -> Response:
    """Get the metrics in Prometheus format."""
    async with call.context.database.connection() as connection:
        depths = await depths_of(connection, tenant=None)
        leases = await shards.list_shards(connection)
        open_letters = await dead_letters.count_open(connection, tenant=call.tenant)
        firing = await alerts.firing_counts(connection)
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
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
