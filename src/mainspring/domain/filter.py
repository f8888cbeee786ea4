"""List filters for API, CLI and web UI: `state:failed job:report since:24h label:team=a`.

A word with a colon names a field. Several values of one field are alternatives; several fields must all match. Words
without a colon match job names. Pure: `now_ms` is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import get_args

from mainspring.domain.duration import MAX_S, parse_duration
from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.execution import STATES, Trigger
from mainspring.domain.suggestion import closest

MAX_FILTER = 1000
DELETED = "deleted"
JOB_STATES = ("active", "paused", DELETED)
KINDS = ("shell", "http", "python", "container", "noop", "workflow")
JOB_FIELDS: Mapping[str, tuple[str, ...]] = {
    "state": JOB_STATES, "name": (), "queue": ("short", "long"), "kind": KINDS, "label": (), "by": (),
}  # fmt: skip
EXECUTION_FIELDS: Mapping[str, tuple[str, ...]] = {
    "state": STATES, "job": (), "queue": ("short", "long"), "since": ("1h", "24h", "7d"), "until": (),
    "ended": ("1h", "24h", "7d"), "trigger": get_args(Trigger), "label": (), "by": (),
}  # fmt: skip
_WORD = re.compile(r"""(?:(?P<field>[A-Za-z_]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S*))""")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """`texts` match anywhere in the name, `names` at its start; `by` is the author of the current version."""

    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != JobFilter()


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    """Executions due in `[since_ms, until_ms)`, ended since `ended_ms`, and requested by one of `by`.

    `texts` and `labels` match their jobs.
    """

    texts: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    ended_ms: int | None = None

    def __bool__(self) -> bool:
        return self != ExecutionFilter()

    @property
    def of_jobs(self) -> JobFilter:
        """The conditions on their jobs, apart from the job name."""
        return JobFilter(texts=self.texts, labels=self.labels)


@dataclass(frozen=True, slots=True)
class _Word:
    field: str
    value: str
    start: int
    end: int


def job_filter(text: str) -> JobFilter:
    found = _gathered(text, JOB_FIELDS)
    states = _values(found, "state")
    if DELETED in states and len(states) > 1:
        raise _wrong(text, found["state"][-1], "deleted jobs are listed alone", "write state:deleted in its own search")
    return JobFilter(
        texts=_values(found, ""),
        names=_values(found, "name"),
        states=states,
        queues=_values(found, "queue"),
        kinds=_values(found, "kind"),
        labels=_labels(text, found),
        by=_values(found, "by"),
    )


def execution_filter(text: str, now_ms: int) -> ExecutionFilter:
    found = _gathered(text, EXECUTION_FIELDS)
    since = [_instant(text, word, now_ms) for word in found.get("since", ())]
    until = [_instant(text, word, now_ms) for word in found.get("until", ())]
    ended = [_instant(text, word, now_ms) for word in found.get("ended", ())]
    return ExecutionFilter(
        texts=_values(found, ""),
        states=_values(found, "state"),
        jobs=_values(found, "job"),
        queues=_values(found, "queue"),
        triggers=_values(found, "trigger"),
        since_ms=max(since) if since else None,
        until_ms=min(until) if until else None,
        labels=_labels(text, found),
        by=_values(found, "by"),
        ended_ms=max(ended) if ended else None,
    )


def spell(**fields: str | tuple[str, ...]) -> str:
    """Format a filter as text; empty fields are left out."""
    return " ".join(
        f"{name}:{_quoted(value)}"
        for name, values in fields.items()
        for value in ([",".join(values)] if isinstance(values, tuple) else [values])
        if value
    )


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value


def _gathered(text: str, known: Mapping[str, tuple[str, ...]]) -> dict[str, list[_Word]]:
    if len(text) > MAX_FILTER:
        raise invalid("/filter", f"the filter has more than {MAX_FILTER:,} characters", hint="shorten it")
    if "\0" in text:
        raise invalid("/filter", "text cannot contain a NUL character", hint="remove it", code="bad_filter")
    found: dict[str, list[_Word]] = {}
    for word in _words(text):
        if word.field and word.field not in known:
            close = closest(word.field, known)
            hint = f"did you mean {close!r}?" if close else f"known fields: {', '.join(known)}"
            raise _wrong(text, word, f"unknown field {word.field!r}", hint)
        if word.field and not word.value:
            raise _wrong(
                text, word, f"{word.field}: a value is missing", f"write {word.field}:{_example(word.field, known)}"
            )
        allowed = known.get(word.field, ())
        strict = word.field in ("state", "trigger") or (word.field == "kind" and not word.value.islower())
        for value in word.value.split(",") if strict else ():
            if value not in allowed:
                close = closest(value, allowed)
                hint = f"did you mean {close!r}?" if close else f"one of {', '.join(allowed)}"
                raise _wrong(text, word, f"{value!r} is not a {word.field}", hint)
        found.setdefault(word.field, []).append(word)
    return found


def _words(text: str) -> Iterator[_Word]:
    for match in _WORD.finditer(text):
        value = match["quoted"] if match["quoted"] is not None else match["plain"]
        if match[0]:
            yield _Word((match["field"] or "").lower(), value, match.start(), match.end())


def _values(found: Mapping[str, list[_Word]], name: str) -> tuple[str, ...]:
    """Split at commas, except in plain words."""
    words = [word.value for word in found.get(name, ())]
    values = words if not name else [value for word in words for value in word.split(",") if value]
    return tuple(dict.fromkeys(values))


def _labels(text: str, found: Mapping[str, list[_Word]]) -> dict[str, str]:
    labels = {}
    for word in found.get("label", ()):
        name, equals, value = word.value.partition("=")
        if not equals or not name or not value:
            raise _wrong(text, word, f"{word.value!r} is not a label", "write label:team=finance")
        labels[name] = value
    return labels


def _instant(text: str, word: _Word, now_ms: int) -> int:
    """`24h` means 24 hours ago; otherwise a date or an instant, UTC by default."""
    try:
        return max(0, now_ms - round(min(parse_duration(word.value), MAX_S) * 1000))
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(word.value)
    except ValueError:
        hint = f"write {word.field}:24h, {word.field}:2027-01-31 or {word.field}:2027-01-31T09:00Z"
        raise _wrong(text, word, f"{word.value!r} is not a time", hint) from None
    return int((at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp() * 1000)


def _example(name: str, known: Mapping[str, tuple[str, ...]]) -> str:
    examples = {"job": "report", "name": "night", "label": "team=finance", "until": "1h", "by": "ci-token"}
    return known[name][0] if known[name] else examples.get(name, "…")


def _wrong(text: str, word: _Word, message: str, hint: str) -> Invalid:
    """An Invalid whose message shows a caret below the word."""
    shown = text.replace("\n", " ")
    pointed = f"{message}\n  {shown}\n  {' ' * word.start}{'^' * max(1, word.end - word.start)}"
    return invalid("/filter", pointed, hint=hint, code="bad_filter")
