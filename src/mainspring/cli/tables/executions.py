"""Tables and details of executions."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring import wire
from mainspring.cli.feed import GLYPHS, SHORT_ID
from mainspring.cli.output import Column, TableLayout, aligned
from mainspring.cli.tables.fields import instant_text, json_text, pairs
from mainspring.display.text import clean, progress_text
from mainspring.display.times import local, local_exact, span
from mainspring.domain.execution import State


def state_text(state: State) -> str:
    return f"{GLYPHS[state][0]} {state.replace('_', ' ')}"


def late_ms(execution: wire.Execution) -> int | None:
    """The start delay; None while it waits for another attempt, which is due later."""
    return None if execution.state == "waiting" else execution.late_ms


def trigger_text(execution: wire.Execution) -> str:
    """What started an execution: the name of a trigger, or the kind of its start."""
    return execution.trigger if execution.started_by is None else f"trigger {execution.started_by.trigger}"


EXECUTIONS: TableLayout[wire.Execution] = TableLayout(
    name=lambda execution: str(execution.execution_id),
    columns=[
        Column("ID", lambda execution: str(execution.execution_id)[:SHORT_ID]),
        Column("JOB", lambda execution: execution.title, wraps=True),
        Column("STATE", lambda e: state_text(e.state), color=lambda e: GLYPHS[e.state][1]),
        Column("DUE", lambda execution: local(execution.due_at), optional=True),
        Column("DELAY", lambda execution: span(late_ms(execution)), optional=True),
        Column("DURATION", lambda execution: span(execution.duration_ms)),
        Column("EXIT", lambda e: "–" if e.exit_code is None else str(e.exit_code), optional=True),
        Column("ATTEMPT", lambda execution: str(execution.attempt), wide=True),
        Column("TRIGGER", lambda execution: trigger_text(execution), wide=True),
        Column("QUEUE", lambda execution: execution.queue, wide=True),
        Column("WORKER", lambda execution: execution.worker or "–", wide=True),
        Column("REASON", lambda execution: execution.error or execution.reason or "", wide=True, wraps=True),
        Column("FULL ID", lambda execution: str(execution.execution_id), wide=True),
    ],
    empty="no executions",
)


LIFECYCLE: TableLayout[wire.LifecycleEvent] = TableLayout(
    name=lambda event: event.event,
    columns=[
        Column("WHEN", lambda event: local_exact(event.at)),
        Column("EVENT", lambda event: event.event),
        Column("ATTEMPT", lambda event: str(event.attempt or "–")),
        Column("DETAILS", lambda event: event.text or "", wraps=True),
    ],
    empty="no events yet",
)


ARTIFACTS: TableLayout[wire.Artifact] = TableLayout(
    name=lambda artifact: artifact.name,
    columns=[
        Column("NAME", lambda artifact: artifact.name),
        Column("BYTES", lambda artifact: f"{artifact.bytes:,}"),
        Column("ATTEMPT", lambda artifact: str(artifact.attempt)),
        Column("EXPIRES", lambda artifact: local(artifact.expires_at)),
        Column("TYPE", lambda artifact: artifact.content_type, wide=True),
        Column("SHA256", lambda artifact: artifact.sha256, wide=True),
    ],
    empty="no artifacts",
)


def execution_details(execution: wire.Execution) -> str:
    delay = "" if late_ms(execution) is None else f"  (start delay {span(late_ms(execution))})"
    duration = "" if execution.duration_ms is None else f"  (duration {span(execution.duration_ms)})"
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
        ("started by", None if execution.started_by is None else str(execution.started_by)),
        ("backfill", execution.backfill_id),
        ("fire", instant_text(execution.fire_at)),
        ("fires", f"{execution.fires}, coalesced into this execution" if execution.fires > 1 else ""),
        ("due", local_exact(execution.due_at) if execution.due_at != execution.fire_at else ""),
        ("queued", local_exact(execution.queued_at) if execution.queued_at else ""),
        ("started", local_exact(execution.started_at) + delay if execution.started_at else ""),
        ("finished", local_exact(execution.finished_at) + duration if execution.finished_at else ""),
        ("queue", f"{execution.queue}, priority {execution.priority}"),
        ("worker", execution.worker),
        ("attempt", execution.attempt),
        ("parameters", json_text(execution.params)),
        ("metadata", json_text(execution.metadata)),
        ("result", json_text(execution.result)),
    )
    return "\n".join([text, *attempt_lines(execution.attempts)])


def attempt_lines(attempts: Iterable[wire.Attempt]) -> list[str]:
    """One line per attempt: outcome, time, duration, worker and the first line of the error."""
    rows = [
        [
            str(a.attempt),
            a.outcome.replace("_", " "),
            local_exact(a.started_at),
            _duration(a),
            "" if a.exit_code is None else f"exit {a.exit_code}",
            "" if a.worker is None else f"on {clean(a.worker)}",
            clean((a.error or "").strip().partition("\n")[0]),
        ]
        for a in attempts
    ]
    return [*(["attempts"] if rows else []), *aligned(rows, indent="  ")]


def _duration(attempt: wire.Attempt) -> str:
    return span(attempt.lasted_ms)
