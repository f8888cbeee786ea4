import random
import string
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.domain.schedule.schedule import (
    Resolved,
    ScheduleError,
    ScheduleSpec,
    compile_key,
    describe_spec,
    resolve,
)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


NOW = ms("2026-11-15T20:00:00.250Z")
BERLIN = "Europe/Berlin"
# A busy machine must not decide whether a test passes.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def resolved(now_ms: int = NOW, **spec: Any) -> Resolved:
    return resolve(ScheduleSpec(**spec), now_ms=now_ms)


def fires(count: int, **spec: Any) -> list[str]:
    """The first fires from now on, or from `start_at` on."""
    when = resolved(**spec)
    assert when.key is not None
    after = NOW if when.start_ms is None else max(NOW, when.start_ms - 1)
    found = compile_key(when.key).between(after, after + 10**12, count)
    return [datetime.fromtimestamp(fire / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") for fire in found]


@pytest.mark.requirement(1)
def test_next_fire_of_a_daily_cron_is_tomorrow():
    assert fires(2, cron="0 2 * * *") == ["2026-11-16T02:00:00", "2026-11-17T02:00:00"]


@pytest.mark.requirement(3)
def test_seconds_and_iso_durations_give_the_same_fires():
    expected = ["2026-11-15T23:00:00", "2026-11-16T02:00:00", "2026-11-16T05:00:00"]
    for spelling in (10_800, "10800", "3h", "PT3H", "180m"):
        assert fires(3, every=spelling) == expected
    assert fires(3, cron="@every 3h") == expected
    assert len({resolved(every=spelling).key for spelling in (10_800, "3h", "PT3H")}) == 1


def test_intervals_start_from_their_anchor_or_the_round_times():
    assert fires(2, every="7m") == ["2026-11-15T20:07:00", "2026-11-15T20:14:00"]
    assert fires(2, every="10m", start_at="2026-11-15T20:03:20Z") == [
        "2026-11-15T20:03:20",
        "2026-11-15T20:13:20",
    ]
    assert fires(2, every="15m", aligned=True, now_ms=NOW) == ["2026-11-15T20:15:00", "2026-11-15T20:30:00"]
    assert resolved(every=5, now_ms=1_234_999).key == '{"every_ms":5000,"phase_ms":4000}'
    assert resolved(every=5, aligned=True).key == '{"every_ms":5000,"phase_ms":0}'


def test_days_follow_the_wall_clock_and_hours_do_not():
    start: dict[str, Any] = {"timezone": BERLIN, "start_at": "2027-03-27T09:00", "now_ms": NOW}
    key, elapsed = resolved(every="1d", **start).key, resolved(every="24h", **start).key
    assert key is not None
    assert elapsed is not None
    after = ms("2027-03-27T00:00Z")
    assert compile_key(key).between(after, after + 10**9, 2) == [
        ms("2027-03-27T08:00Z"),
        ms("2027-03-28T07:00Z"),
    ]
    assert compile_key(elapsed).between(after, after + 10**9, 2)[1] == ms("2027-03-28T08:00Z")


def test_months_follow_the_calendar_and_stop_at_its_end():
    spec: dict[str, Any] = {"timezone": BERLIN, "start_at": "2027-01-31T02:30"}
    assert fires(5, every="1mo", **spec) == [
        "2027-01-31T01:30:00",
        "2027-02-28T01:30:00",
        "2027-03-31T00:30:00",
        "2027-04-30T00:30:00",
        "2027-05-31T00:30:00",
    ]
    yearly = ["2028-02-29T00:00:00", "2029-02-28T00:00:00", "2030-02-28T00:00:00"]
    assert fires(3, every="P1Y", start_at="2028-02-29T00:00") == yearly
    assert fires(3, every="12 months", start_at="2028-02-29T00:00") == yearly
    assert fires(2, every="3mo", aligned=True) == ["2027-01-01T00:00:00", "2027-04-01T00:00:00"]
    assert fires(2, cron="@every 1mo") == ["2026-12-15T20:00:00", "2027-01-15T20:00:00"]
    key = resolved(every="1mo", **spec).key
    assert key == '{"phase_s":9000,"tz":"Europe/Berlin","every_months":1,"phase_months":0,"day":31}'


def test_months_in_both_directions_and_counted():
    key = resolved(every="2mo", timezone=BERLIN, start_at="2026-12-31T02:30").key
    assert key is not None
    schedule, start, end = compile_key(key), ms("2026-11-15T00:00Z"), ms("2040-01-01T00:00Z")
    found = schedule.between(start, end, 1000)
    backwards, fire = [], schedule.prev_before(end)
    while fire is not None and fire > start:
        backwards.append(fire)
        fire = schedule.prev_before(fire)
    assert backwards[::-1] == found
    assert schedule.count_between(start, end) == len(found) == 79
    assert schedule.describe() == (
        "at 02:30 on day 31 every 2 months, or the last day of a shorter month (Europe/Berlin)"
    )


def test_h_depends_on_the_job_and_is_kept_in_the_key():
    spec = ScheduleSpec(cron="H H(0-5) * * *")
    one, other = (resolve(spec, now_ms=NOW, seed=seed).key for seed in ("acme/report", "acme/import"))
    assert one != other
    assert one == resolve(spec, now_ms=NOW + 10**9, seed="acme/report").key
    assert one is not None
    assert "H" not in one
    assert describe_spec(spec, seed="acme/report") == compile_key(one).describe()
    assert describe_spec(spec) == "cron H H(0-5) * * *, H by the job's name"
    with pytest.raises(ScheduleError, match="H needs a job name") as caught:
        resolve(spec, now_ms=NOW)
    assert caught.value.pointer == "/cron"


def test_a_year_is_counted_without_walking_through_it():
    key = resolved(cron="*/5 * * * *", timezone=BERLIN).key
    assert key is not None
    year = ms("2028-01-01T00:00Z") - ms("2027-01-01T00:00Z")
    assert compile_key(key).count_between(ms("2027-01-01T00:00Z"), ms("2027-01-01T00:00Z") + year) == 105_120
    assert compile_key(key).count_between(0, 1000 * year) == 105_120_000


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"cron": "0 2 * * *", "timezone": BERLIN}, '{"cron":"0 2 * * *","tz":"Europe/Berlin"}'),
        ({"cron": "TZ=Europe/Berlin  00 2 ? * *"}, '{"cron":"0 2 * * *","tz":"Europe/Berlin"}'),
        (
            {"cron": "CRON_TZ=Europe/Berlin 0 2 * * *", "timezone": BERLIN},
            '{"cron":"0 2 * * *","tz":"Europe/Berlin"}',
        ),
        ({"cron": "@daily", "timezone": "UTC"}, '{"cron":"0 0 * * *"}'),
        (
            {
                "cron": "0 2 13 * FRI",
                "timezone": BERLIN,
                "gap": "skip",
                "overlap_hour": "both",
                "day_and": True,
            },
            '{"cron":"0 2 13 * 5","tz":"Europe/Berlin","gap":"skip","overlap_hour":"both","day_and":true}',
        ),
        # options without effect do not keep jobs from sharing a schedule
        (
            {"cron": "*/5 * * * *", "timezone": BERLIN, "gap": "skip"},
            '{"cron":"*/5 * * * *","tz":"Europe/Berlin"}',
        ),
        ({"cron": "0 2 * * MON", "day_and": True, "overlap_hour": "both"}, '{"cron":"0 2 * * 1"}'),
        (
            {"every": "1d", "aligned": True, "timezone": BERLIN},
            '{"every_days":1,"phase_s":0,"tz":"Europe/Berlin"}',
        ),
    ],
)
def test_keys_are_canonical(spec: dict[str, Any], key: str):
    assert resolved(**spec).key == key


