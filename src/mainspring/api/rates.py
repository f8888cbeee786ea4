"""How often each caller may ask: so many requests a second for each token, twice as many at once.

Counted by each api process for itself, in memory. Workers are not counted: how much they ask is ours to decide.
"""

from __future__ import annotations

from collections.abc import Hashable
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import TooMany

STRANGERS_PER_S = 20.0
"""So often an address may come without a valid token before it is told to wait."""
MOST_KNOWN = 10_000
ROUNDING_S = 1e-6


class Rate:
    """`per_s` on average, `burst` at once, for each key (GCRA: a key is the time at which it has used up nothing)."""

    def __init__(self, per_s: float, *, burst: float | None = None, clock: Clock | None = None) -> None:
        self._gap_s = 1 / per_s if per_s else 0.0
        self._ahead_s = self._gap_s * max(1.0, 2 * per_s if burst is None else burst)
        self._clock = clock or SystemClock()
        self._clear_at: dict[Hashable, float] = {}

    def take(self, key: Hashable) -> float:
        """0 if it may; otherwise the seconds until it may."""
        if not self._gap_s:
            return 0.0
        now = self._clock.monotonic()
        clear_at = max(self._clear_at.get(key, now), now) + self._gap_s
        if clear_at > now + self._ahead_s + ROUNDING_S:
            return clear_at - now - self._ahead_s
        if len(self._clear_at) >= MOST_KNOWN:
            self._clear_at = {key: at for key, at in self._clear_at.items() if at > now}
        self._clear_at[key] = clear_at
        return 0.0


class Rates:
    """What `api/route.py` and the pages ask before they do anything."""

    def __init__(self, per_s: float, *, clock: Clock | None = None) -> None:
        self._tokens = Rate(per_s, clock=clock)
        self._strangers = Rate(STRANGERS_PER_S if per_s else 0.0, clock=clock)
        self._per_s = per_s

    def admit(self, token_id: UUID) -> None:
        if wait_s := self._tokens.take(token_id):
            raise TooMany(
                f"this token asks more than {self._per_s:g} times a second; nothing was done, try again",
                code="rate_limited",
                retry_after_s=wait_s,
            )

    def admit_stranger(self, address: str) -> None:
        """Whoever has no valid token."""
        if wait_s := self._strangers.take(address):
            raise TooMany(
                "too many requests without a valid token; try again", code="rate_limited", retry_after_s=wait_s
            )
