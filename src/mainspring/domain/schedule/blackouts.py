"""Blackout windows by tenant, queue and job, and the end of adjoining windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout, blackout_until, next_start

Window = Blackout | RecurringBlackout
MAX_BLACKOUTS = 100
"""Open blackouts of a tenant: each combination of their queues and jobs may be held differently."""
_MOST_KEPT = 10_000


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


class TenantBlackouts:
    """The windows of one tenant. Answers are kept until a window begins or ends: most instants cost a comparison."""

    def __init__(self, windows: Iterable[tuple[Scope, Window]]) -> None:
        self._windows = list(windows)
        self._scopes = list(_combinations(scope for scope, _ in self._windows))
        self._held: dict[Scope, tuple[int, int]] = {}
        self._quiet = (0, 0)

    def until(self, scope: Scope, ms: int) -> int | None:
        low, until = self._held.get(scope, (0, 0))
        if low <= ms < until:
            return until
        found = blackout_until([window for of, window in self._windows if of.covers(scope)], ms)
        if found is not None:
            if len(self._held) >= _MOST_KEPT:
                self._held.clear()
            self._held[scope] = (ms, found)
        return found

    def holding(self, ms: int) -> list[HeldFires]:
        if self._quiet[0] <= ms < self._quiet[1]:
            return []
        found = ((scope, self.until(scope, ms)) for scope in self._scopes)
        held = [HeldFires(scope, until) for scope, until in found if until is not None]
        if not held:
            starts = (next_start(window, ms) for _, window in self._windows)
            self._quiet = (ms, min((start for start in starts if start is not None), default=1 << 62))
        return held


class Blackouts:
    """The current and future windows of all tenants."""

    def __init__(self, windows: Iterable[tuple[Scope, Window]] = (), *, version: int = 0) -> None:
        self.version = version
        by_tenant: dict[int, list[tuple[Scope, Window]]] = {}
        for scope, window in windows:
            by_tenant.setdefault(scope.tenant, []).append((scope, window))
        self._tenants = {tenant: TenantBlackouts(found) for tenant, found in by_tenant.items()}

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def until(self, scope: Scope, ms: int) -> int | None:
        """When a fire of these jobs at an instant may start; None means at once."""
        found = self._tenants.get(scope.tenant)
        return None if found is None else found.until(scope, ms)

    def minutes(self, queue: str, begin_ms: int, count: int, step_ms: int) -> list[bool]:
        """Whether a blackout holds fires of jobs in a queue, of any tenant, for each of `count` steps."""
        closed = [False] * count
        for number in range(count):
            held = self.holding(begin_ms + number * step_ms)
            closed[number] = any(each.scope.queue in (None, queue) for each in held)
        return closed

    def holding(self, ms: int) -> list[HeldFires]:
        """The jobs whose fire at an instant is held. If several scopes match a job, the narrowest applies."""
        return [held for _, found in sorted(self._tenants.items()) for held in found.holding(ms)]


def _combinations(scopes: Iterable[Scope]) -> Iterator[Scope]:
    """Combinations of queue and job scopes, because their windows may adjoin with an end of their own."""
    known = set(scopes)
    for tenant in sorted({scope.tenant for scope in known}):
        queues = sorted({scope.queue for scope in known if scope.tenant == tenant and scope.queue is not None})
        jobs = sorted({scope.job_id for scope in known if scope.tenant == tenant and scope.job_id is not None})
        for queue in (None, *queues):
            for job_id in (None, *jobs):
                yield Scope(tenant, queue, job_id)
