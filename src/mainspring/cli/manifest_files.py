"""Read manifests from files, folders and stdin; problems have file, line and column."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from mainspring.domain.errors import Invalid, MainspringError, Problem
from mainspring.manifest import (
    KINDS,
    MOST_BYTES,
    Manifest,
    check,
    documents_in,
    in_document,
    located_in,
    manifest_in,
    places_of,
)
from mainspring.manifest.needs import cycle_problem, cycles, depths, pointer_to
from mainspring.manifest.yaml_text import Place

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
MOST_FILES = 10_000
MAX_SHOWN = 100
"""Problems that an error lists."""


@dataclass(slots=True)
class Source:
    """One file and its text."""

    name: str
    text: str
    _places: list[Place] | None = field(default=None, repr=False)

    def places(self) -> list[Place]:
        """The places of all values; found when there is something to locate."""
        if self._places is None:
            self._places = places_of(self.text)
        return self._places


@dataclass(frozen=True, slots=True)
class Entry:
    """One document of a file. `number` counts the documents that are not empty."""

    source: Source
    number: int
    document: Any
    manifest: Manifest

    @property
    def key(self) -> str:
        return f"{self.manifest.kind}/{self.manifest.name}"


def load(paths: Sequence[str]) -> list[Entry]:
    """Read and check manifests, in the order in which they are written; raise Invalid with every problem."""
    found: list[Entry] = []
    problems: list[Problem] = []
    for source in sources(paths):
        try:
            documents = documents_in(source.text)
        except Invalid as error:
            problems += [_unlocated(source, problem) for problem in error.problems or (Problem("", error.message),)]
            continue
        for number, document in enumerate(documents):
            try:
                manifest = manifest_in(document.value)
                check(manifest)
                found.append(Entry(source, number, document.value, manifest))
            except Invalid as error:
                problems += located(source, number, error.problems)
    problems += _duplicates(found) or _cycles(found)
    if problems:
        raise refusal(problems)
    if not found:
        raise click.UsageError(f"No manifests in {', '.join(paths)}.")
    order = {kind: number for number, kind in enumerate(KINDS)}
    depth = depths(_needs(found))  # a job comes after those that it needs, which may be in an earlier request
    return sorted(
        found, key=lambda e: (order[e.manifest.kind], depth[e.manifest.name] if e.manifest.kind == "Job" else 0)
    )


def sources(paths: Sequence[str]) -> Iterator[Source]:
    """The files of these paths, of folders with all YAML files in them."""
    count = 0
    for path in paths:
        for name in files_of(path):
            count += 1
            if count > MOST_FILES:
                raise click.UsageError(f"More than {MOST_FILES:,} files.")
            yield Source(name, _text(name))


def files_of(path: str) -> list[str]:
    if path == STDIN or not Path(path).is_dir():
        return [path]
    found = (file for file in Path(path).rglob("*") if file.suffix in SUFFIXES and file.is_file())
    return sorted(str(file) for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts))


def located(source: Source, number: int, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of one document with file, line and column in place of the pointer."""
    places = source.places()
    found = located_in(places, [(number, problem) for problem in problems])
    return [
        Problem(f"{source.name}:{line}:{column}" if line else source.name, _with_field(problem), problem.hint)
        for problem, line, column in found
    ]


def at_files(error: MainspringError, entries: Sequence[Entry]) -> MainspringError:
    """Replace the server's pointers (`/manifests/3/spec/…`) by file, line and column."""
    problems: list[Problem] = []
    for problem in error.problems:
        parts = problem.pointer.split("/")
        if len(parts) < 3 or parts[1] != "manifests" or not parts[2].isdecimal() or int(parts[2]) >= len(entries):
            problems.append(problem)
            continue
        entry = entries[int(parts[2])]
        pointer = "/".join(["", *parts[3:]]) if len(parts) > 3 else ""
        problems += located(entry.source, entry.number, [Problem(pointer, problem.message, problem.hint)])
    return type(error)(error.message, code=error.code, problems=tuple(problems))


def refusal(problems: Sequence[Problem]) -> Invalid:
    files = len({problem.pointer.split(":")[0] for problem in problems})
    more = "" if len(problems) <= MAX_SHOWN else f"; the first {MAX_SHOWN}"
    what = (
        "1 problem" if len(problems) == 1 else f"{len(problems):,} problems in {files:,} file{'s'[: files > 1]}{more}"
    )
    return Invalid(what, problems=tuple(problems[:MAX_SHOWN]))


def _text(name: str) -> str:
    if name == STDIN:
        return sys.stdin.read(MOST_BYTES + 1)
    try:
        with open(name, encoding="utf-8") as file:
            return file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise click.UsageError(f"There is no file or folder {name!r}.") from None
    except UnicodeDecodeError:
        raise Invalid(f"{name} is not UTF-8", problems=(Problem(f"{name}:1:1", "the file is not UTF-8", ""),)) from None
    except OSError as error:
        raise click.UsageError(f"Can't read {name!r}: {error.strerror}.") from None


def _duplicates(entries: Sequence[Entry]) -> list[Problem]:
    seen: dict[str, Entry] = {}
    found: list[Problem] = []
    for entry in entries:
        first = seen.setdefault(entry.key, entry)
        if first is not entry:
            message = f"{entry.key} is also in {first.source.name}"
            problem = Problem("/metadata/name", message, "remove one of them")
            found += located(entry.source, entry.number, [problem])
    return found


def _needs(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """What each job needs, by name."""
    return {e.manifest.name: [*e.manifest.given.get("needs", ())] for e in entries if e.manifest.kind == "Job"}


def _cycles(entries: Sequence[Entry]) -> list[Problem]:
    mine = {entry.manifest.name: entry for entry in entries if entry.manifest.kind == "Job"}
    found: list[Problem] = []
    for cycle in cycles(_needs(entries)):
        entry = mine[cycle[-1]]
        problem = cycle_problem(pointer_to(entry.document, cycle[0]), cycle)
        found += located(entry.source, entry.number, [in_document(problem)])
    return found


def _unlocated(source: Source, problem: Problem) -> Problem:
    """A problem of the parser: its pointer is `line 3, column 7`."""
    words = problem.pointer.replace(",", "").split()
    place = f"{source.name}:{words[1]}:{words[3]}" if len(words) == 4 else source.name
    return Problem(place, problem.message, problem.hint)


def _with_field(problem: Problem) -> str:
    """The message, with the field that it is about."""
    field_ = ".".join(part for part in problem.pointer.split("/") if part)
    return f"{field_}: {problem.message}" if field_ else problem.message
