"""Cron expressions of every shape, for Hypothesis."""

import zoneinfo
from datetime import datetime, timedelta

from hypothesis import strategies as st

from mainspring.domain.schedule.schedule import Schedule, ScheduleSpec, compile_key, resolve
from tests.support.cron_oracle import LIMITS, MONTHS, WEEKDAYS

ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})


def ms(when: datetime) -> int:
    return round(when.timestamp()) * 1000


def compiled(spec: ScheduleSpec, now_ms: int = 0) -> Schedule:
    key = resolve(spec, now_ms=now_ms).key
    assert key is not None
    return compile_key(key)


@st.composite
def field(draw: st.DrawFn, position: int, *, plain: bool = False) -> str:
    """One field; `plain` leaves out what cronsim does not read."""
    low, high = LIMITS[position]
    value = st.integers(low, high)
    step = st.integers(1, high - low)
    wraps = position in (2, 4, 5) and not plain
    spans = st.tuples(value, value).map(lambda pair: pair if wraps else (min(pair), max(pair)))
    if plain:  # it reads 5-5/2 as 5/2
        spans = spans.filter(lambda pair: pair[0] < pair[1])
    kinds = [
        value.map(str),
        spans.map(lambda span: f"{span[0]}-{span[1]}"),
        st.tuples(spans, step).map(lambda it: f"{it[0][0]}-{it[0][1]}/{it[1]}"),
        step.map(lambda n: f"*/{n}"),
    ]
    if not plain:
        kinds.append(st.tuples(value, step).map(lambda it: f"{it[0]}/{it[1]}"))
        kinds += special_terms(position)
    if draw(st.booleans()) and position > 1:
        return "*"
    return ",".join(draw(st.lists(st.one_of(kinds), min_size=1, max_size=3)))


def special_terms(position: int) -> list[st.SearchStrategy[str]]:
    if position == 3:
        back = st.integers(1, 30).map(lambda n: f"L-{n}")
        return [st.just("L"), st.just("LW"), back, st.integers(1, 31).map(lambda n: f"{n}W"), st.just("l")]
    if position == 4:
        return [st.sampled_from(MONTHS).map(str.upper)]
    if position == 5:
        day = st.one_of(st.sampled_from(WEEKDAYS).map(str.upper), st.integers(0, 7).map(str))
        nth = st.tuples(day, st.sampled_from("12345L")).map("#".join)
        last = st.integers(0, 7).map(lambda n: f"{n}L")
        return [st.sampled_from(WEEKDAYS).map(str.upper), st.sampled_from(["7", "5-7", "FRI-MON"]), nth, last]
    return []


def expressions(*, plain: bool = False) -> st.SearchStrategy[str]:
    five = st.tuples(*(field(position, plain=plain) for position in range(1, 6))).map(" ".join)
    if plain:
        return five
    return st.one_of(five, st.tuples(*(field(position) for position in range(6))).map(" ".join))


# Fires at night on any day: nearly all of them meet the change of clocks they are put next to.
night = st.tuples(
    st.sampled_from(["", "", "15 ", "*/20 ", "59 "]),
    st.sampled_from(["30", "0", "15,45", "*/20", "0-59/7", "*", "1", "59"]),
    st.sampled_from([" *", " 0-4", " 2", " 1,2,3", " 0", " 23", " 22-3", " */2", " 1", " 3", " */3,2"]),
    st.sampled_from([" * * *", " */2 * *", " * * 0,6", " 1-15 * 0", " ? * SUN-MON", " L,1W,LW * SUN#L,SUN#2"]),
).map("".join)
policies = st.fixed_dictionaries(
    {
        "gap": st.sampled_from(["next_valid", "skip"]),
        "overlap_hour": st.sampled_from(["first", "second", "both"]),
        "day_and": st.booleans(),
    }
)


def aimed_at(change: datetime, zone: str) -> st.SearchStrategy[str]:
    """Wall times that the change skips, repeats or just leaves alone."""
    before = (change - timedelta(minutes=1)).astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)
    walls = st.integers(-70, 70).map(lambda minutes: before + timedelta(minutes=minutes))
    seconds = st.sampled_from(["", "", "30 ", "*/15 "])
    return st.tuples(seconds, walls).map(lambda it: f"{it[0]}{it[1].minute} {it[1].hour} * * *")
