"""Preview a schedule before it is saved: description, next fires, and how crowded their minutes are."""

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
from mainspring.web.endpoint import PageRequest
from mainspring.web.fire_density_cache import FireDensity, FireDensityCache
from mainspring.web.forms import schedule_text
from mainspring.web.forms.input_error import InputError, locate_error

FIRES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ScheduleInput:
    """The submitted fields. `job` is the name from which `H` is derived."""

    text: str
    zone: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class SchedulePreview:
    """`schedule` is the JSON of the expression. With an error all other fields are empty."""

    typed: ScheduleInput
    schedule: Any = None
    zone: str = "UTC"
    result: wire.Preview | None = None
    density: FireDensity | None = None
    error: InputError | None = None

    @property
    def quieter(self) -> tuple[int, int, str | None] | None:
        """Return a quieter minute, the executions due then, and the expression for it, if there is a simple one."""
        if self.density is None or self.density.quieter is None:
            return None
        minute, due = self.density.quieter
        cron = self.schedule.get("cron") if isinstance(self.schedule, dict) else None
        return minute, due, schedule_text.with_minute(cron, minute) if cron else None


async def preview_schedule(request: PageRequest, density: FireDensityCache, typed: ScheduleInput) -> SchedulePreview:
    """Parse and preview an expression; an invalid one gives a preview with its error."""
    database, tenant = request.context.database, request.caller.tenant
    try:
        schedule = schedule_text.read(typed.text, typed.zone)
        asked: dict[str, Any] = {"schedule": schedule, "count": FIRES_SHOWN}
        if NAME.match(typed.job):
            asked["job"] = typed.job
        wanted = decode(encode(asked), wire.PreviewRequest)
        preview = await schedule_views.preview(database, wanted, tenant=tenant)
    except Invalid as error:
        return SchedulePreview(typed, error=locate_error(error, typed.text, typed.zone))
    zone = zone_of(wanted.schedule)
    crowding = await density.at(database, preview.fires, zone, tenant=tenant)
    return SchedulePreview(typed, schedule, zone, preview, crowding)


def zone_of(schedule: ScheduleSpecs) -> str:
    """Return the time zone of a schedule; of several schedules, that of the first."""
    return normalize_spec(schedule if isinstance(schedule, ScheduleSpec) else schedule[0])[2].name
