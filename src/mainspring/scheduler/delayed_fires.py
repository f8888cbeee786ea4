"""Separates fires that start later than their instant: by jitter, by needs, or because of a blackout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mainspring.domain.schedule.blackouts import HeldFires
from mainspring.domain.schedule.budget import TooCostly
from mainspring.domain.schedule.schedule import Schedule
from mainspring.scheduler.schedule_wheel import LISTED_FIRES, ScheduleWheel
from mainspring.store.fires import BlackoutDelay, DueFire


@dataclass(slots=True)
class DelayedFires:
    """What the statement `fire_delayed` needs: the fires, the gaps to the next fire, and the blackouts in force."""

    due: list[DueFire] = field(default_factory=list)
    gaps_ms: list[int | None] = field(default_factory=list)
    blackouts: list[BlackoutDelay] = field(default_factory=list)


def split_delayed(wheel: ScheduleWheel, due: Iterable[DueFire]) -> tuple[list[DueFire], DelayedFires]:
    """Return the fires that start at their instant, and the others."""
    prompt, delayed = list[DueFire](), DelayedFires()
    in_force: dict[int, list[HeldFires]] = {}
    seen: set[tuple[int, int]] = set()
    for fire in due:
        known = wheel.get(fire.schedule_id)
        if wheel.blackouts and fire.fire_ms not in in_force:
            in_force[fire.fire_ms] = wheel.blackouts.holding(fire.fire_ms)
        blackouts = in_force.get(fire.fire_ms, [])
        if known is None or not (known.jittered or blackouts):
            prompt.append(fire)
            continue
        delayed.due.append(fire)
        delayed.gaps_ms.append(_gap(known.schedule, fire.fire_ms) if known.jittered else None)
        if (fire.schedule_id, fire.fire_ms) not in seen:  # once, for all shards together
            seen.add((fire.schedule_id, fire.fire_ms))
            delayed.blackouts += [_delay(known.schedule, fire, blackout) for blackout in blackouts]
    return prompt, delayed


def _gap(schedule: Schedule, fire_ms: int) -> int | None:
    try:
        following = schedule.next_after(fire_ms)
    except TooCostly:
        return None
    return None if following is None else following - fire_ms


def _delay(schedule: Schedule, fire: DueFire, blackout: HeldFires) -> BlackoutDelay:
    # No misfire policy makes up for more than are listed.
    try:
        inside = schedule.between(fire.fire_ms, blackout.until_ms - 1, LISTED_FIRES)
    except TooCostly:
        inside = []
    return BlackoutDelay(fire.schedule_id, fire.fire_ms, blackout.scope, blackout.until_ms, inside)
