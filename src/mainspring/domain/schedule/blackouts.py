"""Blackout windows by tenant, queue and job, and the end of adjoining windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout, blackout_until


@dataclass(frozen=True, slots=True)
class Scope:
    """Jobs of a tenant: all, those of a queue, a single one, or a single one while it uses a queue."""

    tenant: int
    queue: str | None = None
    job_id: UUID | None = None

    def covers(self, other: Scope) -> bool:
        return self.tenant == other.tenant and self.queue in (None, other.queue) and self.job_id in (None, other.job_id)


@dataclass(frozen=True, slots=True)
class HeldFires:
    """Jobs whose fire at an instant is held until a later one."""

    scope: Scope
    until_ms: int


class Blackouts:
    """The current and future windows of all tenants."""

    def __init__(self, windows: Iterable[tuple[Scope, Blackout | RecurringBlackout]] = (), *, version: int = 0) -> None:
        self.version = version
        self._windows = list(windows)
        self._scopes = list(_combinations(scope for scope, _ in self._windows))

    def __bool__(self) -> bool:
        return bool(self._windows)

    def until(self, scope: Scope, ms: int) -> int | None:
        """When a fire of these jobs at an instant may start; None means at once."""
        return blackout_until([window for of, window in self._windows if of.covers(scope)], ms)

    def holding(self, ms: int) -> list[HeldFires]:
        """The jobs whose fire at an instant is held. If several scopes match a job, the narrowest applies."""
        found = ((scope, self.until(scope, ms)) for scope in self._scopes)
        return [HeldFires(scope, until) for scope, until in found if until is not None]


def _combinations(scopes: Iterable[Scope]) -> Iterator[Scope]:
    """Combinations of queue and job scopes, because their windows may adjoin with an end of their own."""
    known = set(scopes)
    for tenant in sorted({scope.tenant for scope in known}):
        queues = sorted({scope.queue for scope in known if scope.tenant == tenant and scope.queue is not None})
        jobs = sorted({scope.job_id for scope in known if scope.tenant == tenant and scope.job_id is not None})
        for queue in (None, *queues):
            for job_id in (None, *jobs):
                yield Scope(tenant, queue, job_id)
