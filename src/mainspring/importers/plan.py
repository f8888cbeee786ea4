"""The result of reading a source: what to create, what cannot be carried over, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mainspring.domain.errors import Invalid, clipped
from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.importers.rules.elapsed import SourceRule

MAX_CHARS = 2_000_000
"""Characters of one file."""
MAX_FILES = 2_000
MAX_ENTRIES = 5_000
"""Jobs and workflows of one import."""
MAX_FINDINGS = 10_000
MAX_DEPTH = 64
"""Nesting of values in a file."""
MAX_COMMAND_CHARS = 100_000
_MAX_SHOWN = 300

Severity = Literal["unsupported", "dropped", "note"]
"""`unsupported`: the entry is not imported. `dropped`: it is imported without this. `note`: a fact to check."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source: its name, as findings quote it, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a source. `timezone`: the zone of schedules that name none."""

    timezone: str = "UTC"
    prefix: str = ""
    system: bool = False
    """For crontabs: lines have a user before the command."""
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    timeout: str = "24h"
    """For sources without a timeout."""
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What an import cannot carry over, or what the user should check: where, what, and what to do instead."""

    severity: Severity
    file: str
    line: int
    entry: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        entry = f"{self.entry}: " if self.entry else ""
        return f"{self.file}:{self.line}: {entry}{self.message}" + (f" → {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Entry:
    """A job or a workflow to create. `rule` is when the source itself would fire; None without a schedule."""

    file: str
    line: int
    spec: JobSpec | WorkflowSpec
    rule: SourceRule | None
    schedule_text: str = ""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(slots=True)
class Plan:
    """What an import would do."""

    source: str
    entries: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        if len(self.entries) >= MAX_ENTRIES:
            raise Invalid(
                f"the source has more than {MAX_ENTRIES:,} entries: import it in parts", code="too_many_entries"
            )
        self.entries.append(entry)

    def find(self, severity: Severity, file: str, line: int, entry: str, message: str, hint: str = "") -> None:
        """Record a finding; texts that quote the source are shortened."""
        if len(self.findings) >= MAX_FINDINGS:
            raise Invalid(f"the source has more than {MAX_FINDINGS:,} problems", code="too_many_findings")
        shown = clipped(message, _MAX_SHOWN)
        self.findings.append(Finding(severity, file, line, clipped(entry, 128), shown, clipped(hint, _MAX_SHOWN)))

    @property
    def unsupported(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "unsupported"]


class Unsupported(Exception):
    """An entry that cannot be imported: why, and what to do instead. `line` and `file` override those of the entry."""

    def __init__(self, message: str, hint: str, line: int | None = None, file: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line
        self.file = file


def check_size(file: SourceFile) -> None:
    """Raise Invalid for a file that is too large to be read."""
    if len(file.text) > MAX_CHARS:
        raise Invalid(
            f"{file.name} has {len(file.text):,} characters; the limit is {MAX_CHARS:,}: import it in parts",
            code="source_too_large",
        )
