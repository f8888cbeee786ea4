"""How jobs, executions, fires and workers look to people."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from mainspring import wire
from mainspring.cli.feed import GLYPHS, SHORT_ID
from mainspring.cli.output import Column, Look, aligned
from mainspring.codec import encode
from mainspring.display.text import clean, progress_text
from mainspring.display.times import both, distance, local, now, span
from mainspring.domain.execution import State
from mainspring.domain.job import JobSpec, ShellTask, task_text
from mainspring.domain.placement.resources import show_amounts
from mainspring.domain.retry import describe_retries
from mainspring.domain.sandbox import BWRAP, CPU, DISK_RATE, MEMORY, PIDS, RLIMITS
from mainspring.domain.schedule.schedule import describe_spec

_JOB_GLYPHS = {"active": "●", "paused": "⏸", "finished": "✔", "deleted": "⊘"}


def state_text(state: State) -> str:
    return f"{GLYPHS[state][0]} {state.replace('_', ' ')}"


def late_ms(execution: wire.Execution) -> int | None:
    """How late it started; unknown while it waits for another attempt, which is due later."""
    return None if execution.state == "waiting" else execution.late_ms


def schedule_text(job: wire.Job) -> str:
    return job.schedule_description or "on demand"


def command_text(spec: JobSpec) -> str:
    return shlex.join(spec.task.argv) if isinstance(spec.task, ShellTask) else task_text(spec.task)


def strip(job: wire.Job) -> str:
    """The last executions as glyphs, the newest on the right."""
    by_age = sorted(job.last, key=lambda last: last.fire_at)
    return "".join(GLYPHS[last.state][0] for last in by_age)


JOBS: Look[wire.Job] = Look(
    name=lambda job: job.name,
    columns=[
        Column("NAME", lambda job: job.name, wraps=True),
        Column("STATE", lambda job: f"{_JOB_GLYPHS[job.state]} {job.state}"),
        Column("SCHEDULE", schedule_text, wraps=True),
        Column("NEXT FIRE", lambda job: distance(job.next_fire_at, now())),
        Column("LAST", strip),
        Column("QUEUE", lambda job: job.spec.queue_name, wide=True),
        Column("PRIORITY", lambda job: str(job.spec.priority), wide=True),
        Column("VERSION", lambda job: str(job.version), wide=True),
        Column("COMMAND", lambda job: command_text(job.spec), wide=True, wraps=True),
        Column("ID", lambda job: str(job.job_id), wide=True),
    ],
    empty="no jobs yet; add one with: mainspring add hello --every 5s -- echo hi",
)

EXECUTIONS: Look[wire.Execution] = Look(
    name=lambda execution: str(execution.execution_id),
    columns=[
        Column("ID", lambda execution: str(execution.execution_id)[:SHORT_ID]),
        Column("JOB", lambda execution: execution.title, wraps=True),
        Column("STATE", lambda e: state_text(e.state), color=lambda e: GLYPHS[e.state][1]),
        Column("DUE", lambda execution: local(execution.due_at)),
        Column("LATE", lambda execution: span(late_ms(execution))),
        Column("TOOK", lambda execution: span(execution.duration_ms)),
        Column("EXIT", lambda e: "–" if e.exit_code is None else str(e.exit_code)),
        Column("ATTEMPT", lambda execution: str(execution.attempt), wide=True),
        Column("TRIGGER", lambda execution: execution.trigger, wide=True),
        Column("QUEUE", lambda execution: execution.queue, wide=True),
        Column("WORKER", lambda execution: execution.worker or "–", wide=True),
        Column("REASON", lambda execution: execution.error or execution.reason or "", wide=True, wraps=True),
        Column("FULL ID", lambda execution: str(execution.execution_id), wide=True),
    ],
    empty="no executions",
)


HISTORY: Look[wire.Execution] = Look(
    name=lambda execution: str(execution.execution_id),
    columns=[
        Column("ID", lambda execution: str(execution.execution_id)[:SHORT_ID]),
        Column("TRIGGER", lambda execution: execution.trigger),
        Column("FIRE", lambda execution: local(execution.fire_at)),
        *[column for column in EXECUTIONS.columns if column.title not in ("ID", "JOB", "TRIGGER")],
        Column("BACKFILL", lambda execution: str(execution.backfill_id or "–"), wide=True),
    ],
    empty="it has not run yet",
)


def backfill_progress(backfill: wire.Backfill) -> str:
    """How far it has got, in one line."""
    decided = backfill.made + backfill.left_out
    parts = [f"{backfill.state}", f"{decided:,} of {backfill.instants:,} instants"]
    parts += [f"{backfill.left_out:,} left out"] if backfill.left_out else []
    parts += [f"{n:,} {state.replace('_', ' ')}" for state, n in sorted(backfill.executions.items())]
    return " · ".join(parts)


BACKFILLS: Look[wire.Backfill] = Look(
    name=lambda backfill: str(backfill.backfill_id),
    columns=[
        Column("ID", lambda backfill: str(backfill.backfill_id)),
        Column("JOB", lambda backfill: backfill.job, wraps=True),
        Column("STATE", lambda backfill: backfill.state),
        Column("FROM", lambda backfill: local(backfill.from_)),
        Column("TO", lambda backfill: local(backfill.to)),
        Column("DONE", lambda backfill: f"{backfill.made + backfill.left_out:,} of {backfill.instants:,}"),
        Column("REPROCESS", lambda backfill: backfill.reprocess, wide=True),
        Column("ORDER", lambda backfill: backfill.order, wide=True),
        Column("CONCURRENCY", lambda backfill: str(backfill.concurrency), wide=True),
        Column("PRIORITY", lambda backfill: str(backfill.priority), wide=True),
        Column("CREATED", lambda backfill: local(backfill.created_at), wide=True),
        Column("BY", lambda backfill: backfill.created_by, wide=True),
    ],
    empty="no backfills; make one with: mainspring backfill JOB --from T",
)


def backfill_details(backfill: wire.Backfill) -> str:
    return pairs(
        ("id", str(backfill.backfill_id)),
        ("job", backfill.job),
        ("progress", backfill_progress(backfill)),
        ("range", f"{local(backfill.from_)} up to {local(backfill.to)}, {backfill.order} first"),
        ("reprocess", backfill.reprocess),
        ("at a time", f"{backfill.concurrency}, priority {backfill.priority}"),
        ("params", _json(backfill.params)),
        ("created", f"{local(backfill.created_at)} by {backfill.created_by}"),
        ("ended", local(backfill.ended_at) if backfill.ended_at else ""),
    )


def version_schedule(version: wire.Version) -> str:
    """In words; the tenant that spreads an `H` is the server's to know, so the name alone stands in for it."""
    schedule = version.spec.schedule
    return "on demand" if schedule is None else describe_spec(schedule, seed=version.spec.name)


