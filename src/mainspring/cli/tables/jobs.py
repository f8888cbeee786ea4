"""Tables and details of jobs, their versions and their fires."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from mainspring import wire
from mainspring.cli.feed import GLYPHS, SHORT_ID
from mainspring.cli.output import Column, TableLayout, aligned
from mainspring.cli.tables.executions import EXECUTIONS, state_text, trigger_text
from mainspring.cli.tables.fields import instant_text, json_text, pairs
from mainspring.codec import encode
from mainspring.display.times import both, distance, local, now, span
from mainspring.domain.job import JobSpec, ShellTask, task_text
from mainspring.domain.placement.resources import show_amount
from mainspring.domain.retry import describe_retries
from mainspring.domain.schedule.schedule import describe_spec, zone_of

RAN = ("running", "succeeded", "failed", "timed_out", "lost", "cancelled")
_JOB_GLYPHS = {"active": "●", "paused": "⏸", "finished": "✔", "deleted": "⊘"}


def schedule_text(job: wire.Job) -> str:
    return job.schedule_description or "on demand"


def command_text(spec: JobSpec) -> str:
    return shlex.join(spec.task.argv) if isinstance(spec.task, ShellTask) else task_text(spec.task)


def strip(job: wire.Job) -> str:
    """The last executions as glyphs, newest on the right."""
    by_age = sorted(job.last, key=lambda last: last.fire_at)
    return "".join(GLYPHS[last.state][0] for last in by_age)


JOBS: TableLayout[wire.Job] = TableLayout(
    name=lambda job: job.name,
    columns=[
        Column("NAME", lambda job: job.name, wraps=True),
        Column("STATE", lambda job: f"{_JOB_GLYPHS[job.state]} {job.state}"),
        Column("SCHEDULE", schedule_text, wraps=True),
        Column("NEXT FIRE", lambda job: distance(job.next_fire_at, now())),
        Column("LAST RUN", lambda job: _last_run_at(job)),
        Column("LAST", strip, optional=True),
        Column("QUEUE", lambda job: job.spec.queue_name, wide=True),
        Column("PRIORITY", lambda job: str(job.spec.priority), wide=True),
        Column("VERSION", lambda job: str(job.version), wide=True),
        Column("COMMAND", lambda job: command_text(job.spec), wide=True, wraps=True),
        Column("ID", lambda job: str(job.job_id), wide=True),
    ],
    empty="no jobs; add one with: mainspring add hello --every 5s -- echo hi",
)


HISTORY: TableLayout[wire.Execution] = TableLayout(
    name=lambda execution: str(execution.execution_id),
    columns=[
        Column("ID", lambda execution: str(execution.execution_id)[:SHORT_ID]),
        Column("TRIGGER", lambda execution: trigger_text(execution), optional=True, wraps=True),
        Column("FIRE", lambda execution: local(execution.fire_at)),
        *[column for column in EXECUTIONS.columns if column.title not in ("ID", "JOB", "TRIGGER")],
        Column("BACKFILL", lambda execution: str(execution.backfill_id or "–"), wide=True),
    ],
    empty="no executions yet",
)


LEDGER: TableLayout[wire.LedgerEntry] = TableLayout(
    name=lambda entry: str(entry.execution_id),
    columns=[
        Column("FIRE", lambda entry: local(entry.fire_at)),
        Column("STATE", lambda e: state_text(e.state), color=lambda e: GLYPHS[e.state][1]),
        Column("REASON", lambda entry: reason_text(entry) or entry.note or "", wraps=True),
        Column("TRIGGER", lambda entry: "" if entry.started_by is None else str(entry.started_by), wraps=True),
        Column("DELAY", lambda entry: span(entry.late_ms)),
        Column("DURATION", lambda entry: span(entry.duration_ms)),
        Column("FIRES", lambda entry: str(entry.fires), wide=True),
        Column("ID", lambda entry: str(entry.execution_id)[:SHORT_ID]),
    ],
    empty="no fires yet",
)


def reason_text(entry: wire.LedgerEntry) -> str:
    return (entry.reason or "") + (f" ({entry.fires:,} fires up to this one)" if entry.fires > 1 else "")


VERSIONS: TableLayout[wire.Version] = TableLayout(
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


def version_schedule(version: wire.Version) -> str:
    """A description; `H` is derived from the name alone, because only the server knows the tenant."""
    schedule = version.spec.schedule
    return "on demand" if schedule is None else describe_spec(schedule, seed=version.spec.name)


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
        ("origin", _origin(job)),
        ("next fire", instant_text(job.next_fire_at, zone_of_job(job))),
        ("last run", _last_run_text(job)),
        ("last", strip(job)),
        ("command", command_text(spec)),
        ("environment", json_text(spec.task.env) if isinstance(spec.task, ShellTask) else ""),
        ("working dir", spec.task.cwd or "" if isinstance(spec.task, ShellTask) else ""),
        ("sandbox", "" if spec.sandbox is None else encode(spec.sandbox).decode()),
        ("queue", f"{spec.queue_name}, priority {spec.priority}"),
        ("timeout", "1h, or the queue's bound" if spec.timeout is None else str(spec.timeout)),
        ("retries", describe_retries(spec.retries)),
        ("policies", f"overlap {spec.overlap_policy}, misfire {spec.misfire.policy}, {spec.delivery}" + preemptible),
        ("max delay", f"{spec.start_by}, else skipped" if spec.start_by else ""),
        ("auto-pause", f"after {spec.pause_after_failures} failures in a row" if spec.pause_after_failures else ""),
        ("metadata", json_text(spec.metadata)),
        ("version", f"{job.version}, changed {local(job.updated_at)}"),
        ("created", f"{local(job.created_at)} by {job.created_by}"),
        ("id", str(job.job_id)),
    )


def stats_details(stats: wire.JobStats) -> str:
    ratio = "" if stats.success_ratio is None else f" ({stats.success_ratio:.1%})"
    return pairs(
        ("job", stats.job),
        ("since", local(stats.since_at)),
        ("ended", f"{stats.ended:,}"),
        ("succeeded", f"{stats.succeeded:,}{ratio}"),
        ("failed", f"{stats.failed:,}"),
        ("skipped fires", f"{stats.skipped:,}"),
        ("duration", "" if stats.p50_ms is None else _percentiles(stats)),
    )


def _percentiles(stats: wire.JobStats) -> str:
    return f"p50 {span(stats.p50_ms)}, p95 {span(stats.p95_ms)}, p99 {span(stats.p99_ms)}"


def size_details(size: wire.JobSize) -> str:
    """What attempts used, and the fields of a manifest that this suggests."""
    requested = ", ".join(f"{name} {value}" for name, value in size.requested.items())
    wanted = size.suggested
    resources = {"cpu": wanted.cpu, "memory": wanted.memory}
    fields = [f"{name}: {value}" for name, value in resources.items() if value is not None]
    suggested = [f"resources: {{{', '.join(fields)}}}"] if fields else []
    suggested += [f"timeout: {wanted.timeout_s // 60}m"] if wanted.timeout_s is not None else []
    return pairs(
        ("job", size.job),
        ("since", local(size.since_at)),
        ("programs", f"{size.attempts:,} attempts measured"),
        ("memory", "" if size.memory_max is None else f"at most {show_amount('memory', size.memory_max)}"),
        (
            "cpu",
            "" if size.cores_max is None else f"at most {size.cores_max:.2g} cores, mean {size.cores_mean or 0:.2g}",
        ),
        ("duration", "" if size.p95_ms is None else f"p95 {span(size.p95_ms)}, longest {span(size.longest_ms)}"),
        ("requested", requested),
        ("timeout", span(1000 * size.timeout_s)),
        ("too small", ", ".join(size.too_small)),
        ("suggested", "; ".join(suggested) or "too few attempts or successes are known: at least 10"),
    )


def deadline_text(deadline: wire.Deadline) -> str:
    at = "" if deadline.at is None else f" {instant_text(deadline.at)}"
    if deadline.state == "missed":
        return f"✖ missed: no success by{at}"
    return f"pending: success required by{at}" if deadline.state == "due" else f"ok, next by{at}" if at else "ok"


def _paused(job: wire.Job) -> str:
    if job.paused_at is None:
        return ""
    until = "until resumed" if job.paused_until is None else f"until {instant_text(job.paused_until)}"
    return f"since {local(job.paused_at)}, {until}"


def fire_lines(fires: Iterable[datetime], zone: str | None = None, indent: str = "") -> list[str]:
    """Fires on the clocks of the reader, of the schedule and in UTC."""
    return aligned(both(fires, None if zone is None else ZoneInfo(zone)), indent)


def planned_start_line(start: wire.PlannedStart) -> str:
    """When the execution of a flexible job's fire is expected to start."""
    planned = "its start is not planned yet" if start.start_at is None else f"starts {instant_text(start.start_at)}"
    return f"fire of {local(start.fire_at)}: {planned}, must end by {local(start.window_end_at)}"


def zone_of_job(job: wire.Job) -> ZoneInfo | None:
    return None if job.spec.schedule is None else ZoneInfo(zone_of(job.spec.schedule))


def last_run(job: wire.Job) -> wire.LastExecution | None:
    """The latest execution that has started; skipped fires and those that wait are none."""
    ran = [last for last in job.last if last.state in RAN and not (last.state == "cancelled" and not last.duration_ms)]
    return max(ran, key=lambda last: last.finished_at or now(), default=None)


def _last_run_at(job: wire.Job) -> str:
    last = last_run(job)
    return "–" if last is None else "now" if last.finished_at is None else distance(min(last.finished_at, now()), now())


def _last_run_text(job: wire.Job) -> str:
    last = last_run(job)
    if last is None:
        return ""
    at = f"since {local(last.fire_at)}" if last.finished_at is None else instant_text(last.finished_at)
    took = "" if last.duration_ms is None else f", took {span(last.duration_ms)}"
    return f"{state_text(last.state)}  {at}{took}"


def _origin(job: wire.Job) -> str:
    if job.declared is None:
        return ""
    text = f"declared in code: {job.declared.function}"
    return text + (" (edited since; the next load of the code undoes the edit)" if job.declared.edited else "")