def test_window():
    found = resolved(cron="0 2 * * *", timezone=BERLIN, start_at="2027-01-01", end_at="2027-02-01T00:00:00Z")
    assert found.start_ms == ms("2026-12-31T23:00Z")
    assert found.end_ms == ms("2027-02-01T00:00Z")
    forever = resolved(cron="0 2 * * *", timezone=BERLIN, end_at="9999-12-31T23:59:59")
    assert forever.end_ms == ms("9999-12-31T22:59:59Z")


def test_timestamps_without_offset_are_wall_times_of_the_zone():
    def at(text: str, **spec: Any) -> int | None:
        return resolved(at=text, timezone=BERLIN, **spec).at_ms

    assert at("2026-12-01T09:00:00") == ms("2026-12-01T08:00Z")
    assert at("2026-12-01 09:00") == ms("2026-12-01T08:00Z")
    assert at("2026-12-01T09:00:00.125Z") == ms("2026-12-01T09:00Z") + 125
    assert at("2026-12-01T09:00-0500") == ms("2026-12-01T14:00Z")
    assert at("2027-10-31T02:30") == ms("2027-10-31T00:30Z")
    assert at("2027-10-31T02:30", overlap_hour="second") == ms("2027-10-31T01:30Z")
    assert at("2027-03-28T02:30:15") == ms("2027-03-28T01:00Z")
    window = resolved(every=60, timezone=BERLIN, start_at="2027-10-31T02:30", end_at="2027-10-31T02:30:01")
    assert (window.start_ms, window.end_ms) == (ms("2027-10-31T00:30Z"), ms("2027-10-31T01:30:01Z"))


