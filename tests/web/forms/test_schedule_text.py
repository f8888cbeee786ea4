from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.schedule.schedule import ScheduleSpec, describe_spec
from mainspring.web.forms.input_error import locate_error
from mainspring.web.forms.schedule_text import command, read, spell, with_minute
from mainspring.web.forms.schedule_words import read_words

RULE = "FREQ=MONTHLY;BYDAY=1MO"


@pytest.mark.parametrize(
    ("text", "zone", "schedule"),
    [
        ("0 2 * * *", "", {"cron": "0 2 * * *"}),
        (" @daily ", "Asia/Tokyo", {"cron": "@daily", "timezone": "Asia/Tokyo"}),
        ("TZ=Europe/Berlin 0 2 * * *", "UTC", {"cron": "TZ=Europe/Berlin 0 2 * * *"}),
        ("every 10m", "", {"every": "10m"}),
        ("EVERY 90", "", {"every": 90}),
        ("every 1h aligned", "", {"every": "1h", "aligned": True}),
        ("every", "", {"every": ""}),
        ("at 2027-03-01T09:00", "", {"at": "2027-03-01T09:00"}),
        ("2027-03-01T09:00:00Z", "", {"at": "2027-03-01T09:00:00Z"}),
        (RULE, "", {"rrule": RULE}),
        (f"RRULE:{RULE}", "UTC", {"rrule": RULE, "timezone": "UTC"}),
        (
            f"DTSTART;TZID=Europe/Berlin:20270104T090000\nRRULE:{RULE}\nEXDATE:20270201T090000,20270301",
            "UTC",
            {
                "rrule": RULE,
                "dtstart": "2027-01-04T09:00:00",
                "timezone": "Europe/Berlin",
                "exdates": ["2027-02-01T09:00:00", "2027-03-01"],
            },
        ),
        (f"DTSTART:2027-01-04T09:00:00Z {RULE}", "", {"rrule": RULE, "dtstart": "2027-01-04T09:00:00Z"}),
        ('{"cron": "0 2 * * *"}', "Asia/Tokyo", {"cron": "0 2 * * *", "timezone": "Asia/Tokyo"}),
        ('{"cron": "0 2 * * *", "timezone": "UTC"}', "Asia/Tokyo", {"cron": "0 2 * * *", "timezone": "UTC"}),
        (
            '[{"every": "1h"}, {"cron": "TZ=UTC 1 2 * * *"}]',
            "Asia/Tokyo",
            [{"every": "1h", "timezone": "Asia/Tokyo"}, {"cron": "TZ=UTC 1 2 * * *"}],
        ),
    ],
)
def test_what_people_type_is_read(text: str, zone: str, schedule: Any) -> None:
    assert read(text, zone) == schedule


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"cron": ', "invalid JSON"),
        ("DTSTART:20270104T090000", "RRULE is missing"),
        (f"RDATE:20270104T090000 RRULE:{RULE}", "RDATE is not supported"),
        ("[" * 9000, "nested too deeply"),
        ("0 " * 6000, "more than 10,000 characters"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        read(text, "")


@pytest.mark.parametrize(
    ("spec", "typed"),
    [
        ({"cron": "0 2 * * *", "timezone": "Europe/Berlin"}, ("0 2 * * *", "Europe/Berlin")),
        ({"every": 90}, ("every 90", "")),
        ({"every": "10m", "aligned": True}, ("every 10m aligned", "")),
        ({"at": "2027-03-01T09:00"}, ("2027-03-01T09:00", "")),
        ({"rrule": RULE, "dtstart": "2027-01-04"}, (f"DTSTART:2027-01-04\nRRULE:{RULE}", "")),
        ({"cron": "0 2 * * *", "gap": "skip", "exclude": ["2027-01-01"]}, None),
        ({"every": "90"}, None),
    ],
)
def test_a_schedule_is_spelled_so_that_it_is_read_the_same(spec: Any, typed: tuple[str, str] | None) -> None:
    text, zone = spell(msgspec.convert(spec, ScheduleSpec))
    assert read(text, zone) == spec
    assert (text, zone) == typed or (typed is None and json.loads(text) == spec)
    assert spell(None) == ("", "")


def test_a_schedule_as_a_command_line() -> None:
    line = command(read("0 2 * * *", "Europe/Berlin"), "report")
    assert line == "mainspring add report --cron '0 2 * * *' --tz Europe/Berlin -- ./my-command"
    assert command(read("every 90", ""), "") == "mainspring add my-job --every 90 -- ./my-command"
    assert command(read(f"DTSTART:20270104T090000 {RULE}", ""), "r") == (
        f"mainspring add r --rrule '{RULE}' --dtstart 2027-01-04T09:00:00 -- ./my-command"
    )
    assert command({"cron": "0 2 * * *", "gap": "skip"}, "r") is None, "there is no flag for the gap"
    assert command([{"every": "1h"}], "r") is None


def test_another_minute_of_the_hour() -> None:
    assert with_minute("0 2 * * *", 17) == "17 2 * * *"
    assert with_minute("30 0 2 * * *", 17) == "30 17 2 * * *"
    assert with_minute("@daily", 17) == "17 0 * * *"
    assert with_minute("TZ=Asia/Tokyo 5 * * * *", 17) == "TZ=Asia/Tokyo 17 * * * *"
    assert with_minute("*/5 * * * *", 17) is None
    assert with_minute("H 2 * * *", 17) is None


@pytest.mark.parametrize(
    ("message", "pointer", "text", "zone", "field", "shown", "caret"),
    [
        ("hour field: 25 is out\n  0 25 * * *\n    ^^", "/cron", "0 25 * * *", "", "cron, hour", "0 25 * * *", "  ^^"),
        ("FREQ=WEEK is not known", "/rrule", "X\nRRULE:FREQ=WEEK", "", "rrule", "RRULE:FREQ=WEEK", " " * 6 + "^" * 9),
        ("'10x' is not a duration", "/every", "every 10x", "", "every", "every 10x", " " * 6 + "^^^"),
        ("unknown time zone 'Here'", "/timezone", "0 2 * * *", "Here", "timezone", "Here", "^^^^"),
        ("never fires at all", "/cron", "0 0 31 2 *", "", "cron", "0 0 31 2 *", "^" * 10),
        ("wrong", "/1/cron", "", "", "1 cron", "", ""),
    ],
)
def test_a_slip_is_pointed_at(
    message: str, pointer: str, text: str, zone: str, field: str, shown: str, caret: str
) -> None:
    slip = locate_error(invalid(f"/schedule{pointer}", message, hint="do that"), text, zone)
    assert (slip.field, slip.shown, slip.caret, slip.hint) == (field, shown, caret, "do that")


@pytest.mark.parametrize(
    "cron",
    ["30 * * * *", "0 5 * * *", "0 9 * * TUE", "0 6 * * MON-FRI", "15 8 * * MON,WED,FRI", "0 3 1 * *", "*/5 * * * *"],
)
def test_the_words_that_describe_a_schedule_are_read_as_that_schedule(cron: str) -> None:
    words = describe_spec(ScheduleSpec(cron=cron, timezone="Europe/Berlin"))
    again = msgspec.convert(read(words, ""), ScheduleSpec)
    assert (again.cron or again.every) in (cron, "5m")
    assert again.timezone == "Europe/Berlin" or again.every
    assert describe_spec(again) == (words if again.cron else words.removesuffix(" (Europe/Berlin)"))


@pytest.mark.parametrize("text", ["every 10 fortnights", "at noon on Monday", "at 2027-03-01T09:00", "every 10m"])
def test_other_texts_are_not_sentences(text: str) -> None:
    assert read_words(text) is None
