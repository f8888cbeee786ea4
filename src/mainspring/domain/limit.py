"""Concurrency and rate limits of a job. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from mainspring.domain.bounds import Duration
from mainspring.domain.errors import Problem
from mainspring.domain.template import places, substituted

KEY = re.compile(r"[^\s\x00-\x1f]{1,200}\Z")
_PARAM = re.compile(r"params\.([A-Za-z_][A-Za-z0-9_]*)\Z")


class Concurrency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most `limit` executions with the same key run at once.

    Jobs with the same key share the limit; if their limits differ, the one written last applies. The key may contain
    `{{params.name}}` and `{{job}}`.
    """

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "{{job}}"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most `limit` starts per `per` with the same key, evenly spaced.

    After an idle period, `burst` additional executions may start together.
    """

    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    per: Duration = "1s"
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "{{job}}"
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1


def key_problems(pointer: str, template: str) -> list[Problem]:
    found = [
        Problem(pointer, f"{{{{{name}}}}} can't be part of a key", "known: job, params.<name>")
        for name in places(template)
        if name != "job" and not _PARAM.match(name)
    ]
    if not KEY.match(substituted(template, lambda _: "") or "x"):
        found.append(Problem(pointer, "a key has no spaces and at most 200 characters", "for example report-{{job}}"))
    return found


def depends_on_params(template: str) -> bool:
    return any(_PARAM.match(name) for name in places(template))


def resolve_key(template: str, *, job: str, params: Mapping[str, Any] | None) -> str:
    """Resolve the key; a missing parameter counts as empty."""

    def value(name: str) -> str:
        if name == "job":
            return job
        found = (params or {}).get(name.removeprefix("params."))
        if found is None:
            return ""
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    return substituted(template, value)[:500]


@dataclass(frozen=True, slots=True)
class StartPacing:
    """Evenly spaced starts (GCRA). `next_ms`, the time of the next start, is stored in the key's row."""

    every_ms: float
    burst: int
    next_ms: float | None

    def _from_ms(self, now_ms: float) -> float:
        earliest = now_ms - (self.burst - 1) * self.every_ms
        return earliest if self.next_ms is None else max(self.next_ms, earliest)

    def allowed(self, now_ms: float) -> int:
        """The number of executions that may start now."""
        behind = now_ms - self._from_ms(now_ms)
        return 0 if behind < 0 else int(behind / self.every_ms + 1e-9) + 1

    def after(self, started: int, now_ms: float) -> float:
        """The time of the next start after `started` more executions have started."""
        return self._from_ms(now_ms) + started * self.every_ms
