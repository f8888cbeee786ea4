"""Request rate limits: an average rate per token, user and tenant, with bursts of twice that.

Each api process counts in memory, unless an engine counts for all of them (ports.RateLimit); the process counts again
while that is unavailable. Workers are exempt: the server controls how often they call.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from uuid import UUID

from mainspring import ports
from mainspring.clock import Clock, SystemClock
from mainspring.domain.address import site_of
from mainspring.domain.errors import TooMany

UNAUTHENTICATED_PER_S = 20.0
"""Requests without a valid token that an address may make per second."""
FAILED_LOGINS_PER_S = 0.5
FAILED_LOGINS_AT_ONCE = 20
"""Failed attempts to sign in that an address may make."""
HOOK_PER_S = 20.0
HOOK_BURST = 200
"""Authenticated deliveries that one webhook accepts."""
TOKENS_PER_TENANT = 20
"""A tenant may make as many requests per second as so many of its tokens."""
TOKEN, USER, TENANT = "this token", "the user of this token", "the tenant"
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
            self._forget(now)
        self._clear_at[key] = clear_at
        return 0.0

    def wait_s(self, key: Hashable) -> float:
        """Return the seconds until a request would be admitted, without counting one."""
        now = self._clock.monotonic()
        clear_at = max(self._clear_at.get(key, now), now) + self._gap_s
        return max(0.0, clear_at - now - self._ahead_s - ROUNDING_S)

    @property
    def quota(self) -> int:
        """How many requests a key may make at once."""
        return int(self._ahead_s / self._gap_s + ROUNDING_S) if self._gap_s else 0

    def budget(self, key: Hashable) -> ports.Budget:
        return ports.Budget(str(key), self._gap_s, self._ahead_s)

    def left(self, key: Hashable) -> tuple[int, int]:
        """Return how many requests a key may make now, and the seconds until it may make `quota` of them again."""
        now = self._clock.monotonic()
        return self.left_of(max(0.0, self._clear_at.get(key, now) - now))

    def left_of(self, used_s: float) -> tuple[int, int]:
        """Return the same for a key that has used so much of its budget."""
        return int((self._ahead_s - used_s + ROUNDING_S) / self._gap_s), math.ceil(used_s - ROUNDING_S)

    def _forget(self, now: float) -> None:
        """Forget idle keys, and at least half of all: a client with many addresses must not make each request slow."""
        active = [(key, at) for key, at in self._clear_at.items() if at > now]
        self._clear_at = dict(active[-(MOST_KEYS // 2) :])


Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision on a request: the error that refuses it, and the headers about the limit of its token."""

    refusal: TooMany | None
    headers: Headers


