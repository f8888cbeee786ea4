"""Misfire policy: which missed fires run. Pure; the firing statement applies the same rules in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mainspring.domain.duration import parse_duration
from mainspring.domain.job import Misfire, Overlap


@dataclass(frozen=True, slots=True)
class MisfireVerdict:
    """The decision on one missed fire: run it, or skip it with a reason."""

    fire_ms: int
    skipped: Literal["misfire", "overlap"] | None = None


def made_up_for(fires: Sequence[int], misfire: Misfire, now_ms: int) -> list[int]:
    """The missed fires to run: the newest ones within the window, up to the maximum. Oldest first."""
    most = {"skip": 0, "latest": 1, "all": misfire.max}[misfire.policy]
    earliest_ms = now_ms - parse_duration(misfire.window) * 1000
    return [at for at in fires[max(0, len(fires) - most) :] if at >= earliest_ms]


def decide(
    fires: Sequence[int], misfire: Misfire, overlap: Overlap, *, now_ms: int, lives: bool, pending: bool
) -> list[MisfireVerdict]:
    """Decide each missed fire, oldest first.

    `lives`: an execution of the job has not ended. `pending`: one has not started. The overlap policy decides which
    fires wait behind it; the others are skipped.
    """
    wanted = set(made_up_for(fires, misfire, now_ms))
    verdicts = []
    for at in fires:
        if at not in wanted:
            verdicts.append(MisfireVerdict(at, "misfire"))
        elif (overlap == "skip" and lives) or (overlap == "queue_one" and pending):
            verdicts.append(MisfireVerdict(at, "overlap"))
        else:
            verdicts.append(MisfireVerdict(at))
            lives = pending = True
    return verdicts
