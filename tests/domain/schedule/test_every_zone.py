"""Ten years of zones against the oracles: all of them with `MAINSPRING_LONG=1` (some minutes), else a few."""

import os
import random
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from mainspring.domain.schedule.schedule import ScheduleError, ScheduleSpec
from tests.support.cron_agreement import agrees
from tests.support.cron_expressions import ZONES, compiled, ms
from tests.support.cron_oracle import LIMITS, MONTHS, WEEKDAYS, Oracle, changes

EVERY_ZONE = os.environ.get("MAINSPRING_LONG") == "1"
A_FEW = ["Africa/Casablanca", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin"]
YEARS = range(2021, 2031)


def random_policy(rng: random.Random) -> dict[str, Any]:
    return {
        "gap": rng.choice(["next_valid", "next_valid", "skip"]),
        "overlap_hour": rng.choice(["first", "second", "both"]),
        "day_and": rng.random() < 0.3,
    }


def random_field(rng: random.Random, position: int) -> str:
    low, high = LIMITS[position]
    one, other = rng.randint(low, high), rng.randint(low, high)
    if position not in (2, 4, 5):
        one, other = sorted((one, other))
    kinds = ["*", str(one), f"{one},{other}", f"{one}-{other}", f"*/{rng.randint(1, high - low)}"]
    if position == 3:
        kinds += [
            "L",
            "LW",
            f"{one}W",
            f"L-{rng.randint(1, 27)}",
            f"{one}W,{other}W,L",
            f"L-{one - 1 or 1},{one - 1 or 1}W",
            "?",
        ]
    if position == 4:
        kinds = ["*", "*", "*", f"{rng.choice(MONTHS)}-{rng.choice(MONTHS)}"]
    if position == 5:
        day = rng.choice(WEEKDAYS)
        kinds += [day, f"{day}#{rng.randint(1, 5)}", f"{day}#L", f"{one}L", f"{day}#1,{day}#3"]
    return rng.choice(kinds)


def random_dates(rng: random.Random) -> str:
    while True:
        fields = [random_field(rng, position) for position in (3, 4, 5)]
        if fields[0] != "?" or fields[2] != "?":
            return " ".join(fields)


def near(rng: random.Random, zone: str, change: datetime) -> str:
    """An expression for a wall time close to the change, or for many of that night."""
    wall = (change + timedelta(minutes=rng.randint(-90, 90))).astimezone(zoneinfo.ZoneInfo(zone))
    minute = rng.choice([str(wall.minute), str(wall.minute), "*/10", "0,30", "5-50/15", "*"])
    hour = rng.choice([str(wall.hour), str(wall.hour), "*", "*/2", "22-4", "0-5"])
    seconds = rng.choice(["", "", "30 ", "*/20 ", "0,59 "])
    return f"{seconds}{minute} {hour} {rng.choice(['* * *', '* * *', random_dates(rng)])}"


@pytest.mark.fault("F16")
@pytest.mark.requirement(7)
@pytest.mark.parametrize("zone", ZONES if EVERY_ZONE else A_FEW)
def test_every_change_of_ten_years(zone: str):
    rng = random.Random(zone)
    for change in [change for year in YEARS for change in changes(zone, year)]:
        start, end = change - timedelta(hours=5), change + timedelta(hours=5)
        for _ in range(6 if EVERY_ZONE else 2):
            text, policy = near(rng, zone, change), random_policy(rng)
            try:
                schedule = compiled(ScheduleSpec(cron=text, timezone=zone, **policy))
            except ScheduleError as error:
                assert error.code == "never_fires", (text, error)  # noqa: PT017
                continue
            agrees(Oracle(text, zone, **policy), schedule, start, end)


@pytest.mark.requirement(7)
@pytest.mark.parametrize("zone", ZONES if EVERY_ZONE else A_FEW)
def test_all_fires_of_ten_years(zone: str):
    rng = random.Random(zone)
    first = date(YEARS[0], 1, 1)
    start = datetime(YEARS[0], 1, 2, tzinfo=UTC)
    end = datetime(YEARS[-1] + 1, 1, 1, tzinfo=UTC)
    for _ in range(3 if EVERY_ZONE else 2):
        # Fires made up after a gap belong to no date of their own; the walk around each change has them.
        policy = {**random_policy(rng), "gap": "skip"}
        seconds = rng.choice(["", "", "7,37 "])
        text = f"{seconds}{rng.randint(0, 59)} {rng.choice(['2', '0', '1,3', '23'])} {random_dates(rng)}"
        try:
            schedule = compiled(ScheduleSpec(cron=text, timezone=zone, **policy))
        except ScheduleError as error:
            assert error.code == "never_fires", (text, error)  # noqa: PT017
            continue
        fires = Oracle(text, zone, **policy).fires_by_date(first, 3655)
        expected = [ms(fire) for fire in fires if start < fire <= end]
        assert schedule.between(ms(start), ms(end), 100_000) == expected, (text, policy)
        assert schedule.count_between(ms(start), ms(end)) == len(expected), (text, policy)
