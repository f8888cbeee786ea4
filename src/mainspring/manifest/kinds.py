"""The kinds of manifests: the type of each, and the token scope that writing one needs.

Kinds are in the order in which they are written: what others refer to comes first. Deletions go the other way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mainspring import wire
from mainspring.domain.alert import Rule, rule_problems
from mainspring.domain.channel import channel_problems
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import NAME, QUEUE, WorkflowTask
from mainspring.domain.job import problems_of as job_problems
from mainspring.domain.queue import QueueSettings
from mainspring.domain.trigger import trigger_problems
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.manifest.needs import JobManifest, needs_problems

STORED = "<stored>"
"""In place of a channel's secret: keep the one that the server has."""
Path = tuple[str, ...]


def _no_problems(_name: str, _value: Any) -> list[Problem]:
    return []


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `whole` are the fields that are compared and replaced as one value; `*` is any key."""

    name: str
    type: type[msgspec.Struct]
    scope: str
    has_name: bool = False
    has_metadata: bool = False
    whole: frozenset[Path] = field(default_factory=frozenset)
    problems: Callable[[str, Any], list[Problem]] = _no_problems
    """Problems that the type alone does not find; pure."""


def _of_job(_name: str, spec: JobManifest) -> list[Problem]:
    if isinstance(spec.task, WorkflowTask):
        return [Problem("/task/kind", "a workflow can't be written as a job", "use kind: Workflow")]
    return job_problems(spec) + needs_problems(spec)


def _of_workflow(_name: str, spec: WorkflowSpec) -> list[Problem]:
    try:
        compile_workflow(spec)
    except Invalid as error:
        return list(error.problems) or [Problem("/steps", error.message)]
    return []


def _of_queue(name: str, settings: QueueSettings) -> list[Problem]:
    hint = "lower case letters, digits, '_', '-'"
    found = [] if QUEUE.match(name) else [Problem("/name", f"{name!r} is not a queue name", hint)]
    for n, other in enumerate(settings.may_help):
        if not QUEUE.match(other) or other == name:
            found.append(Problem(f"/may_help/{n}", f"{other!r} is not the name of another queue", "name other queues"))
    return found


def _of_channel(name: str, spec: wire.NewChannel) -> list[Problem]:
    return [p for p in channel_problems(name, spec.target, spec.events) if not _is_stored(p, spec)]


def _is_stored(problem: Problem, spec: wire.NewChannel) -> bool:
    return getattr(spec.target, problem.pointer.rpartition("/")[2], None) == STORED


def _named(what: str) -> Callable[[str, Any], list[Problem]]:
    def check(name: str, _value: Any) -> list[Problem]:
        hint = "letters, digits, '.', '_', '-'; at most 128"
        return [] if NAME.match(name) else [Problem("/name", f"{name!r} is not a {what} name", hint)]

    return check


_SCHEDULED = frozenset({("schedule",), ("task",), ("params", "*")})
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("Queue", QueueSettings, "admin", problems=_of_queue),
        Kind("Calendar", wire.CalendarDays, "write", problems=_named("calendar")),
        Kind("Channel", wire.NewChannel, "write", has_name=True, whole=frozenset({("target",)}), problems=_of_channel),
        Kind("AlertRule", Rule, "write", problems=rule_problems),
        Kind("Job", JobManifest, "write", True, True, _SCHEDULED | {("needs", "*")}, _of_job),
        Kind("Workflow", WorkflowSpec, "write", True, True, _SCHEDULED | {("steps", "*", "task")}, _of_workflow),
        Kind(
            "Trigger",
            wire.NamedTrigger,
            "write",
            has_name=True,
            whole=frozenset({("source",), ("params", "*")}),
            problems=trigger_problems,
        ),
        Kind("Blackout", wire.NewBlackout, "write", whole=frozenset({("schedule",)}), problems=_named("blackout")),
        Kind("Reservation", wire.NewReservation, "admin", has_name=True, problems=_named("reservation")),
    )
}
STEP_FIELDS = frozenset(f.encode_name for f in msgspec.structs.fields(Step))
JOB_FIELDS = frozenset(f.encode_name for f in msgspec.structs.fields(JobManifest))
