"""The plan of an apply as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from mainspring import wire
from mainspring.display.text import clean
from mainspring.display.times import local

MAX_SHOWN = 200
MAX_CHARS = 100
NEEDS = "needs."
_SIGNS: dict[str, tuple[str, str | None]] = {
    "create": ("+", "green"),
    "change": ("~", "yellow"),
    "delete": ("-", "red"),
    "none": ("=", None),
}


def plan_lines(plan: wire.ManifestPlan, *, color: bool) -> Iterator[str]:
    """Each change with its fields, its old and new fires, and the drift."""
    for change in plan.changes[:MAX_SHOWN]:
        sign, hue = _SIGNS[change.action]
        head = f"{sign} {change.kind} {clean(change.name)}" + (f"  ({change.note})" if change.note else "")
        yield _styled(head, hue, color)
        for field in change.fields:
            yield _need(field, color) if field.path.startswith(NEEDS) else _field(field, color)
        yield from _fires(change, color)
        for drift in change.drift:
            yield _styled(f"    ! {_drift(drift)}", "magenta", color)
    if len(plan.changes) > MAX_SHOWN:
        yield f"… and {len(plan.changes) - MAX_SHOWN:,} more"


def _field(field: wire.FieldChange, color: bool) -> str:
    old, new = _styled(_value(field.old), "red", color), _styled(_value(field.new), "green", color)
    return f"    {clean(field.path)}: {old} → {new}"


def _need(field: wire.FieldChange, color: bool) -> str:
    """A dependency that is added, removed or gets other limits."""
    sign, hue = ("+", "green") if field.old is None else ("-", "red") if field.new is None else ("~", "yellow")
    limits = field.old if field.new is None else field.new
    words = ", ".join(f"{name} {value}" for name, value in limits.items()) if isinstance(limits, dict) else ""
    return _styled(
        f"    {sign} needs {clean(field.path.removeprefix(NEEDS))}" + (f" ({clean(words)})" if words else ""),
        hue,
        color,
    )


def summary(plan: wire.ManifestPlan) -> str:
    done = plan.applied
    words = [
        (plan.created, "created" if done else "to create"),
        (plan.changed, "changed" if done else "to change"),
        (plan.deleted + (0 if done else plan.more), "deleted" if done else "to delete"),
        (plan.unchanged, "unchanged"),
    ]
    return ", ".join(f"{count:,} {word}" for count, word in words)


def _fires(change: wire.ManifestChange, color: bool) -> Iterator[str]:
    if change.fires_before:
        yield _styled(f"    - fires {_times(change.fires_before)}", "red", color)
    if change.fires_after:
        yield _styled(f"    + fires {_times(change.fires_after)}", "green", color)


def _times(fires: list[datetime]) -> str:
    return ", ".join(map(local, fires))


def _drift(drift: wire.FieldDrift) -> str:
    path = clean(drift.path)
    if drift.kept and drift.path.startswith(NEEDS):
        return f"drift: it needs {clean(drift.path.removeprefix(NEEDS))}, which no manifest set; that stays"
    if drift.kept:
        return f"drift: {path} is {_value(drift.live)}, which no manifest set; it stays"
    return f"drift: {path} was {_value(drift.applied)} when applied, is {_value(drift.live)} now; it is overwritten"


def _value(value: Any) -> str:
    text = "default" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = clean(text)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _styled(text: str, hue: str | None, color: bool) -> str:
    return click.style(text, fg=hue) if color and hue else text
