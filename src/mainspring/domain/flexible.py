"""Deadline-flexible jobs: an execution may start at any time of a window after its fire. Pure.

    flexible: {before: "06:00", takes: 20m}     # any time until six o'clock in the zone of the schedule
    flexible: {within: 6h}                      # any time in the six hours after the fire

A fire keeps its instant, and so the identity of its execution. Only the start moves: to the cheapest, then quietest
minutes from which the execution can still end in the window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Annotated

import msgspec

from mainspring.domain.bounds import Duration
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.schedule.spec import ScheduleSpecs, is_one_time, members_of
from mainspring.domain.schedule.zone import load_zone

MINUTE_MS = 60_000
DAY_S = 86_400
MIN_WINDOW_S = 300.0
MAX_WINDOW_S = 86_400.0
LEAST_MARGIN_S = 60.0
MARGIN = 0.1
"""The share of the expected duration that is kept free before the end of the window, at least LEAST_MARGIN_S."""
BUNDLES = 256
"""Starts planned for the executions of one fire; of more executions, several share a start."""
_WALL_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d\Z", re.ASCII)


class Flexible(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The window in which an execution may run: until a wall time, or a time after the fire.

    `takes` is the expected duration; without it, the durations of past executions count.
    """

    before: Annotated[str, msgspec.Meta(max_length=5)] | None = None
    within: Duration | None = None
    takes: Duration | None = None


def margin_s(takes_s: float) -> float:
    """The time kept free between the expected end of an execution and the end of its window."""
    return max(LEAST_MARGIN_S, MARGIN * takes_s)


def flexible_problems(flexible: Flexible, schedule: ScheduleSpecs | None, start_by: object) -> list[Problem]:
    """Return all problems of a window, and of what it cannot be combined with."""
    found: list[Problem] = []
    if schedule is None or is_one_time(schedule):
        found.append(Problem("/flexible", "only a recurring schedule has windows", "leave it out, or add a schedule"))
    if any(member.jitter is not None for member in members_of(schedule)):
        found.append(Problem("/schedule/jitter", "a flexible job is spread already", "leave out jitter"))
    if start_by is not None:
        found.append(Problem("/start_by", "the window of a flexible job says when it starts", "use flexible.within"))
    if (flexible.before is None) == (flexible.within is None):
        found.append(
            Problem("/flexible", "a window has either an end or a length", 'say before: "06:00" or within: 6h')
        )
    if flexible.before is not None and not _WALL_TIME.match(flexible.before):
        found.append(Problem("/flexible/before", f"{flexible.before!r} is not a time of the day", "write 06:00"))
    window_s = MAX_WINDOW_S
    if flexible.within is not None:
        window_s, problems = _seconds("/flexible/within", flexible.within, MIN_WINDOW_S)
        found += problems
    if flexible.takes is not None:
        takes_s, problems = _seconds("/flexible/takes", flexible.takes, 0.001)
        found += problems
        if not problems and takes_s + margin_s(takes_s) > window_s:
            message = f"with a margin of {margin_s(takes_s):.0f} s it is longer than the window"
            found.append(Problem("/flexible/takes", message, "choose a longer window, or leave out flexible"))
    return found


def _seconds(pointer: str, value: str | int | float, least: float) -> tuple[float, list[Problem]]:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        return MAX_WINDOW_S, [Problem(pointer, str(error), "seconds, 90s, 10m, 1h30m or PT3H")]
    if not least <= seconds <= MAX_WINDOW_S:
        hint = "5 minutes to 24 hours" if least >= 1 else "more than nothing, at most 24 hours"
        return MAX_WINDOW_S, [Problem(pointer, f"{value!r} is not possible", hint)]
    return seconds, []


def window_key(flexible: Flexible, zone: str) -> str:
    """The window as the column of a job has it: equal windows have equal keys."""
    parts: dict[str, object] = {}
    if flexible.before is not None:
        parts |= {"before": flexible.before, "zone": zone}
    if flexible.within is not None:
        parts["within_s"] = parse_duration(flexible.within)
    if flexible.takes is not None:
        parts["takes_s"] = parse_duration(flexible.takes)
    return msgspec.json.encode(parts).decode()


