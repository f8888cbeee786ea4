"""Which blackouts hold for which jobs: windows by tenant, by queue and by job, and when those that join are over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout, blackout_until


@dataclass(frozen=True, slots=True)
class Scope:
    """Jobs of a tenant: all of them, those of a queue, or one, or one while it is in a queue."""

    tenant: int
    queue: str | None = None
    job_id: UUID | None = None

    def covers(self, other: Scope) -> bool:
        return self.tenant == other.tenant and self.queue in (None, other.queue) and self.job_id in (None, other.job_id)


@dataclass(frozen=True, slots=True)
class Held:
    """Jobs whose fire at an instant waits until another."""

    scope: Scope
    until_ms: int


class Blackouts:
    """The windows of all tenants, as far as they are not over."""

    def __init__(self, windows: Iterable[tuple[Scope, Blackout | RecurringBlackout]] = (), *, version: int = 0) -> None:
        self.version = version
        self._windows = list(windows)
        self._scopes = list(_combinations(scope for scope, _ in self._windows))

    def __bool__(self) -> bool:
        return bool(self._windows)

    def until(self, scope: Scope, ms: int) -> int | None:
        """When a fire of these jobs at an instant may start; None: at once."""
        return blackout_until([window for of, window in self._windows if of.covers(scope)], ms)

    def holding(self, ms: int) -> list[Held]:
        """Who has to wait with a fire at an instant. Of several that name a job, the narrowest one counts for it."""
        found = ((scope, self.until(scope, ms)) for scope in self._scopes)
        return [Held(scope, until) for scope, until in found if until is not None]


def _combinations(scopes: Iterable[Scope]) -> Iterator[Scope]:
    """A window of a queue and one of a job may join: each pair has an end of its own."""
    known = set(scopes)
    for tenant in sorted({scope.tenant for scope in known}):
        queues = sorted({scope.queue for scope in known if scope.tenant == tenant and scope.queue is not None})
        jobs = sorted({scope.job_id for scope in known if scope.tenant == tenant and scope.job_id is not None})
        for queue in (None, *queues):
            for job_id in (None, *jobs):
                yield Scope(tenant, queue, job_id)