@pytest.mark.requirement(6)
def test_a_time_in_the_past_is_refused_unless_it_may_run_late():
    with pytest.raises(ScheduleError) as caught:
        resolved(at="2026-11-14T20:00:00Z")
    assert (caught.value.code, caught.value.pointer) == ("past_time", "/at")
    assert "run_if_late" in caught.value.hint
    late = resolved(at="2026-11-14T20:00:00Z", run_if_late=True)
    assert late == Resolved(None, ms("2026-11-14T20:00:00Z"), None, None)


REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "bad_schedule", "", "exactly one"),
    ({"cron": "0 2 * * *", "every": 5}, "bad_schedule", "", "exactly one"),
    ({"cron": "61 2 * * *"}, "bad_cron", "/cron", "minute field: 61"),
    ({"cron": "TZ=Europe/Berlin"}, "bad_cron", "/cron", "minute field"),
    ({"cron": "0 0 31 2 *"}, "never_fires", "/cron", "50 years"),
    ({"cron": "0 0 30 2 MON", "day_and": True}, "never_fires", "/cron", "50 years"),
    ({"cron": "0 0 31 2 */2"}, "never_fires", "/cron", "50 years"),
    ({"cron": "0 2 * * *", "timezone": "Europe/Berlni"}, "unknown_zone", "/timezone", "Berlni"),
    ({"cron": "TZ=Nowhere/Land 0 2 * * *"}, "unknown_zone", "/cron", "Nowhere"),
    ({"cron": "TZ=UTC 0 2 * * *", "timezone": BERLIN}, "bad_schedule", "/timezone", "contradicts"),
    ({"every": "soon"}, "bad_duration", "/every", "not a duration"),
    ({"every": "P1M2D"}, "bad_duration", "/every", "differ in length"),
    ({"every": "0mo"}, "bad_duration", "/every", "not possible"),
    ({"every": "51y"}, "bad_duration", "/every", "not possible"),
    ({"every": "500ms"}, "bad_duration", "/every", "not possible"),
    ({"every": 0}, "bad_duration", "/every", "not possible"),
    ({"every": "0d", "timezone": BERLIN}, "bad_duration", "/every", "not possible"),
    ({"every": 10**300}, "bad_duration", "/every", "not possible"),
    ({"cron": "@every"}, "bad_duration", "/cron", "not a duration"),
    ({"cron": "@every 2 potatoes"}, "bad_duration", "/cron", "not a duration"),
    ({"at": "tomorrow"}, "bad_schedule", "/at", "not a timestamp"),
    ({"at": "2027-02-30T09:00Z"}, "bad_schedule", "/at", "day"),
    ({"at": "0001-01-01T00:00"}, "bad_schedule", "/at", "out of range"),
    ({"at": "2027-03-28T02:30", "timezone": BERLIN, "gap": "skip"}, "never_fires", "/at", "does not exist"),
    ({"at": "2027-03-28T04:30", "overlap_hour": "both"}, "bad_schedule", "/overlap_hour", "fires once"),
    ({"at": "2027-01-01T00:00Z", "end_at": "2026-12-01T00:00Z"}, "bad_window", "/at", "outside"),
    ({"every": 5, "end_at": "2026-11-01T00:00"}, "past_time", "/end_at", "past"),
    (
        {"every": 5, "start_at": "2027-01-01", "end_at": "2027-01-01T00:00"},
        "bad_window",
        "/end_at",
        "not after",
    ),
    (
        {"every": 5, "start_at": "2027-01-02", "end_at": "2027-01-01T00:00"},
        "bad_window",
        "/end_at",
        "not after",
    ),
    ({"cron": "@yearly", "end_at": "2026-12-01T00:00"}, "never_fires", "/end_at", "before end_at"),
    ({"cron": "@daily", "aligned": True}, "bad_schedule", "/aligned", "no meaning"),
    ({"every": 5, "day_and": True}, "bad_schedule", "/day_and", "no meaning"),
    ({"every": 5, "run_if_late": True}, "bad_schedule", "/run_if_late", "no meaning"),
]


