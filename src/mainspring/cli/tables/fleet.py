"""Tables and details of workers, schedulers and shards."""

from __future__ import annotations

from mainspring import wire
from mainspring.cli.output import Column, TableLayout
from mainspring.cli.tables.fields import pairs
from mainspring.display.times import distance, local, now, span
from mainspring.domain.placement.resources import show_amounts
from mainspring.domain.sandbox import BWRAP, CPU, DISK_RATE, MEMORY, PIDS, RLIMITS

WORKERS: TableLayout[wire.Worker] = TableLayout(
    name=lambda worker: worker.name,
    columns=[
        Column("NAME", lambda worker: worker.name, wraps=True),
        Column("STATE", lambda worker: worker.state),
        Column("BUSY", lambda worker: f"{worker.busy}/{worker.slots}"),
        Column("QUEUES", lambda worker: ",".join(worker.queues), wraps=True),
        Column("HOST", lambda worker: worker.host, wraps=True),
        Column("VERSION", lambda worker: worker.version, wraps=True),
        Column("LAST SEEN", lambda worker: distance(min(worker.seen_at, now()), now())),
        Column("STARTED", lambda worker: local(worker.started_at), wide=True),
        Column("KINDS", lambda worker: ",".join(worker.kinds), wide=True),
        Column("LABELS", lambda worker: ",".join(f"{k}={v}" for k, v in worker.labels.items()), wide=True),
        Column("ID", lambda worker: str(worker.worker_id), wide=True),
    ],
    empty="no workers; start one with: mainspring worker",
)


SCHEDULERS: TableLayout[wire.SchedulerProcess] = TableLayout(
    name=lambda scheduler: scheduler.name,
    columns=[
        Column("SCHEDULER", lambda scheduler: scheduler.name, wraps=True),
        Column("STATE", lambda scheduler: scheduler.state),
        Column("SHARDS", lambda scheduler: str(scheduler.shards)),
        Column("HOST", lambda scheduler: scheduler.host, wraps=True),
        Column("VERSION", lambda scheduler: scheduler.version, wraps=True),
        Column("LAST SEEN", lambda scheduler: distance(min(scheduler.seen_at, now()), now())),
        Column("STARTED", lambda scheduler: local(scheduler.started_at), wide=True),
        Column("ID", lambda scheduler: str(scheduler.scheduler_id), wide=True),
    ],
    empty="no schedulers; start one with: mainspring serve --roles scheduler",
)


SHARDS: TableLayout[wire.Shard] = TableLayout(
    name=lambda shard: str(shard.shard),
    columns=[
        Column("SHARD", lambda shard: str(shard.shard)),
        Column("OWNER", lambda shard: shard.owner or "none"),
        Column("EPOCH", lambda shard: str(shard.epoch)),
        Column("LEASE", lambda s: "–" if s.lease_expires_at is None else distance(s.lease_expires_at, now())),
        Column("LAG", lambda shard: span(shard.lag_s * 1000)),
        Column("WATERMARK", lambda shard: local(shard.watermark), wide=True),
    ],
    empty="no shards",
)


SANDBOX = "sandbox/"


SANDBOX_FEATURES = [name.removeprefix(SANDBOX) for name in (RLIMITS, MEMORY, PIDS, CPU, DISK_RATE, BWRAP)]


def worker_details(worker: wire.Worker) -> str:
    held = {name.removeprefix(SANDBOX): how for name, how in worker.labels.items() if name.startswith(SANDBOX)}
    return pairs(
        ("name", worker.name),
        ("state", f"{worker.state}, {worker.busy} of {worker.slots} slots busy"),
        ("queues", ", ".join(worker.queues)),
        ("kinds", ", ".join(worker.kinds)),
        ("functions", _functions(worker)),
        ("modules", ", ".join(f"{name} {version}" for name, version in worker.modules.items())),
        ("labels", ", ".join(f"{k}={v}" for k, v in worker.labels.items() if not k.startswith(SANDBOX))),
        ("resources", show_amounts(worker.resources)),
        ("sandbox", ", ".join(name if how == "yes" else f"{name} ({how})" for name, how in held.items())),
        ("no sandbox", ", ".join(name for name in SANDBOX_FEATURES if name not in held)),
        ("host", worker.host),
        ("version", worker.version),
        ("last seen", distance(min(worker.seen_at, now()), now())),
        ("started", local(worker.started_at)),
    )


def _functions(worker: wire.Worker) -> str:
    if worker.functions is None:
        return "not stated by this version of the worker" if "python" in worker.kinds else ""
    more = worker.function_count - len(worker.functions)
    return ", ".join(worker.functions) + (f" and {more:,} more" if more > 0 else "")
