"""Schedules made to burn CPU: each is accepted and cheap, or refused after a bounded number of steps."""

from __future__ import annotations

from datetime import date
from typing import Any

from mainspring.domain.schedule.calendar import Calendar

WEEKENDS = Calendar("weekends", rules=("* * SAT,SUN",))
RARE = Calendar("rare", dates=frozenset({date(2026, 12, 15)}), rules=("15 6 *",), mode="include")
ODD_DAYS = Calendar("odd-days", rules=("*/2 * *",))
CLOSED = Calendar("closed", rules=("* * *",))
MANY_RULES = Calendar("many-rules", rules=tuple(f"{day} {month} *" for day in range(1, 9) for month in range(1, 13)))
CALENDARS = {calendar.name: calendar for calendar in (WEEKENDS, RARE, ODD_DAYS, CLOSED, MANY_RULES)}
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
FEW_TIMES = "BYHOUR=3;BYMINUTE=7;BYSECOND=11"
ALL_MINUTES = ",".join(map(str, range(60)))
# A Thursday at midnight: a start at the time of the test would decide whether a rule ever matches.
SINCE = {"dtstart": "2026-01-01T00:00:00"}

ACCEPTED: dict[str, Any] = {
    "a second, rolled": {"every": "1s", "calendar": "weekends", "roll": "next"},
    "a second, rolled over months": {"every": "1s", "calendar": "rare", "roll": "next", "timezone": BERLIN},
    "a second, rolled back": {"every": "1s", "calendar": "many-rules", "roll": "previous", "timezone": NEW_YORK},
    "seconds without whole days": {"rrule": "FREQ=SECONDLY", "exdates": [f"2026-12-{day:02}" for day in range(1, 29)]},
    "seconds since 1970": {"rrule": "FREQ=SECONDLY", "dtstart": "1970-01-01T00:00:00"},
    "seconds of rare days": {"rrule": f"FREQ=SECONDLY;{FEW_TIMES};BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"},
    "all seconds of a yearly rule": {
        "rrule": f"FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE={ALL_MINUTES};BYSECOND={ALL_MINUTES}"
    },
    "positions in a year": {
        "rrule": f"FREQ=YEARLY;BYDAY=MO;BYHOUR=0,1,2;BYMINUTE={ALL_MINUTES};BYSETPOS={','.join(map(str, range(1, 60)))}"
    },
    "a second, with exclusions": {"every": "1s", "exclude": [f"{minute} * * * *" for minute in range(0, 60, 2)]},
    "fifty members": [{"cron": f"{n} */10 * * * *", "timezone": BERLIN} for n in range(50)],
}
REFUSED: dict[str, Any] = {
    "3,000 members": [{"every": f"{n + 1}m"} for n in range(3000)],
    "an odd interval that never fits": {"rrule": f"FREQ=SECONDLY;INTERVAL=86399;{FEW_TIMES}", **SINCE},
    "an interval of weeks on another day": {"rrule": "FREQ=SECONDLY;INTERVAL=604800;BYDAY=MO", **SINCE},
    "a position that does not exist": {"rrule": "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=5"},
    "30 February by the second": {"rrule": "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"},
    "a count of odd steps": {"rrule": "FREQ=SECONDLY;INTERVAL=7;BYHOUR=3;COUNT=100000"},
    "a count of positions": {"rrule": "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=1;COUNT=100000", "dtstart": "1970-01-01"},
    "everything excluded": {"cron": "0 * * * *", "exclude": ["*/2 * * * *"]},
    "everything excluded, in many ways": {"cron": "0 12 * * *", "exclude": [f"{n} * * * *" for n in range(50)]},
    "closed on its days": {"cron": "0 9 */2 * *", "calendar": "odd-days", "timezone": BERLIN},
    "always closed, rolled": {"every": "1s", "calendar": "closed", "roll": "previous"},
    "many rolled fires": {"every": "1s", "calendar": "weekends", "roll": "next", "max_fires": 10_000},
    "fifty costly members": [
        {"rrule": f"FREQ=SECONDLY;INTERVAL={86_399 - 2 * n};{FEW_TIMES}", **SINCE} for n in range(50)
    ],
}