@pytest.mark.parametrize(("spec", "code", "pointer", "says"), REFUSED)
def test_refused(spec: dict[str, Any], code: str, pointer: str, says: str):
    with pytest.raises(ScheduleError) as caught:
        resolved(**spec)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
    assert says in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("cron", ["0 0 31 2 MON", "0 0 29 2 *", "0 0 31 4,5 *"])
def test_rare_is_not_impossible(cron: str):
    assert fires(1, cron=cron)


@unhurried
@given(
    st.text(alphabet=string.printable + "é٣☃", max_size=30),
    st.sampled_from(["cron", "every", "at", "start_at", "timezone", "rrule", "dtstart", "exclude", "exdates"]),
)
def test_any_text_is_read_or_refused_politely(text: str, name: str):
    spec: dict[str, Any] = {name: text}
    if name in ("start_at", "timezone", "exclude"):
        spec["every"] = 5
    if name in ("dtstart", "exdates"):
        spec["rrule"] = "FREQ=DAILY"
    if name in ("exclude", "exdates"):
        spec[name] = (text,)
    with suppress(ScheduleError):
        resolved(**spec)


@unhurried
@given(st.randoms(use_true_random=False))
def test_nearly_right_expressions_are_read_or_refused_politely(rng: random.Random):
    cron = " ".join("".join(rng.choices("0123456789*/,-?LW#H", k=rng.randint(1, 4))) for _ in range(rng.choice((5, 6))))
    with suppress(ScheduleError):
        assert resolve(ScheduleSpec(cron=cron), now_ms=NOW, seed="acme/job").key


@unhurried
@given(st.randoms(use_true_random=False))
def test_nearly_right_rules_are_read_or_refused_politely(rng: random.Random):
    names = ["INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYHOUR", "BYSETPOS", "BYWEEKNO"]
    values = ["0", "1", "-1", "5", "31", "MO", "1MO", "-1FR", "20270101", "99999", "2,30", ""]
    chosen = [f"{name}={rng.choice(values)}" for name in rng.sample(names, rng.randint(0, 3))]
    frequency = rng.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "SECONDLY"])
    with suppress(ScheduleError):
        assert fires(1, rrule=";".join([f"FREQ={frequency}", *chosen]))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"every": 5}, "every 5 seconds"),
        ({"every": "PT1H"}, "every hour"),
        ({"every": "2d", "timezone": BERLIN}, "every 2 days (Europe/Berlin)"),
        ({"cron": "0 2 * * *", "timezone": BERLIN}, "at 02:00 every day (Europe/Berlin)"),
        (
            {"cron": "0 2 * * *", "start_at": "2027-01-01", "end_at": "2028-01-01T00:00"},
            "at 02:00 every day from 2027-01-01 until 2028-01-01T00:00",
        ),
        ({"at": "2026-12-01T09:00", "timezone": BERLIN}, "once at 2026-12-01T09:00 (Europe/Berlin)"),
    ],
)
def test_describe_spec(spec: dict[str, Any], words: str):
    assert describe_spec(ScheduleSpec(**spec)) == words


def test_describe_compiled():
    key = resolved(every="1d", timezone=BERLIN, start_at="2027-01-01T09:30").key
    assert key is not None
    assert compile_key(key).describe() == "at 09:30 every day (Europe/Berlin)"


def test_between_is_exclusive_at_the_start_inclusive_at_the_end_and_limited():
    schedule = compile_key('{"every_ms":1000,"phase_ms":0}')
    assert schedule.between(1000, 3000, 10) == [2000, 3000]
    assert schedule.between(1000, 9000, 2) == [2000, 3000]
    assert schedule.between(1000, 1999, 10) == []
    assert schedule.between(1000, 9000, 0) == []


def test_unknown_fields_are_refused():
    with pytest.raises(msgspec.ValidationError, match="timezome"):
        msgspec.json.decode(b'{"cron": "0 2 * * *", "timezome": "UTC"}', type=ScheduleSpec)