def reason_text(entry: wire.LedgerEntry) -> str:
    return (entry.reason or "") + (f", {entry.fires:,} fires up to then" if entry.fires > 1 else "")


LEDGER: Look[wire.LedgerEntry] = Look(
    name=lambda entry: str(entry.execution_id),
    columns=[
        Column("FIRE", lambda entry: local(entry.fire_at)),
        Column("STATE", lambda e: state_text(e.state), color=lambda e: GLYPHS[e.state][1]),
        Column("REASON", lambda entry: reason_text(entry) or entry.note or "", wraps=True),
        Column("LATE", lambda entry: span(entry.late_ms)),
        Column("TOOK", lambda entry: span(entry.duration_ms)),
        Column("FIRES", lambda entry: str(entry.fires), wide=True),
        Column("ID", lambda entry: str(entry.execution_id)[:SHORT_ID]),
    ],
    empty="it has not been due yet",
)

VERSIONS: Look[wire.Version] = Look(
    name=lambda version: str(version.version),
    columns=[
        Column("VERSION", lambda version: str(version.version)),
        Column("CREATED", lambda version: local(version.created_at)),
        Column("BY", lambda version: version.created_by),
        Column("SCHEDULE", lambda v: version_schedule(v), wraps=True),
        Column("COMMAND", lambda version: command_text(version.spec), wraps=True),
    ],
    empty="no versions",
)

LIFECYCLE: Look[wire.LifecycleEvent] = Look(
    name=lambda event: event.event,
    columns=[
        Column("WHEN", lambda event: local(event.at)),
        Column("EVENT", lambda event: event.event),
        Column("ATTEMPT", lambda event: str(event.attempt or "–")),
        Column("DETAILS", lambda event: event.text or "", wraps=True),
    ],
    empty="nothing yet: it waits for its time",
)

ARTIFACTS: Look[wire.Artifact] = Look(
    name=lambda artifact: artifact.name,
    columns=[
        Column("NAME", lambda artifact: artifact.name),
        Column("BYTES", lambda artifact: f"{artifact.bytes:,}"),
        Column("ATTEMPT", lambda artifact: str(artifact.attempt)),
        Column("KEPT UNTIL", lambda artifact: local(artifact.expires_at)),
        Column("TYPE", lambda artifact: artifact.content_type, wide=True),
        Column("SHA256", lambda artifact: artifact.sha256, wide=True),
    ],
    empty="it has left no files",
)

