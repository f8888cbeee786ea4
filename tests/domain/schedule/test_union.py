"""Schedules put together from several, and without what is excluded."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring.domain.schedule.schedule import (
    Schedule,
    ScheduleError,
    ScheduleSpec,
    compile_key,
    describe_spec,
    notes,
    resolve,
    resolve_all,
)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW = ms("2026-11-15T20:00:00")
BERLIN = "Europe/Berlin"


def union(*specs: dict[str, Any]) -> Schedule:
    key = resolve_all([ScheduleSpec(**spec) for spec in specs], now_ms=NOW).key
    assert key is not None
    return compile_key(key)


def single(**spec: Any) -> Schedule:
    key = resolve(ScheduleSpec(**spec), now_ms=NOW).key
    assert key is not None
    return compile_key(key)


def texts(fires: list[int]) -> list[str]:
    return [datetime.fromtimestamp(fire / 1000, UTC).strftime("%m-%dT%H:%M") for fire in fires]


def all_ways(schedule: Schedule, start: int, end: int) -> list[int]:
    """The fires of a window, the same forwards, backwards and counted."""
    fires = schedule.between(start, end, 100_000)
    assert fires == sorted(set(fires))
    assert schedule.count_between(start, end) == len(fires)
    backwards, fire = [], schedule.prev_before(end + 1)
    while fire is not None and fire > start:
        backwards.append(fire)
        fire = schedule.prev_before(fire)
    assert backwards[::-1] == fires
    return fires


def test_fires_of_all_members_once_each():
    schedule = union({"cron": "0 9 * * MON-FRI"}, {"cron": "0 9,12 * * *"}, {"at": "2026-11-17T10:30Z"})
    fires = all_ways(schedule, NOW, ms("2026-11-18T00:00"))
    assert texts(fires) == ["11-16T09:00", "11-16T12:00", "11-17T09:00", "11-17T10:30", "11-17T12:00"]


def test_unions_are_the_union_of_sets():
    rng = random.Random(7)
    for _ in range(60):
        specs: list[dict[str, Any]] = [
            {"cron": f"{rng.randint(0, 59)} {rng.choice(['*', '*/3', '2', '1-4'])} * * *", "timezone": BERLIN},
            {"every": f"{rng.randint(7, 90)}m"},
            {"cron": f"*/{rng.choice([10, 15, 20])} {rng.randint(0, 23)} * * *"},
        ]
        chosen = rng.sample(specs, rng.randint(2, 3))
        start, end = ms("2027-03-27T00:00"), ms("2027-03-29T00:00")
        expected = {fire for spec in chosen for fire in single(**spec).between(start, end, 10_000)}
        assert all_ways(union(*chosen), start, end) == sorted(expected)


def test_keys_do_not_depend_on_the_order_or_on_repetition():
    one, other = ScheduleSpec(cron="@daily"), ScheduleSpec(cron="0 12 * * *", timezone=BERLIN)
    key = resolve_all([one, other], now_ms=NOW).key
    assert key == '{"union":[{"cron":"0 0 * * *"},{"cron":"0 12 * * *","tz":"Europe/Berlin"}]}'
    assert resolve_all([other, one, other], now_ms=NOW).key == key
    assert resolve_all([one, ScheduleSpec(cron="0 0 * * *")], now_ms=NOW) == resolve(one, now_ms=NOW)
    assert resolve_all(one, now_ms=NOW) == resolve_all([one], now_ms=NOW) == resolve(one, now_ms=NOW)


def test_windows_belong_to_their_members_unless_they_share_one():
    windows: dict[str, Any] = {"start_at": "2026-12-01", "end_at": "2026-12-03T00:00"}
    shared = resolve_all(
        [ScheduleSpec(cron="@daily", **windows), ScheduleSpec(cron="0 12 * * *", **windows)], now_ms=NOW
    )
    assert (shared.start_ms, shared.end_ms) == (ms("2026-12-01"), ms("2026-12-03"))
    apart = union({"cron": "@daily", **windows}, {"cron": "0 12 * * *", "end_at": "2026-11-17T00:00"})
    assert texts(all_ways(apart, NOW, ms("2027-12-01"))) == [
        "11-16T12:00",
        "12-01T00:00",
        "12-02T00:00",
        "12-03T00:00",
    ]
    assert apart.next_after(ms("2026-12-03")) is None


def test_errors_name_the_member():
    with pytest.raises(ScheduleError) as caught:
        resolve_all([ScheduleSpec(cron="@daily"), ScheduleSpec(cron="61 * * * *")], now_ms=NOW)
    assert caught.value.pointer == "/1/cron"
    with pytest.raises(ScheduleError, match="empty"):
        resolve_all([], now_ms=NOW)


def test_words_and_notes_of_all_members():
    specs = [ScheduleSpec(cron="30 2 * * *", timezone=BERLIN), ScheduleSpec(every="10m")]
    assert describe_spec(specs) == "at 02:30 every day (Europe/Berlin); and every 10 minutes"
    key = resolve_all(specs, now_ms=NOW).key
    assert key is not None
    assert compile_key(key).describe() == "at 02:30 every day (Europe/Berlin); and every 10 minutes"
    assert notes(key, NOW)[0] == "2027-03-28 02:30 does not exist in Europe/Berlin: fires at 03:00"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"cron": "0 */6 * * *", "exclude": ("* 18-6 * * *",)}, ["11-16T12:00", "11-17T12:00"]),
        ({"cron": "0 */8 * * *", "exclude": ("2026-11-16",)}, ["11-17T00:00", "11-17T08:00", "11-17T16:00"]),
        ({"cron": "0 12 * * *", "exclude": ("* * * * MON", "2026-11-17T12:00")}, []),
        ({"cron": "0 12 * * *", "exclude": ("@hourly",)}, None),
        ({"every": "12h", "exclude": ("* 20 * * *",)}, ["11-16T08:00", "11-17T08:00"]),
        # a minute is excluded with its seconds; six fields name seconds
        ({"cron": "30 0 9 * * *", "exclude": ("0 9 * * MON",)}, ["11-17T09:00"]),
        ({"cron": "30 0 9 * * *", "exclude": ("0 0 9 * * MON",)}, ["11-16T09:00", "11-17T09:00"]),
        # in the zone of the schedule
        ({"cron": "0 0 * * *", "timezone": BERLIN, "exclude": ("2026-11-17",)}, ["11-15T23:00", "11-17T23:00"]),
        ({"every": "1h", "timezone": BERLIN, "exclude": ("* 22-20 * * *",)}, ["11-16T20:00", "11-17T20:00"]),
        ({"rrule": "FREQ=DAILY", "dtstart": "2026-11-01T09:00", "exclude": ("* * * * MON",)}, ["11-17T09:00"]),
    ],
)
def test_exclusions(spec: dict[str, Any], expected: list[str] | None):
    if expected is None:
        with pytest.raises(ScheduleError, match="never fires") as caught:
            single(**spec)
        assert "exclude" in caught.value.hint
        return
    assert texts(all_ways(single(**spec), NOW, ms("2026-11-17T23:30"))) == expected


def test_long_exclusions_are_passed_over_at_once():
    # Second by second these would be half a million steps, and more than a schedule may take.
    schedule = single(cron="* * * * * *", exclude=("* * * 24-31 12 *", "* * 20-23 12 *"))
    last = schedule.next_after(ms("2026-12-19T23:59:58"))
    assert last == ms("2026-12-19T23:59:59")
    assert schedule.next_after(last) == ms("2027-01-01")
    assert schedule.prev_before(ms("2027-01-01")) == last


def test_keys_with_exclusions_are_canonical():
    def key(**spec: Any) -> str | None:
        return resolve(ScheduleSpec(**spec), now_ms=NOW).key

    assert key(cron="@daily", exclude=("2026-12-25", "* * * * SAT,SUN")) == (
        '{"cron":"0 0 * * *","exclude":["* * * * * 0,6","2026-12-25"]}'
    )
    assert key(cron="@daily", exclude=("* * * * 0,6", "2026-12-25", "2026-12-25")) == key(
        cron="@daily", exclude=("2026-12-25", "* * ? * SUN,SAT")
    )
    assert key(every="1h", aligned=True, timezone=BERLIN, exclude=("2026-12-25",)) == (
        '{"every_ms":3600000,"phase_ms":0,"tz":"Europe/Berlin","exclude":["2026-12-25"]}'
    )


@pytest.mark.parametrize(
    ("spec", "pointer", "says"),
    [
        ({"cron": "@daily", "exclude": ("25 12",)}, "/exclude/0", "fields given"),
        ({"cron": "@daily", "exclude": ("2026-12-25", "2026-02-30")}, "/exclude/1", "day"),
        ({"cron": "@daily", "exclude": ("TZ=UTC * 2 * * *",)}, "/exclude/0", "no zone of its own"),
        ({"cron": "@daily", "exclude": ("christmas",)}, "/exclude/0", "fields given"),
        ({"at": "2027-01-01T00:00Z", "exclude": ("* 2 * * *",)}, "/exclude", "no meaning"),
        ({"cron": "@daily", "dtstart": "2026-01-01"}, "/dtstart", "no meaning"),
        ({"every": 5, "exdates": ("2026-01-01",)}, "/exdates", "no meaning"),
    ],
)
def test_refused(spec: dict[str, Any], pointer: str, says: str):
    with pytest.raises(ScheduleError) as caught:
        resolve(ScheduleSpec(**spec), now_ms=NOW)
    assert caught.value.pointer == pointer
    assert says in caught.value.message
    assert caught.value.hint


def test_exclusions_in_words():
    spec = ScheduleSpec(cron="0 9 * * *", timezone=BERLIN, exclude=("* * * * SAT,SUN", "2026-12-25", "2026-12-26"))
    words = "at 09:00 every day (Europe/Berlin), except on Saturday and Sunday and 2 listed times"
    assert describe_spec(spec) == words
