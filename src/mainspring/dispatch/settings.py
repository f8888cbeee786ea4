"""Settings of queues and tenants, cached by a dispatcher.

Reloaded when one changes and at every slow poll. Caps are read again, and locked, in the transaction that claims
under them.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.dispatch.lines import Line, WorkerProfile
from mainspring.domain.job import Definition
from mainspring.domain.queue import DEFAULTS, QueueSettings
from mainspring.store import queues
from mainspring.store.db import Database


class DispatchSettings:
    def __init__(self) -> None:
        self.stale = True
        self._queues: dict[tuple[int, str], QueueSettings] = {}
        self._tenants: dict[int, tuple[float, int | None]] = {}
        self._limits_duration = False

    async def load(self, database: Database) -> None:
        async with database.connection() as connection:
            self._queues = await queues.all_queue_settings(connection)
            self._tenants = await queues.tenant_shares(connection)
        self._limits_duration = any(queue.max_duration_s is not None for queue in self._queues.values())

    @property
    def limits_duration(self) -> bool:
        """Whether any queue has a maximum duration of attempts."""
        return self._limits_duration

    def timeout_s(self, line: Line | None, definition: Definition) -> float:
        return definition.timeout_within(None if line is None else self.of(line).max_duration_s)

    @property
    def weights(self) -> dict[int, float]:
        return {tenant: weight for tenant, (weight, _) in self._tenants.items()}

    def of(self, line: Line) -> QueueSettings:
        return self._queues.get((line.tenant, line.queue), DEFAULTS)

    def has_cap(self, line: Line) -> bool:
        return self.of(line).cap is not None or self._tenants.get(line.tenant, (1.0, None))[1] is not None

    def cap_reached(self, line: Line, running: Mapping[tuple[int, str], int]) -> bool:
        """Whether the cap of the line's queue or tenant is reached, given the running counts by tenant and queue."""
        cap, tenant_cap = self.of(line).cap, self._tenants.get(line.tenant, (1.0, None))[1]
        if cap is not None and running.get((line.tenant, line.queue), 0) >= cap:
            return True
        return tenant_cap is not None and sum(n for (t, _), n in running.items() if t == line.tenant) >= tenant_cap

    def may_help(self, profile: WorkerProfile, line: Line) -> bool:
        """Whether a queue of these workers lets them take from the line's queue of the same tenant."""
        own = (self._queues.get((line.tenant, queue)) for queue in profile.queues)
        return any(settings is not None and line.queue in settings.may_help for settings in own)
