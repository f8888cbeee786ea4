"""The adapters by kind, in the order in which objects are written: what others refer to comes first."""

from __future__ import annotations

from mainspring.apply.adapter import Adapter
from mainspring.apply.definitions import Jobs, Workflows
from mainspring.apply.settings import AlertRules, Calendars, Channels, Queues
from mainspring.apply.triggers import Triggers
from mainspring.apply.windows import Blackouts, Reservations
from mainspring.manifest import KINDS

ADAPTERS: dict[str, Adapter] = {
    "Queue": Queues(),
    "Calendar": Calendars(),
    "Channel": Channels(),
    "AlertRule": AlertRules(),
    "Job": Jobs(),
    "Workflow": Workflows(),
    "Trigger": Triggers(),
    "Blackout": Blackouts(),
    "Reservation": Reservations(),
}
assert list(ADAPTERS) == list(KINDS)
ORDER = {kind: number for number, kind in enumerate(ADAPTERS)}
