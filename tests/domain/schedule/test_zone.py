import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest

from mainspring.domain.schedule.zone import ZoneError, check_zone, load_zone


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berlni", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("America/New York", "did you mean America/New_York?"),
        ("localtime", "IANA name"),
        ("right/Europe/Berlin", "did you mean Europe/Berlin?"),
        ("../UTC", "did you mean"),
        ("/etc/passwd", "IANA name"),
        ("Europe", "Europe/"),
        ("", "IANA name"),
        ("qqqqqq", "IANA name"),
    ],
)
def test_unknown_zones_are_refused_with_a_suggestion(name: str, hint: str):
    with pytest.raises(ZoneError, match="unknown time zone") as caught:
        check_zone(name)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "wall", "expected"),
    [
        ("Europe/Berlin", "2027-03-28T01:59:59", ["2027-03-28T00:59:59"]),
        ("Europe/Berlin", "2027-03-28T02:00", []),
        ("Europe/Berlin", "2027-03-28T02:59:59", []),
        ("Europe/Berlin", "2027-03-28T03:00", ["2027-03-28T01:00"]),
        ("Europe/Berlin", "2026-10-25T02:00", ["2026-10-25T00:00", "2026-10-25T01:00"]),
        ("Europe/Berlin", "2026-10-25T03:00", ["2026-10-25T02:00"]),
        ("Pacific/Apia", "2011-12-30T12:00", []),
        ("Pacific/Kiritimati", "2027-01-01T00:00", ["2026-12-31T10:00"]),
        ("Etc/GMT+12", "2027-01-01T00:00", ["2027-01-01T12:00"]),
    ],
)
def test_instants_of_a_wall_time(name: str, wall: str, expected: list[str]):
    zone = load_zone(name)
    found = zone.instants_of(seconds(wall))
    assert list(found) == [seconds(text) for text in expected]


def seconds(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_the_first_instant_after_a_gap():
    assert load_zone("Europe/Berlin").first_after_gap(seconds("2027-03-28T02:30")) == seconds("2027-03-28T01:00")
    assert load_zone("Pacific/Apia").first_after_gap(seconds("2011-12-30T12:00")) == seconds("2011-12-30T10:00")


@pytest.mark.parametrize("name", sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})[::7])
def test_segments_agree_with_zoneinfo_and_leave_no_hole(name: str):
    zone, info = load_zone(name), zoneinfo.ZoneInfo(name)
    at, end = seconds("2005-01-01"), seconds("2045-01-01")
    before = None
    while at < end:
        segment = zone.segment_at(at)
        assert segment.start == at or before is None
        for instant in (segment.start, (segment.start + segment.end) // 2, segment.end - 1):
            offset = datetime.fromtimestamp(instant, info).utcoffset()
            assert offset == timedelta(seconds=segment.offset), (name, instant)
        if before is not None:
            assert segment.gap_until - segment.gap_from == max(0, segment.offset - before)
            assert segment.repeat_until - segment.repeat_from == max(0, before - segment.offset)
        at, before = segment.end, segment.offset


def test_the_end_of_the_calendar_is_no_error():
    assert load_zone("Europe/Berlin").instants_of(seconds("9999-12-31T23:59:59")) == (seconds("9999-12-31T22:59:59"),)
