"""Settings of queues and tenants, as a dispatcher keeps them: read anew when one changes, and at every slow poll.

What limits depend on (caps) is read again, and held, in the transaction that claims under it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.dispatch.lines import Line, Profile
from mainspring.domain.job import Definition
from mainspring.domain.queue import DEFAULTS, QueueSettings
from mainspring.store import queues
from mainspring.store.db import Database


class Settings:
    def __init__(self) -> None:
        self._queues: dict[tuple[int, str], QueueSettings] = {}
        self._tenants: dict[int, tuple[float, int | None]] = {}
        self._bounded = False

    async def load(self, database: Database) -> None:
        async with database.connection() as connection:
            self._queues = await queues.all_queue_settings(connection)
            self._tenants = await queues.tenant_shares(connection)
        self._bounded = any(queue.max_duration_s is not None for queue in self._queues.values())

    @property
    def bounded(self) -> bool:
        """Whether any queue bounds how long an attempt may take."""
        return self._bounded

    def timeout_s(self, line: Line | None, definition: Definition) -> float:
        return definition.timeout_within(None if line is None else self.of(line).max_duration_s)

    @property
    def weights(self) -> dict[int, float]:
        return {tenant: weight for tenant, (weight, _) in self._tenants.items()}

    def of(self, line: Line) -> QueueSettings:
        return self._queues.get((line.tenant, line.queue), DEFAULTS)

    def capped(self, line: Line) -> bool:
        return self.of(line).cap is not None or self._tenants.get(line.tenant, (1.0, None))[1] is not None

    def is_full(self, line: Line, running: Mapping[tuple[int, str], int]) -> bool:
        """Whether a cap lets nothing more of the line start, by how many run of each tenant and queue."""
        cap, tenant_cap = self.of(line).cap, self._tenants.get(line.tenant, (1.0, None))[1]
        if cap is not None and running.get((line.tenant, line.queue), 0) >= cap:
            return True
        return tenant_cap is not None and sum(n for (t, _), n in running.items() if t == line.tenant) >= tenant_cap

    def helps(self, profile: Profile, line: Line) -> bool:
        """Whether a queue of these workers lets them take from another queue of the same tenant."""
        own = (self._queues.get((line.tenant, queue)) for queue in profile.queues)
        return any(settings is not None and line.queue in settings.may_help for settings in own)