class Window(msgspec.Struct, frozen=True):
    """A window as `window_key` writes it."""

    before: str | None = None
    zone: str = "UTC"
    within_s: float | None = None
    takes_s: float | None = None

    def end_ms(self, fire_ms: int) -> int:
        """The end of the window of a fire: the first instant after it whose wall clock shows `before`.

        In a clock change, the first instant after the gap, or the first of two.
        """
        if self.within_s is not None:
            return fire_ms + round(self.within_s * 1000)
        assert self.before is not None
        zone, fire_s = load_zone(self.zone), fire_ms // 1000
        hours, minutes = map(int, self.before.split(":"))
        wall = zone.wall_at(fire_s)
        midnight = wall - wall % DAY_S
        for day in (0, 1, 2):
            end = midnight + day * DAY_S + hours * 3600 + minutes * 60
            at = min(zone.instants_of(end), default=None)
            at_s = zone.first_after_gap(end) if at is None else at
            if at_s > fire_s:
                return at_s * 1000
        raise AssertionError("the wall clock shows each time within two days")


@lru_cache(4096)
def read_window(key: str) -> Window:
    return msgspec.json.decode(key, type=Window)


@dataclass(slots=True)
class Minutes:
    """Expected busy slots, the price, and whether nothing may start, for each minute from `begin_ms` on."""

    begin_ms: int
    busy: list[float]
    prices: Sequence[float]
    closed: Sequence[bool] = field(default_factory=list)

    def add(self, start_ms: int, takes_ms: float, weight: float = 1.0) -> None:
        """Count an execution, so that the next one finds it."""
        at, end = (start_ms - self.begin_ms) / MINUTE_MS, (start_ms + takes_ms - self.begin_ms) / MINUTE_MS
        for n in range(max(0, int(at)), min(len(self.busy), int(end) + 1)):
            self.busy[n] += weight * max(0.0, min(end, n + 1) - max(at, n))


@dataclass(frozen=True, slots=True)
class Flight:
    """Executions to place: they may start at a fire, must end in its window, and are expected to take some time."""

    fire_ms: int
    end_ms: int
    takes_ms: float
    weight: float = 1.0

    @property
    def latest_ms(self) -> int:
        """The latest start that leaves the margin; the fire itself if there is none."""
        margin_ms = 1000 * margin_s(self.takes_ms / 1000)
        return max(self.fire_ms, int(self.end_ms - self.takes_ms - margin_ms))


def place(flight: Flight, minutes: Minutes) -> int:
    """The start with the lowest price, then the fewest busy slots beside it, then the earliest; and count it there.

    A start is the fire or the beginning of a minute, never before the fire and never after `latest_ms`.
    """
    start = _best_start(flight, minutes)
    minutes.add(start, flight.takes_ms, flight.weight)
    return start


def _best_start(flight: Flight, minutes: Minutes) -> int:
    first = (flight.fire_ms - minutes.begin_ms) // MINUTE_MS
    last = min((flight.latest_ms - minutes.begin_ms) // MINUTE_MS, len(minutes.busy) - 1)
    if first < 0 or last <= first:
        return flight.fire_ms
    length = max(1, -(-round(flight.takes_ms) // MINUTE_MS))
    stop = min(last + length, len(minutes.busy))
    prices = [0.0, *accumulate(minutes.prices[first:stop])]
    busy = [0.0, *accumulate(minutes.busy[first:stop])]
    closed = [0, *accumulate(map(int, minutes.closed[first:stop]))] if minutes.closed else None
    best: tuple[float, float, int] | None = None
    for n in range(last - first + 1):
        upto = min(n + length, stop - first)
        if closed is not None and closed[n + 1] > closed[n]:
            continue  # a blackout would hold the start back, maybe beyond the window
        found = (round((prices[upto] - prices[n]) / (upto - n), 6), round((busy[upto] - busy[n]) / (upto - n), 6), n)
        if best is None or found < best:
            best = found
    if best is None or best[2] == 0:
        return flight.fire_ms
    return minutes.begin_ms + (first + best[2]) * MINUTE_MS


def place_all(flights: Iterable[Flight], minutes: Minutes) -> list[int]:
    """The start of each, one after the other."""
    return [place(flight, minutes) for flight in flights]
