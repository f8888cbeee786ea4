"""How jobs, executions, fires and workers look to people."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from mainspring import wire
from mainspring.cli.feed import GLYPHS, SHORT_ID
from mainspring.cli.output import Column, Look, aligned, clean
from mainspring.cli.times import both, distance, local, now, span
from mainspring.codec import encode
from mainspring.domain.execution import State
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.schedule import describe_spec

_JOB_GLYPHS = {"active": "●", "paused": "⏸", "finished": "✔", "deleted": "⊘"}


def state_text(state: State) -> str:
    return f"{GLYPHS[state][0]} {state.replace('_', ' ')}"


def late_ms(execution: wire.Execution) -> int | None:
    """How late it started; unknown while it waits for another attempt, which is due later."""
    return None if execution.state == "waiting" else execution.late_ms


def schedule_text(job: wire.Job) -> str:
    return job.schedule_description or "on demand"


def command_text(spec: JobSpec) -> str:
    return shlex.join(spec.task.argv) if isinstance(spec.task, ShellTask) else "nothing (noop)"


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
        Column("JOB", lambda execution: execution.job, wraps=True),
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


def version_schedule(version: wire.Version) -> str:
    """In words; the tenant that spreads an `H` is the server's to know, so the name alone stands in for it."""
    schedule = version.spec.schedule
    return "on demand" if schedule is None else describe_spec(schedule, seed=version.spec.name)


LEDGER: Look[wire.LedgerEntry] = Look(
    name=lambda entry: str(entry.execution_id),
    columns=[
        Column("FIRE", lambda entry: local(entry.fire_at)),
        Column("STATE", lambda e: state_text(e.state), color=lambda e: GLYPHS[e.state][1]),
        Column("REASON", lambda entry: entry.reason or "", wraps=True),
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


def job_details(job: wire.Job) -> str:
    spec, schedule = job.spec, job.spec.schedule
    raw = "" if schedule is None else f"  {encode(schedule).decode()}"
    return pairs(
        ("name", job.name),
        (
            "state",
            f"{_JOB_GLYPHS[job.state]} {job.state}" + (f": {job.pause_reason}" if job.pause_reason else ""),
        ),
        ("description", spec.description),
        ("schedule", schedule_text(job) + raw),
        ("next fire", _instant(job.next_fire_at)),
        ("last", strip(job)),
        ("command", command_text(spec)),
        ("environment", _json(spec.task.env) if isinstance(spec.task, ShellTask) else ""),
        ("folder", spec.task.cwd or "" if isinstance(spec.task, ShellTask) else ""),
        ("queue", f"{spec.queue_name}, priority {spec.priority}"),
        ("timeout", str(spec.timeout)),
        ("retries", f"{spec.retries.max}, from {spec.retries.base} to {spec.retries.cap}"),
        ("policies", f"overlap {spec.overlap_policy}, misfire {spec.misfire.policy}, {spec.delivery}"),
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
        ("job", f"{execution.job}, version {execution.version}"),
        ("state", state),
        ("reason", execution.reason),
        ("error", execution.error),
        ("exit code", execution.exit_code),
        ("trigger", execution.trigger + (f" by {execution.created_by}" if execution.created_by else "")),
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
        ("result", _json(execution.result)),
    )
    rows = [
        [str(a.attempt), a.outcome, local(a.started_at), f"took {_between(a)}", clean(a.error or "")]
        for a in execution.attempts
    ]
    return "\n".join([text, *(["attempts"] if rows else []), *aligned(rows, indent="  ")])


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