WORKERS: Look[wire.Worker] = Look(
    name=lambda worker: worker.name,
    columns=[
        Column("NAME", lambda worker: worker.name),
        Column("STATE", lambda worker: worker.state),
        Column("BUSY", lambda worker: f"{worker.busy}/{worker.slots}"),
        Column("QUEUES", lambda worker: ",".join(worker.queues)),
        Column("HOST", lambda worker: worker.host),
        Column("VERSION", lambda worker: worker.version),
        Column("SEEN", lambda worker: distance(min(worker.seen_at, now()), now())),
        Column("STARTED", lambda worker: local(worker.started_at), wide=True),
        Column("KINDS", lambda worker: ",".join(worker.kinds), wide=True),
        Column("LABELS", lambda worker: ",".join(f"{k}={v}" for k, v in worker.labels.items()), wide=True),
        Column("ID", lambda worker: str(worker.worker_id), wide=True),
    ],
    empty="no workers; start one with: mainspring worker",
)


SCHEDULERS: Look[wire.SchedulerProcess] = Look(
    name=lambda scheduler: scheduler.name,
    columns=[
        Column("SCHEDULER", lambda scheduler: scheduler.name),
        Column("STATE", lambda scheduler: scheduler.state),
        Column("SHARDS", lambda scheduler: str(scheduler.shards)),
        Column("HOST", lambda scheduler: scheduler.host),
        Column("VERSION", lambda scheduler: scheduler.version),
        Column("SEEN", lambda scheduler: distance(min(scheduler.seen_at, now()), now())),
        Column("STARTED", lambda scheduler: local(scheduler.started_at), wide=True),
        Column("ID", lambda scheduler: str(scheduler.scheduler_id), wide=True),
    ],
    empty="no schedulers; start one with: mainspring serve --roles scheduler",
)

SHARDS: Look[wire.Shard] = Look(
    name=lambda shard: str(shard.shard),
    columns=[
        Column("SHARD", lambda shard: str(shard.shard)),
        Column("OWNER", lambda shard: shard.owner or "nobody"),
        Column("EPOCH", lambda shard: str(shard.epoch)),
        Column("LEASE", lambda s: "–" if s.lease_expires_at is None else distance(s.lease_expires_at, now())),
        Column("LAG", lambda shard: span(shard.lag_s * 1000)),
        Column("WATERMARK", lambda shard: local(shard.watermark), wide=True),
    ],
    empty="no shards",
)


SANDBOX = "sandbox/"
SANDBOX_MEANS = [name.removeprefix(SANDBOX) for name in (RLIMITS, MEMORY, PIDS, CPU, DISK_RATE, BWRAP)]


def worker_details(worker: wire.Worker) -> str:
    held = {name.removeprefix(SANDBOX): how for name, how in worker.labels.items() if name.startswith(SANDBOX)}
    return pairs(
        ("name", worker.name),
        ("state", f"{worker.state}, {worker.busy} of {worker.slots} slots busy"),
        ("queues", ", ".join(worker.queues)),
        ("kinds", ", ".join(worker.kinds)),
        ("labels", ", ".join(f"{k}={v}" for k, v in worker.labels.items() if not k.startswith(SANDBOX))),
        ("resources", show_amounts(worker.resources)),
        ("sandbox", ", ".join(name if how == "yes" else f"{name} by {how}" for name, how in held.items())),
        ("not held", ", ".join(name for name in SANDBOX_MEANS if name not in held)),
        ("host", worker.host),
        ("version", worker.version),
        ("seen", distance(min(worker.seen_at, now()), now())),
        ("started", local(worker.started_at)),
    )


