"""What does this schedule mean? Asked before it is anybody's, and answered by the code that fires."""

from __future__ import annotations

from functools import cache
from typing import Any
from zoneinfo import available_timezones

from starlette.responses import HTMLResponse, Response

from mainspring.domain.schedule.zone import ZoneError, check_zone
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.density_cache import DensityCache
from mainspring.web.forms import schedule_text
from mainspring.web.forms.schedule_preview import Trial, Typed, try_out
from mainspring.web.pages.jobs import link


class Playground:
    """GET /playground; with `part`, only what changes as one types."""

    def __init__(self, crowds: DensityCache) -> None:
        self._crowds = crowds

    async def __call__(self, visit: Visit) -> Response:
        typed = typed_in(visit)
        trial = await try_out(visit, self._crowds, typed) if typed.text else None
        values: dict[str, Any] = {"trial": trial, "zones": shown_zones(visit, trial), "command": None, "onward": ""}
        if trial is not None and trial.slip is None:
            values["command"] = schedule_text.command(trial.schedule, typed.job)
            values["onward"] = link("/new", expression=typed.text, zone=typed.zone, job=typed.job)
        if visit.query("part"):
            return part("explained", visit, **values)
        examples = [(text, link("/playground", expression=text, zone=typed.zone)) for text in schedule_text.EXAMPLES]
        return render.page(
            "playground.html", visit.caller, typed=typed, examples=examples, all_zones=all_zones(), **values
        )


def part(macro: str, visit: Visit, **values: Any) -> Response:
    """Only what changes as one types."""
    return HTMLResponse(render.fragment("schedule.html", macro, visit.caller, **values), headers=render.HEADERS)


def typed_in(visit: Visit) -> Typed:
    return Typed(visit.query("expression"), visit.query("zone"), visit.query("job"))


def shown_zones(visit: Visit, trial: Trial | None) -> list[tuple[str, str]]:
    """Zones to show instants in, each with whose it is: the schedule's, the reader's as the script tells, and UTC."""
    local = visit.query("local")
    try:
        check_zone(local)
    except ZoneError:
        local = ""
    whose: dict[str, list[str]] = {}
    for zone, of in ((trial.zone if trial else "UTC", "schedule"), (local, "you"), ("UTC", "")):
        if zone:
            whose.setdefault(zone, []).append(of)
    return [(zone, ", ".join(filter(None, of))) for zone, of in whose.items()]


@cache
def all_zones() -> list[str]:
    """What a zone field offers: places, not abbreviations."""
    return ["UTC", *sorted(z for z in available_timezones() if "/" in z and not z.startswith(("Etc/", "SystemV/")))]
