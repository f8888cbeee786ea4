"""Notes on clock changes that affect upcoming fires, for previews."""

from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.domain.schedule.recurrence import Schedule
from mainspring.domain.schedule.wallclock import Pattern, WallClock
from mainspring.domain.schedule.zone import DAY_S, EVERY_PASS, FIRST_PASS, SECOND_PASS, Segment

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AT_MOST: Final = 4


def clock_changes(schedule: Schedule, after_ms: int, horizon_days: int) -> list[str]:
    """The first few skipped or repeated times of each part of a schedule, soonest first."""
    found: dict[tuple[int, str], None] = {}
    for part in schedule.parts():
        # Hourly schedules need no note: they follow elapsed hours.
        if isinstance(part, WallClock) and (part.pattern.fixed or not part.pattern.every_hour):
            first = after_ms // 1000
            for segment in part.zone.segments_between(first, first + horizon_days * DAY_S):
                if segment.start > first:
                    for note in _gap_note(part, segment) + _repeat_note(part, segment):
                        found[segment.start, note] = None
    return [note for _, note in sorted(found, key=lambda at: at[0])][:_AT_MOST]


def stands_for(schedule: Schedule, fire_ms: int) -> str | None:
    """The skipped times that a fire at the end of a gap replaces, or None."""
    for part in schedule.parts():
        if isinstance(part, WallClock) and fire_ms % 1000 == 0:
            segment = part.zone.segment_at(fire_ms // 1000)
            missing = _matches(part.pattern, segment.gap_from, segment.gap_until)
            if segment.start * 1000 == fire_ms and missing and part.fires_for_gap(segment):
                merged = ", merged into one" if len(missing) > 1 else ""
                return (
                    f"stands for {_span(missing)}, which {_verb(missing, 'do')} not exist in {part.zone.name}{merged}"
                )
    return None


def _gap_note(schedule: WallClock, segment: Segment) -> list[str]:
    missing = _matches(schedule.pattern, segment.gap_from, segment.gap_until)
    if not missing:
        return []
    what = "does not fire"
    if schedule.fires_for_gap(segment):
        what = f"fires {'once, ' if len(missing) > 1 else ''}at {_clock(segment.gap_until)[11:]}"
    return [f"{_span(missing)} {_verb(missing, 'do')} not exist in {schedule.zone.name}: {what}"]


def _repeat_note(schedule: WallClock, segment: Segment) -> list[str]:
    twice = _matches(schedule.pattern, segment.repeat_from, segment.repeat_until)
    if not twice:
        return []
    which = {FIRST_PASS: "the first time", SECOND_PASS: "the second time", EVERY_PASS: "both times"}
    what = which[schedule.counted_pass]
    return [f"{_span(twice)} {_verb(twice, 'happen')} twice in {schedule.zone.name}: fires {what}"]


def _matches(pattern: Pattern, low: int, high: int) -> list[int]:
    """First and last matching wall time in `[low, high)`."""
    first = pattern.next_wall(low) if low < high else None
    if first is None or first >= high:
        return []
    last = pattern.prev_wall(high - 1)
    return [first] if last is None or first == last else [first, last]


def _span(walls: list[int]) -> str:
    return " to ".join([_clock(walls[0]), *(_clock(wall)[11:] for wall in walls[1:])])


def _verb(walls: list[int], verb: str) -> str:
    return verb if len(walls) > 1 else {"do": "does", "happen": "happens"}[verb]


def _clock(wall: int) -> str:
    return (_EPOCH + timedelta(seconds=wall)).strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
