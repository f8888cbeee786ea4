"""A schedule tried out: what was typed, what it means by the code that fires it, and how crowded its minutes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mainspring import wire
from mainspring.codec import decode, encode
from mainspring.domain.errors import Invalid
from mainspring.domain.job import NAME
from mainspring.domain.schedule.normalize import normalize_spec
from mainspring.domain.schedule.schedule import ScheduleSpec, ScheduleSpecs
from mainspring.views import schedules as schedule_views
from mainspring.web.access import Visit
from mainspring.web.density_cache import Crowding, DensityCache
from mainspring.web.forms import schedule_text
from mainspring.web.forms.schedule_error import Slip, slip_of

FIRES_TRIED = 10


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the fields. `job` is the name that `H` is spread by."""

    text: str
    zone: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """`schedule` is the JSON of it; with a slip there is nothing else."""

    typed: Typed
    schedule: Any = None
    zone: str = "UTC"
    preview: wire.Preview | None = None
    crowding: Crowding | None = None
    slip: Slip | None = None

    @property
    def quieter(self) -> tuple[int, int, str | None] | None:
        """A quieter minute, the most that are due then, and the expression that means it, if it is simple."""
        if self.crowding is None or self.crowding.quieter is None:
            return None
        minute, due = self.crowding.quieter
        cron = self.schedule.get("cron") if isinstance(self.schedule, dict) else None
        return minute, due, schedule_text.with_minute(cron, minute) if cron else None


async def try_out(visit: Visit, crowds: DensityCache, typed: Typed) -> Trial:
    """Everything about a schedule that can be said before it is anybody's."""
    database, tenant = visit.context.database, visit.caller.tenant
    try:
        schedule = schedule_text.read(typed.text, typed.zone)
        asked: dict[str, Any] = {"schedule": schedule, "count": FIRES_TRIED}
        if NAME.match(typed.job):
            asked["job"] = typed.job
        request = decode(encode(asked), wire.PreviewRequest)
        preview = await schedule_views.preview(database, request, tenant=tenant)
    except Invalid as error:
        return Trial(typed, slip=slip_of(error, typed.text, typed.zone))
    zone = zone_of(request.schedule)
    crowding = await crowds.at(database, preview.fires, zone, tenant=tenant)
    return Trial(typed, schedule, zone, preview, crowding)


def zone_of(schedule: ScheduleSpecs) -> str:
    """The zone whose wall clocks a schedule goes by; of several the first."""
    return normalize_spec(schedule if isinstance(schedule, ScheduleSpec) else schedule[0])[2].name
