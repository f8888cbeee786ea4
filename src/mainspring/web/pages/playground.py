"""The playground: explain a schedule expression and list its next fires."""

from __future__ import annotations

from functools import cache
from typing import Any
from zoneinfo import available_timezones

from starlette.responses import HTMLResponse, Response

from mainspring.domain.schedule.zone import ZoneError, check_zone
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_density_cache import FireDensityCache
from mainspring.web.forms import schedule_text
from mainspring.web.forms.schedule_preview import ScheduleInput, SchedulePreview, preview_schedule
from mainspring.web.urls import link

EXAMPLE = "30 2 * * MON-FRI"


class Playground:
    """GET /playground; with `part`, only the explanation, which is fetched while the user types."""

    def __init__(self, density: FireDensityCache) -> None:
        self._density = density

    async def __call__(self, request: PageRequest) -> Response:
        typed = _schedule_input(request)
        preview = await preview_schedule(request, self._density, typed) if typed.text else None
        values: dict[str, Any] = {
            "preview": preview,
            "zones": shown_zones(request, preview),
            "command": None,
            "create_link": "",
        }
        if preview is not None and preview.error is None:
            values["command"] = schedule_text.command(preview.schedule, typed.job)
            values["create_link"] = link("/new", expression=typed.text, zone=typed.zone, job=typed.job)
        if request.query("part"):
            return part("explained", request, **values)
        examples = [(text, link("/playground", expression=text, zone=typed.zone)) for text in schedule_text.EXAMPLES]
        return render.page(
            "playground.html", request.caller, typed=typed, examples=examples, all_zones=all_zones(), **values
        )


def part(macro: str, request: PageRequest, **values: Any) -> Response:
    """Render one macro of the schedule template."""
    return HTMLResponse(render.fragment("schedule_parts.html", macro, request.caller, **values), headers=render.HEADERS)


def _schedule_input(request: PageRequest) -> ScheduleInput:
    """What was typed; a first example if the address has no expression at all."""
    is_new = "expression" not in request.http.query_params and not request.query("part")
    text = EXAMPLE if is_new else request.query("expression")
    return ScheduleInput(text, request.query("zone"), request.query("job"))


def shown_zones(request: PageRequest, preview: SchedulePreview | None) -> list[tuple[str, str]]:
    """Return the zones to show times in, each with its role: the schedule's, the browser's, and UTC."""
    local = request.query("local")
    try:
        check_zone(local)
    except ZoneError:
        local = ""
    roles: dict[str, list[str]] = {}
    for zone, role in ((preview.zone if preview else "UTC", "schedule"), (local, "local"), ("UTC", "")):
        if zone:
            roles.setdefault(zone, []).append(role)
    return [(zone, ", ".join(filter(None, found))) for zone, found in roles.items()]


@cache
def all_zones() -> list[str]:
    """Return the zones that a field offers: places, not abbreviations."""
    return ["UTC", *sorted(z for z in available_timezones() if "/" in z and not z.startswith(("Etc/", "SystemV/")))]
