"""Reads the sample sources of the importers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from mainspring.importers.plan import Finding, Plan, ReadOptions, SourceFile
from mainspring.importers.proof import Proved, prove
from mainspring.importers.readers import SOURCES
from tools.tree import ROOT

SAMPLES = ROOT / "tests" / "importers" / "samples"
NOW = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


def sample(path: Path) -> SourceFile:
    return SourceFile(path.relative_to(SAMPLES).as_posix(), path.read_bytes().decode())


def read(source: str, *files: SourceFile | str, **options: object) -> Plan:
    """The plan of files or texts."""
    given = [SourceFile("source", file) if isinstance(file, str) else file for file in files]
    return SOURCES[source].reader()(given, ReadOptions(now_ms=NOW_MS, **options))  # type: ignore[arg-type]


def proved(plan: Plan, **more: bool) -> dict[str, Proved]:
    """Entries by name whose fires are equal to those of the source."""
    return {found.entry.name: found for found in prove(plan, now_ms=NOW_MS, **more)}


def found(plan: Plan, severity: str) -> list[tuple[int, str]]:
    """Line and entry of each finding of one kind."""
    return [(one.line, one.entry) for one in plan.findings if one.severity == severity]


def finding(plan: Plan, text: str) -> Finding:
    """The only finding that contains a text."""
    (only,) = [one for one in plan.findings if text in one.message]
    return only
