"""Request rate limits: an average rate per token, with bursts of twice that.

Each api process counts in memory. Workers are exempt: the server controls how often they call.
"""

from __future__ import annotations

from collections.abc import Hashable
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import TooMany

UNAUTHENTICATED_PER_S = 20.0
"""Requests without a valid token that an address may make per second."""
MOST_KEYS = 10_000
ROUNDING_S = 1e-6


class RateLimiter:
    """`per_s` on average and `burst` at once for each key (GCRA: per key, the instant at which its budget is full)."""

    def __init__(self, per_s: float, *, burst: float | None = None, clock: Clock | None = None) -> None:
        self._gap_s = 1 / per_s if per_s else 0.0
        self._ahead_s = self._gap_s * max(1.0, 2 * per_s if burst is None else burst)
        self._clock = clock or SystemClock()
        self._clear_at: dict[Hashable, float] = {}

    def take(self, key: Hashable) -> float:
        """Admit a request and return 0, or return the seconds to wait."""
        if not self._gap_s:
            return 0.0
        now = self._clock.monotonic()
        clear_at = max(self._clear_at.get(key, now), now) + self._gap_s
        if clear_at > now + self._ahead_s + ROUNDING_S:
            return clear_at - now - self._ahead_s
        if len(self._clear_at) >= MOST_KEYS:
            self._clear_at = {key: at for key, at in self._clear_at.items() if at > now}
        self._clear_at[key] = clear_at
        return 0.0


class RequestLimits:
    """The limits that the API and the web UI check before they serve a request."""

    def __init__(self, per_s: float, *, clock: Clock | None = None) -> None:
        self._tokens = RateLimiter(per_s, clock=clock)
        self._unauthenticated = RateLimiter(UNAUTHENTICATED_PER_S if per_s else 0.0, clock=clock)
        self._per_s = per_s

    def admit(self, token_id: UUID) -> None:
        if wait_s := self._tokens.take(token_id):
            raise TooMany(
                f"this token exceeds {self._per_s:g} requests per second; nothing was done, try again",
                code="rate_limited",
                retry_after_s=wait_s,
            )

    def admit_unauthenticated(self, address: str) -> None:
        """Limit requests without a valid token by address."""
        if wait_s := self._unauthenticated.take(address):
            raise TooMany(
                "too many requests without a valid token; try again later", code="rate_limited", retry_after_s=wait_s
            )
