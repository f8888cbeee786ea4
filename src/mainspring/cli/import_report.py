"""Prints the plan and the outcome of an import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from mainspring.cli.output import Output, aligned, echo
from mainspring.clock import instant
from mainspring.display.text import clean
from mainspring.display.times import utc
from mainspring.domain.job import task_text
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.importers.plan import Finding, Severity
from mainspring.importers.proof import Proved

Verb = Literal["created", "changed", "unchanged", "conflict"]
_TITLES: dict[Severity, str] = {
    "unsupported": "Cannot be imported",
    "dropped": "Imported without",
    "note": "To check",
}
_MAX_TASK_CHARS = 60
_MAX_LISTED = 200


@dataclass(frozen=True, slots=True)
class Action:
    """What an import does with one definition. `patch`: the fields that differ."""

    verb: Verb
    patch: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What to print: entries with their proof, findings, and actions by name unless nothing was decided."""

    source: str
    proved: Sequence[Proved]
    findings: Sequence[Finding]
    actions: dict[str, Action]


def print_report(out: Output, report: ImportReport) -> None:
    if out.format == "name":
        for found in report.proved:
            echo(found.entry.name)
    elif out.is_text:
        _print_entries(report)
        _print_findings(report.findings)
        echo(_summary(report))
    else:
        out.value(_as_json(report))


def _print_entries(report: ImportReport) -> None:
    rows = [["", "NAME", "SCHEDULE", "FIRES COMPARED", "NEXT FIRE", "TASK"]]
    for found in report.proved[:_MAX_LISTED]:
        action = report.actions.get(found.entry.name)
        compared = found.comparison
        rows.append([
            _verb(action),
            found.entry.name,
            clean(_schedule(found))[:50],
            "–" if compared is None else _compared(found),
            "–" if compared is None or not compared.next_ms else utc(instant(compared.next_ms[0])),
            clean(_task(found))[:_MAX_TASK_CHARS],
        ])  # fmt: skip
    if len(rows) > 1:
        echo("\n".join(aligned(rows)))
    if len(report.proved) > _MAX_LISTED:
        echo(f"… and {len(report.proved) - _MAX_LISTED:,} more; -o json lists all")


def _print_findings(findings: Sequence[Finding]) -> None:
    for severity, title in _TITLES.items():
        found = [finding for finding in findings if finding.severity == severity]
        if found:
            echo(f"\n{title}:")
        for finding in found[:_MAX_LISTED]:
            entry = f"{finding.entry}: " if finding.entry else ""
            echo(clean(f"  {finding.file}:{finding.line}: {entry}{finding.message}"))
            if finding.hint:
                echo(clean(f"    → {finding.hint}"))
        if len(found) > _MAX_LISTED:
            echo(f"  … and {len(found) - _MAX_LISTED:,} more; -o json lists all")


def _summary(report: ImportReport) -> str:
    compared = [found.comparison for found in report.proved if found.comparison is not None]
    equal = sum(found.is_equal for found in compared)
    fires, changes = sum(found.fires for found in compared), sum(found.changes for found in compared)
    proof = f"{equal} of {len(compared)} schedules have equal fires ({fires:,} fires"
    proof += f", {changes} clock changes)" if changes else ")"
    if not report.actions:
        return f"\n{len(report.proved)} to import; {proof}"
    verbs = [action.verb for action in report.actions.values()]
    if "conflict" in verbs:
        verbs = [verb for verb in verbs if verb == "conflict"]
    counts = ", ".join(f"{verbs.count(verb)} {verb}" for verb in dict.fromkeys(verbs))
    return f"\n{counts}; {proof}"


def _verb(action: Action | None) -> str:
    if action is None:
        return "+"
    fields = f" ({', '.join(sorted(action.patch))})" if action.patch else ""
    return {"created": "✔ created", "unchanged": "= unchanged", "changed": "~ changed", "conflict": "✖ conflict"}[
        action.verb
    ] + fields


def _schedule(found: Proved) -> str:
    schedule = found.entry.spec.schedule
    specs = schedule if isinstance(schedule, list) else [schedule] if schedule is not None else []
    texts = [str(spec.cron or (f"every {spec.every}s" if spec.every else f"at {spec.at}")) for spec in specs]
    zones = {spec.timezone for spec in specs if spec.timezone}
    return " + ".join(texts) + "".join(f" {zone}" for zone in sorted(zones)) or "on demand"


def _compared(found: Proved) -> str:
    assert found.comparison is not None
    words = "equal" if found.comparison.is_equal else "differ"
    changes = f" + {found.comparison.changes} clock changes" if found.comparison.changes else ""
    return f"{found.comparison.fires:,}{changes} {words}"


def _task(found: Proved) -> str:
    spec = found.entry.spec
    return f"{len(spec.steps)} steps" if isinstance(spec, WorkflowSpec) else task_text(spec.task)


def _as_json(report: ImportReport) -> dict[str, Any]:
    return {
        "source": report.source,
        "entries": [_entry(found, report.actions.get(found.entry.name)) for found in report.proved],
        "findings": [
            {name: getattr(finding, name) for name in ("severity", "file", "line", "entry", "message", "hint")}
            for finding in report.findings
        ],
    }


def _entry(found: Proved, action: Action | None) -> dict[str, Any]:
    compared = found.comparison
    return {
        "name": found.entry.name,
        "kind": "workflow" if isinstance(found.entry.spec, WorkflowSpec) else "job",
        "file": found.entry.file,
        "line": found.entry.line,
        "schedule_text": found.entry.schedule_text,
        "action": None if action is None else action.verb,
        "differs": [] if action is None else sorted(action.patch),
        "fires_compared": 0 if compared is None else compared.fires,
        "clock_changes_compared": 0 if compared is None else compared.changes,
        "equal": None if compared is None else compared.is_equal,
        "next_fires": [] if compared is None else [instant(ms) for ms in compared.next_ms],
        "spec": msgspec.to_builtins(found.entry.spec),
    }