def job_details(job: wire.Job) -> str:
    spec, schedule = job.spec, job.spec.schedule
    raw = "" if schedule is None else f"  {encode(schedule).decode()}"
    preemptible = ", preemptible" if spec.preemptible else ""
    return pairs(
        ("name", job.name),
        ("state", f"{_JOB_GLYPHS[job.state]} {job.state}" + (f": {job.pause_reason}" if job.pause_reason else "")),
        ("paused", _paused(job)),
        *[(deadline.kind.replace("_", " "), deadline_text(deadline)) for deadline in job.deadlines],
        ("description", spec.description),
        ("schedule", schedule_text(job) + raw),
        ("next fire", _instant(job.next_fire_at)),
        ("last", strip(job)),
        ("command", command_text(spec)),
        ("environment", _json(spec.task.env) if isinstance(spec.task, ShellTask) else ""),
        ("folder", spec.task.cwd or "" if isinstance(spec.task, ShellTask) else ""),
        ("sandbox", "" if spec.sandbox is None else encode(spec.sandbox).decode()),
        ("queue", f"{spec.queue_name}, priority {spec.priority}"),
        ("timeout", "1h, or what the queue allows" if spec.timeout is None else str(spec.timeout)),
        ("retries", describe_retries(spec.retries)),
        ("policies", f"overlap {spec.overlap_policy}, misfire {spec.misfire.policy}, {spec.delivery}" + preemptible),
        ("start by", f"{spec.start_by} after it was due, else skipped" if spec.start_by else ""),
        ("pauses", f"after {spec.pause_after_failures} failures in a row" if spec.pause_after_failures else ""),
        ("metadata", _json(spec.metadata)),
        ("version", f"{job.version}, of {local(job.updated_at)}"),
        ("created", f"{local(job.created_at)} by {job.created_by}"),
        ("id", str(job.job_id)),
    )


def execution_details(execution: wire.Execution) -> str:
    late = "" if late_ms(execution) is None else f"  late {span(late_ms(execution))}"
    took = "" if execution.duration_ms is None else f"  took {span(execution.duration_ms)}"
    state = state_text(execution.state) + (", being cancelled" if execution.cancelling else "")
    text = pairs(
        ("id", str(execution.execution_id)),
        ("job", f"{execution.title}, version {execution.version}"),
        ("state", state),
        ("progress", progress_text(execution.progress) if execution.progress else ""),
        ("reason", execution.reason),
        ("error", execution.error),
        ("exit code", execution.exit_code),
        ("trigger", execution.trigger + (f" by {execution.created_by}" if execution.created_by else "")),
        ("backfill", execution.backfill_id),
        ("fire", _instant(execution.fire_at)),
        ("fires", f"{execution.fires} came together in this one" if execution.fires > 1 else ""),
        ("due", local(execution.due_at) if execution.due_at != execution.fire_at else ""),
        ("queued", local(execution.queued_at) if execution.queued_at else ""),
        ("started", local(execution.started_at) + late if execution.started_at else ""),
        ("finished", local(execution.finished_at) + took if execution.finished_at else ""),
        ("queue", f"{execution.queue}, priority {execution.priority}"),
        ("worker", execution.worker),
        ("attempt", execution.attempt),
        ("params", _json(execution.params)),
        ("metadata", _json(execution.metadata)),
        ("result", _json(execution.result)),
    )
    return "\n".join([text, *attempt_lines(execution.attempts)])


def attempt_lines(attempts: Iterable[wire.Attempt]) -> list[str]:
    """How each attempt ended, where, and the first line of why."""
    rows = [
        [
            str(a.attempt),
            a.outcome.replace("_", " "),
            local(a.started_at),
            f"took {_between(a)}",
            "" if a.exit_code is None else f"exit {a.exit_code}",
            "" if a.worker is None else f"on {clean(a.worker)}",
            clean((a.error or "").strip().partition("\n")[0]),
        ]
        for a in attempts
    ]
    return [*(["attempts"] if rows else []), *aligned(rows, indent="  ")]


def deadline_text(deadline: wire.Deadline) -> str:
    at = "" if deadline.at is None else f" {_instant(deadline.at)}"
    if deadline.state == "missed":
        return f"✖ missed: no success by{at}"
    return f"due: a success is expected by{at}" if deadline.state == "due" else f"ok, next by{at}" if at else "ok"


def _paused(job: wire.Job) -> str:
    if job.paused_at is None:
        return ""
    until = "until someone resumes it" if job.paused_until is None else f"until {_instant(job.paused_until)}"
    return f"since {local(job.paused_at)}, {until}"


def fire_lines(fires: Iterable[datetime], indent: str = "") -> list[str]:
    return aligned(both(fires), indent)


def pairs(*rows: tuple[str, Any]) -> str:
    """Names and values as lines; empty values are left out."""
    return "\n".join(aligned([[name, clean(str(value))] for name, value in rows if value not in (None, "")]))


def _instant(at: datetime | None) -> str:
    return "" if at is None else f"{'  '.join(both([at])[0])}  ({distance(at, now())})"


def _between(attempt: wire.Attempt) -> str:
    return span((attempt.ended_at - attempt.started_at).total_seconds() * 1000)


def _json(value: Any) -> str:
    return encode(value).decode() if value else ""
