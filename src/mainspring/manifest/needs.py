"""Dependencies in the manifest of a job: `needs: [load]`, or `needs: {load: {timeout: 6h}}`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from mainspring.domain.bounds import MAX_ENTRIES, Duration, Name
from mainspring.domain.duration import optional_seconds
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec

SHOWN_NAMES = 20
_HINT = "write the names of jobs, needs: [load], or needs: {load: {timeout: 6h}}"


class Need(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that must have succeeded. Successes older than `timeout` do not count; fires wait at most `wait`."""

    timeout: Duration | None = None
    wait: Duration | None = None


class JobManifest(JobSpec, frozen=True, forbid_unknown_fields=True):
    """A job and the jobs that it needs, by name. Dependencies are no part of a job's versions."""

    needs: Annotated[dict[Name, Need], msgspec.Meta(max_length=MAX_ENTRIES)] = msgspec.field(default_factory=dict)

    @property
    def spec(self) -> JobSpec:
        """The job alone."""
        return JobSpec(*(getattr(self, name) for name in JobSpec.__struct_fields__))


def expanded_needs(definition: dict[str, Any]) -> dict[str, Any]:
    """Expand a list of names to the mapping that stands for it."""
    given = definition.get("needs")
    if not isinstance(given, list):
        if given is None and "needs" in definition:
            return {**definition, "needs": {}}
        return definition
    found: dict[str, Any] = {}
    for number, name in enumerate(given):
        if not isinstance(name, str):
            raise _invalid(f"/needs/{number}", "the name of a job must be a string", _HINT)
        if name in found:
            raise _invalid(f"/needs/{number}", f"{name[:200]!r} is needed twice", "remove one of them")
        found[name] = {}
    return {**definition, "needs": found}


def shortened_needs(values: dict[str, Any]) -> dict[str, Any]:
    """Write dependencies as a list if none has options."""
    needs = values.get("needs")
    return {**values, "needs": list(needs)} if needs and not any(needs.values()) else values


def needs_problems(given: JobManifest) -> list[Problem]:
    """What is wrong with the dependencies that a manifest sets, apart from the jobs that they name."""
    found = []
    for name, need in given.needs.items():
        at = f"/needs/{_escaped(name)}"
        for field, value in (("timeout", need.timeout), ("wait", need.wait)):
            try:
                seconds = optional_seconds(value)
            except ValueError as error:
                found.append(Problem(f"{at}/{field}", str(error), "seconds, 90s, 10m, 1h30m or PT3H"))
                continue
            if seconds is not None and seconds <= 0:
                found.append(Problem(f"{at}/{field}", f"{value!r} must be positive", "leave it out for no limit"))
        if need.wait is not None and given.schedule is None:
            message = f"{given.name} has no schedule, so `wait` does not apply"
            found.append(Problem(f"{at}/wait", message, "leave it out"))
    return found


def pointer_to(document: Any, name: str) -> str:
    """Point to a dependency in the definition of a document, in whichever form it is written."""
    spec = document.get("spec") if isinstance(document, dict) else None
    needs = spec.get("needs") if isinstance(spec, dict) else None
    if isinstance(needs, list) and name in needs:
        return f"/needs/{needs.index(name)}"
    return f"/needs/{_escaped(name)}"


def cycles(needs: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Cycles in a graph of jobs and what each needs; every name in a cycle needs the next, the last one the first.

    Takes time linear in the graph. If there are cycles, at least one of each connected group is found.
    """
    done: set[str] = set()
    for start in needs:
        if start in done:
            continue
        path: list[str] = [start]
        places = {start: 0}
        open_: list[Iterator[str]] = [iter(needs[start])]
        while open_:
            name = next(open_[-1], None)
            if name is None:
                open_.pop()
                last = path.pop()
                del places[last]
                done.add(last)
            elif name in places:
                yield path[places[name] :]
            elif name not in done:
                places[name] = len(path)
                path.append(name)
                open_.append(iter(needs.get(name, ())))


def cycle_problem(pointer: str, cycle: list[str]) -> Problem:
    """The problem of a cycle, in the order in which its jobs would run."""
    names = list(reversed(cycle))
    shown = names if len(names) <= SHOWN_NAMES else [*names[: SHOWN_NAMES - 1], "…", names[-1]]
    return Problem(pointer, f"a cycle: {' → '.join([*shown, names[0]])}", "remove one of these needs")


def depths(needs: Mapping[str, Collection[str]]) -> dict[str, int]:
    """How many jobs must come before each one, at least; of a graph without cycles."""
    found: dict[str, int] = {}
    for start in needs:
        open_ = [start]
        while open_:
            name = open_[-1]
            if name in found:
                open_.pop()
                continue
            missing = [other for other in needs.get(name, ()) if other not in found]
            if missing:
                open_ += missing
                continue
            found[name] = 1 + max((found[other] for other in needs.get(name, ())), default=-1)
    return found


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _invalid(pointer: str, message: str, hint: str) -> Invalid:
    return Invalid(message, problems=(Problem(pointer, message, hint),))