class RequestLimits:
    """The limits that the API and the web UI check before they serve a request."""

    def __init__(self, per_s: float, *, clock: Clock | None = None, shared: ports.RateLimit | None = None) -> None:
        self._shared = shared if per_s else None
        self._tokens = RateLimiter(per_s, clock=clock)
        self._users = RateLimiter(per_s, clock=clock)
        burst = TOKENS_PER_TENANT * max(1.0, 2 * per_s)  # a slow token may make one request at once: so may each
        self._tenants = RateLimiter(per_s * TOKENS_PER_TENANT, burst=burst, clock=clock)
        self._unauthenticated = RateLimiter(UNAUTHENTICATED_PER_S if per_s else 0.0, clock=clock)
        self._logins = RateLimiter(FAILED_LOGINS_PER_S if per_s else 0.0, burst=FAILED_LOGINS_AT_ONCE, clock=clock)
        self._hooks = RateLimiter(HOOK_PER_S if per_s else 0.0, burst=HOOK_BURST, clock=clock)
        self._per_s = per_s
        quota = self._tokens.quota
        self._policy = (b"ratelimit-policy", b'"requests";q=%d;w=%d' % (quota, math.ceil(quota / (per_s or 1))))

    async def count(self, token_id: UUID, *, user: UUID | None = None, tenant: int | None = None) -> Admission:
        """Count a request, with all api processes if an engine is there for that, otherwise in this process."""
        taken = None
        if self._shared is not None:
            taken = await self._shared.take(self._budgets(token_id, user, tenant))
        if taken is None:
            return self._counted_here(token_id, user, tenant)
        ratelimit = b'"requests";r=%d;t=%d' % self._tokens.left_of(taken[0].used_s)
        rates = self._named_rates(user, tenant)
        refused = ((*rates[n], one.wait_s) for n, one in enumerate(taken) if one.wait_s)
        refusal = next((_too_many(noun, per_s, wait_s) for noun, per_s, wait_s in refused), None)
        return Admission(refusal, (self._policy, (b"ratelimit", ratelimit)))

    def _counted_here(self, token_id: UUID, user: UUID | None, tenant: int | None) -> Admission:
        refusal = None
        try:
            self.admit(token_id, user=user, tenant=tenant)
        except TooMany as error:
            refusal = error
        return Admission(refusal, self.headers(token_id))

    def _budgets(self, token_id: UUID, user: UUID | None, tenant: int | None) -> list[ports.Budget]:
        budgets = [self._tokens.budget(f"token:{token_id}")]
        if user is not None:
            budgets.append(self._users.budget(f"user:{user}"))
        if tenant is not None:
            budgets.append(self._tenants.budget(f"tenant:{tenant}"))
        return budgets

    def _named_rates(self, user: UUID | None, tenant: int | None) -> list[tuple[str, float]]:
        """The budgets of a request, in the order in which they count: the noun and the requests per second."""
        rates = [(TOKEN, self._per_s)]
        if user is not None:
            rates.append((USER, self._per_s))
        if tenant is not None:
            rates.append((TENANT, self._per_s * TOKENS_PER_TENANT))
        return rates

    def headers(self, token_id: UUID) -> Headers:
        """Return the limit of a token and what is left of it, as RateLimit-Policy and RateLimit; nothing without limit.

        The fields are those of draft-ietf-httpapi-ratelimit-headers: quota, window, remaining, seconds until reset.
        """
        if not self._per_s:
            return ()
        return self._policy, (b"ratelimit", b'"requests";r=%d;t=%d' % self._tokens.left(token_id))

    def admit(self, token_id: UUID, *, user: UUID | None = None, tenant: int | None = None) -> None:
        """Count a request against its token, against the user of the token, and against the tenant."""
        _count(self._tokens, token_id, TOKEN, self._per_s)
        if user is not None:
            _count(self._users, user, USER, self._per_s)
        if tenant is not None:
            _count(self._tenants, tenant, TENANT, self._per_s * TOKENS_PER_TENANT)

    def admit_unauthenticated(self, address: str, *, count: bool = True) -> None:
        """Limit requests without a valid token by address. `count=False` only checks the limit."""
        _admit(self._unauthenticated, address, "too many requests without a valid token; try again later", count=count)

    def admit_hook(self, trigger_id: UUID) -> None:
        """Limit the authenticated deliveries to one webhook."""
        if wait_s := self._hooks.take(trigger_id):
            message = f"this webhook exceeds {HOOK_PER_S:g} deliveries per second; nothing was started, send it again"
            raise TooMany(message, code="rate_limited", retry_after_s=wait_s)

    def admit_login(self, address: str, *, count: bool = True) -> None:
        """Limit failed attempts to sign in by address. `count=False` only checks the limit."""
        _admit(self._logins, address, "too many failed attempts to sign in; try again later", count=count)


def _count(rate: RateLimiter, key: Hashable, noun: str, per_s: float) -> None:
    if wait_s := rate.take(key):
        raise _too_many(noun, per_s, wait_s)


def _too_many(noun: str, per_s: float, wait_s: float) -> TooMany:
    message = f"{noun} exceeds {per_s:g} requests per second; nothing was done, try again"
    return TooMany(message, code="rate_limited", retry_after_s=wait_s)


def _admit(rate: RateLimiter, address: str, message: str, *, count: bool) -> None:
    site = site_of(address)
    if wait_s := rate.take(site) if count else rate.wait_s(site):
        raise TooMany(message, code="rate_limited", retry_after_s=wait_s)
