"""The proof of a plan: the fires of every entry are compared with the rules of its source."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from mainspring.domain.schedule.spec import ScheduleError, ScheduleSpec, ScheduleSpecs
from mainspring.importers.compare import Comparison, Difference, compare
from mainspring.importers.plan import Entry, Plan
from mainspring.importers.rules.elapsed import SourceRule
from mainspring.importers.schedule_writer import instant_text

Proof = tuple[ScheduleSpecs, Comparison | ScheduleError]


@dataclass(frozen=True, slots=True)
class Proved:
    """An entry that can be imported, with its comparison; None if it has no schedule."""

    entry: Entry
    comparison: Comparison | None


def prove(plan: Plan, *, now_ms: int, accept_differences: bool = False) -> list[Proved]:
    """Compare every entry. One whose fires differ becomes a finding; it is left out unless differences are accepted."""
    known: dict[tuple[bytes, SourceRule], Proof] = {}
    proved = []
    for entry in plan.entries:
        schedule = entry.spec.schedule
        if schedule is None or entry.rule is None:
            proved.append(Proved(entry, None))
            continue
        key = (msgspec.json.encode(schedule), entry.rule)
        if key not in known:
            known[key] = _proved(entry, entry.rule, now_ms)
        written, found = known[key]
        entry = replace(entry, spec=msgspec.structs.replace(entry.spec, schedule=written))
        if isinstance(found, ScheduleError):
            plan.find("unsupported", entry.file, entry.line, entry.name, found.message, found.hint)
        elif found.is_equal:
            proved.append(Proved(entry, found))
        elif accept_differences:
            plan.find("dropped", entry.file, entry.line, entry.name, _message(found.differences), "")
            proved.append(Proved(entry, found))
        else:
            hint = "choose a time that no clock change skips or repeats, use UTC, or import with --accept-differences"
            plan.find("unsupported", entry.file, entry.line, entry.name, _message(found.differences), hint)
    return proved


def _proved(entry: Entry, rule: SourceRule, now_ms: int) -> Proof:
    """The schedule to import, and its comparison.

    A time that a source shifts out of a gap may coincide with another of its fires: then the schedule that skips the
    gap has the same fires, and the one that fires right after it does not.
    """
    schedule = entry.spec.schedule
    assert schedule is not None
    found = _compared(schedule, rule, entry.name, now_ms)
    if not isinstance(schedule, ScheduleSpec) or isinstance(found, ScheduleError) or found.is_equal:
        return schedule, found
    other = msgspec.structs.replace(schedule, gap="skip")
    again = _compared(other, rule, entry.name, now_ms)
    return (other, again) if not isinstance(again, ScheduleError) and again.is_equal else (schedule, found)


def _compared(schedule: ScheduleSpecs, rule: SourceRule, name: str, now_ms: int) -> Comparison | ScheduleError:
    try:
        return compare(schedule, rule, name=name, now_ms=now_ms)
    except ScheduleError as error:
        return error


def _message(differences: list[Difference]) -> str:
    shown = ", ".join(f"{instant_text(one.at_ms)} only in {one.only_in}" for one in differences[:3])
    more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
    return f"the fires differ: {shown}{more}"
