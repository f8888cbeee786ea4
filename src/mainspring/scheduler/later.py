"""Which due instants have jobs that start later than they fire, and what the database needs to know to decide them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mainspring.domain.schedule.blackouts import Held
from mainspring.domain.schedule.schedule import Schedule
from mainspring.scheduler.book import LISTED_FIRES, Book
from mainspring.store.fires import Due, Hold


@dataclass(slots=True)
class Later:
    """Due instants with jitter or in a blackout; the gaps to the next fire, and who waits until when."""

    due: list[Due] = field(default_factory=list)
    gaps_ms: list[int | None] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)


def sort_out(book: Book, due: Iterable[Due]) -> tuple[list[Due], Later]:
    """Those that start when they fire, and the others."""
    prompt, later = list[Due](), Later()
    holding: dict[int, list[Held]] = {}
    told: set[tuple[int, int]] = set()
    for one in due:
        known = book.known(one.schedule_id)
        if book.blackouts and one.fire_ms not in holding:
            holding[one.fire_ms] = book.blackouts.holding(one.fire_ms)
        held = holding.get(one.fire_ms, [])
        if known is None or not (known.jittered or held):
            prompt.append(one)
            continue
        later.due.append(one)
        later.gaps_ms.append(_gap(known.schedule, one.fire_ms) if known.jittered else None)
        if (one.schedule_id, one.fire_ms) not in told:  # once, however many shards have it
            told.add((one.schedule_id, one.fire_ms))
            later.holds += [_hold(known.schedule, one, by) for by in held]
    return prompt, later


def _gap(schedule: Schedule, fire_ms: int) -> int | None:
    following = schedule.next_after(fire_ms)
    return None if following is None else following - fire_ms


def _hold(schedule: Schedule, due: Due, held: Held) -> Hold:
    # No policy makes up for more than are listed.
    inside = schedule.between(due.fire_ms, held.until_ms - 1, LISTED_FIRES)
    return Hold(due.schedule_id, due.fire_ms, held.scope, held.until_ms, inside)
