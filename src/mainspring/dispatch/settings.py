"""Settings of queues and tenants, cached by a dispatcher.

Reloaded when one changes and at every slow poll. Caps are read again, and locked, in the transaction that claims
under them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mainspring.dispatch.lines import Line, WorkerProfile
from mainspring.domain.job import Definition
from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.isolation import MinIsolation, demand_with, strongest
from mainspring.domain.queue import DEFAULTS, QueueSettings
from mainspring.store import queues, tenants
from mainspring.store.db import Database


class DispatchSettings:
    def __init__(self) -> None:
        self.stale = True
        self._queues: dict[tuple[int, str], QueueSettings] = {}
        self._tenants: dict[int, tuple[float, int | None]] = {}
        self._isolations: dict[int, MinIsolation] = {}
        self._limits_duration = self._sets_isolation = False
        self._suspended: frozenset[int] = frozenset()

    async def load(self, database: Database) -> None:
        async with database.connection() as connection:
            self._queues = await queues.all_queue_settings(connection)
            self._tenants = await queues.tenant_shares(connection)
            self._isolations = await queues.tenant_isolations(connection)
            self._suspended = await tenants.suspended_tenants(connection)
        self._limits_duration = any(queue.max_duration_s is not None for queue in self._queues.values())
        self._sets_isolation = bool(self._isolations) or any(q.min_isolation != "none" for q in self._queues.values())

    @property
    def limits_duration(self) -> bool:
        """Whether any queue has a maximum duration of attempts."""
        return self._limits_duration

    @property
    def sets_isolation(self) -> bool:
        """Whether any queue or tenant has a minimum isolation."""
        return self._sets_isolation

    def min_isolation(self, tenant: int, queue: str) -> MinIsolation:
        of_queue = self._queues.get((tenant, queue), DEFAULTS).min_isolation
        return strongest(of_queue, self._isolations.get(tenant, "none"))

    def demand(self, tenant: int, queue: str, asked: Demand) -> Demand:
        """What an execution demands of its worker: what its job asks for, and what its queue requires."""
        return demand_with(asked, self.min_isolation(tenant, queue)) if self._sets_isolation else asked

    def timeout_s(self, line: Line | None, definition: Definition) -> float:
        return definition.timeout_within(None if line is None else self.of(line).max_duration_s)

    @property
    def weights(self) -> dict[int, float]:
        return {tenant: weight for tenant, (weight, _) in self._tenants.items()}

    def of(self, line: Line) -> QueueSettings:
        """The settings of a line's queue. All queues of a suspended tenant are paused."""
        found = self._queues.get((line.tenant, line.queue), DEFAULTS)
        return msgspec.structs.replace(found, paused=True) if line.tenant in self._suspended else found

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
