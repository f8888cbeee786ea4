"""Fair shares between tenants that compete for the same workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Shares:
    """Stride scheduling between tenants.

    Each start advances its tenant's clock by 1 / weight, and the tenant with the lowest clock is next. A tenant that
    was idle restarts at the current time, so it cannot save up starts.
    """

    def __init__(self) -> None:
        self.weights: Mapping[int, float] = {}
        self._clocks: dict[int, float] = {}
        self._now = 0.0

    def begin(self, tenants: Iterable[int]) -> None:
        """Start a match between these tenants."""
        for tenant in tenants:
            self._clocks[tenant] = max(self._clocks.get(tenant, 0.0), self._now)

    def next(self, tenants: Iterable[int]) -> int:
        """Return the tenant whose turn it is; ties go to the lower id."""
        return min(tenants, key=lambda tenant: (self._clocks[tenant], tenant))

    def charge(self, tenant: int, starts: int = 1) -> None:
        stride = 1 / self.weights.get(tenant, 1.0)
        after = self._clocks.get(tenant, self._now) + starts * stride
        self._clocks[tenant] = after
        self._now = max(self._now, after - stride)
