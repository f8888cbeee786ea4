"""Compares one manifest with its object: the fields that change, and those that other users changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring import wire
from mainspring.apply.adapter import Live
from mainspring.apply.kinds import ADAPTERS
from mainspring.codec import problem_of
from mainspring.domain.errors import Invalid
from mainspring.manifest import KINDS, Manifest, with_defaults, without_defaults
from mainspring.manifest.three_way import MISSING, Path, at_path, differences, leaves, merge
from mainspring.manifest.writing import defaults_of

MAX_FIELDS = 50
MAX_VALUE_CHARS = 300
UNPAUSED = ("Job", "Workflow")
"""Kinds that `paused` only affects when they are created: a deploy neither pauses nor resumes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The definition that results from applying a manifest, and how it differs from the object.

    `versioned`: something else than the dependencies of a job differs.
    """

    definition: Any
    fields: list[wire.FieldChange]
    drift: list[wire.FieldDrift]
    versioned: bool = True


def compare(manifest: Manifest, live: Live | None, last: dict[str, Any]) -> Comparison:
    """Merge a manifest into its object. `last` are the fields of the manifest that was applied last."""
    kind, adapter = KINDS[manifest.kind], ADAPTERS[manifest.kind]
    if live is None:
        definition = _definition(manifest, manifest.given)
        return Comparison(definition, _new_needs(manifest)[:MAX_FIELDS], [])
    given, values = manifest.given, live.values
    if manifest.kind in UNPAUSED:
        given, values, last = _unpaused(given), _unpaused(values), _unpaused(last)
    definition = _definition(manifest, merge(values, last, given, kind.whole))
    old = adapter.comparable(values)
    new = adapter.comparable(_without_name(without_defaults(definition), manifest))
    found = list(differences(old, new, kind.whole))
    fields = [wire.FieldChange(path=".".join(d.path), old=shown(d.old), new=shown(d.new)) for d in found]
    drift = [*_overwritten(manifest, values, last, definition)]
    if adapter.reports_kept:
        drift += _kept(values, last, given, kind.whole)
    versioned = any(d.path[0] != "needs" for d in found)
    return Comparison(definition, fields[:MAX_FIELDS], drift[:MAX_FIELDS], versioned)


def _new_needs(manifest: Manifest) -> list[wire.FieldChange]:
    """The dependencies of a new job, which a plan shows."""
    if manifest.kind != "Job" or "needs" not in manifest.given:
        return []
    needs = ADAPTERS["Job"].comparable(manifest.given)["needs"]
    return [wire.FieldChange(path=f"needs.{name}", new=shown(need)) for name, need in needs.items()]


def shown(value: Any) -> Any:
    """A value as a plan shows it: a long one is shortened."""
    if value is MISSING:
        return None
    text = msgspec.json.encode(value)
    if len(text) <= MAX_VALUE_CHARS:
        return value
    return f"{text[:MAX_VALUE_CHARS].decode(errors='ignore')}…"


def _overwritten(
    manifest: Manifest, values: dict[str, Any], last: dict[str, Any], definition: Any
) -> Iterator[wire.FieldDrift]:
    """Fields that the manifest had set, that have another value by now, and that applying changes again."""
    adapter, whole = ADAPTERS[manifest.kind], KINDS[manifest.kind].whole
    # The comparison with all defaults takes most of the time of a plan: only for fields that may differ.
    defaults = defaults_of(KINDS[manifest.kind].type)
    paths = [
        path
        for path, value in leaves(last, whole)
        if (now := at_path(values, path)) != value and (now is not MISSING or at_path(defaults, path) != value)
    ]
    if not paths:
        return
    try:
        applied = adapter.comparable(with_defaults(_definition(manifest, last)))
    except Invalid:  # its type has changed since
        return
    live = adapter.comparable(with_defaults(_definition(manifest, values)))
    after = adapter.comparable(with_defaults(definition))
    for path in paths:
        was, now = at_path(applied, path), at_path(live, path)
        if was != now and now != at_path(after, path):
            yield wire.FieldDrift(path=".".join(path), applied=shown(was), live=shown(now))


def _kept(
    values: dict[str, Any], last: dict[str, Any], given: dict[str, Any], whole: frozenset[Path]
) -> Iterator[wire.FieldDrift]:
    """Fields that no manifest has set and that are not at their defaults."""
    for path, now in leaves(values, whole):
        if not any(_sets(path, fields) for fields in (last, given)):
            yield wire.FieldDrift(path=".".join(path), live=shown(now), kept=True)


def _sets(path: Path, values: dict[str, Any]) -> bool:
    """Whether fields contain this one, or one above it as a whole."""
    if at_path(values, path) is not MISSING:
        return True
    above = (at_path(values, path[:n]) for n in range(1, len(path)))
    return any(value is not MISSING and not isinstance(value, dict) for value in above)


def _definition(manifest: Manifest, values: dict[str, Any]) -> Any:
    kind = KINDS[manifest.kind]
    whole = {"name": manifest.name, **values} if kind.has_name else values
    try:
        return msgspec.convert(whole, kind.type)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error), kind.type, whole)
        raise Invalid(problem.message, problems=(problem,)) from None


def _without_name(values: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    if KINDS[manifest.kind].has_name:
        del values["name"]
    return values


def _unpaused(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "paused"}
