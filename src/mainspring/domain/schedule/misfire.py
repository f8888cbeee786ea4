"""What becomes of missed fires, by a job's policies. Pure; the firing statement decides by the same rules in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mainspring.domain.duration import parse_duration
from mainspring.domain.job import Misfire, Overlap


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to one missed instant: it runs, or is skipped for a reason."""

    fire_ms: int
    skipped: Literal["misfire", "overlap"] | None = None


def made_up_for(fires: Sequence[int], misfire: Misfire, now_ms: int) -> list[int]:
    """The missed instants (oldest first) that the policy wants made up for: the newest, so many, within the window."""
    most = {"skip": 0, "latest": 1, "all": misfire.max}[misfire.policy]
    earliest_ms = now_ms - parse_duration(misfire.window) * 1000
    return [at for at in fires[max(0, len(fires) - most) :] if at >= earliest_ms]


def decide(
    fires: Sequence[int], misfire: Misfire, overlap: Overlap, *, now_ms: int, lives: bool, pending: bool
) -> list[Verdict]:
    """Each missed instant (oldest first) with its verdict.

    `lives`: an execution of the job has not ended; `pending`: one has not even started. What runs then waits in line
    by the overlap policy; an instant that finds no place in it is skipped.
    """
    wanted = set(made_up_for(fires, misfire, now_ms))
    verdicts = []
    for at in fires:
        if at not in wanted:
            verdicts.append(Verdict(at, "misfire"))
        elif (overlap == "skip" and lives) or (overlap == "queue_one" and pending):
            verdicts.append(Verdict(at, "overlap"))
        else:
            verdicts.append(Verdict(at))
            lives = pending = True
    return verdicts
