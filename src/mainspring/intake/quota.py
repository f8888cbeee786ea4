"""Schedule quotas: how many schedules a user, or a token without one, may create per hour, against mistakes and abuse.

Whatever gives a job or a workflow a schedule needs a `Charge`: requests, forms, declarations of workers, rollbacks. The
quota comes with the principal that makes the change, so there is nothing that a new way in could forget.

Grants are counted in the database, several at a time: the quota holds for all api processes together, and creating a
schedule rarely costs a query. A schedule that is refused for another reason is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID
from weakref import WeakKeyDictionary

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Problem, TooMany
from mainspring.domain.principal import Principal
from mainspring.store import tokens
from mainspring.store.db import Database, JoinedDatabase

MAX_CACHED_TOKENS = 10_000


class NotCharged(Exception):
    """A change adds a schedule that nothing has been charged for: roll back, charge, and repeat it."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Whether one schedule may be added; a change that adds none needs nothing."""

    paid: bool

    def cover(self, adds_schedule: bool) -> None:
        if adds_schedule and not self.paid:
            raise NotCharged


def without_charge(by: str) -> Charge:
    """For a change that probably adds no schedule; covers one only if the principal has no quota."""
    return Charge(paid=_quota(by) is None)


@asynccontextmanager
async def schedule_charge(
    database: Database, *, adds_schedule: bool = True, tenant: int, by: str
) -> AsyncIterator[Charge]:
    """Charge the quota of the principal for a schedule that is added inside; an exception takes the charge back."""
    most = _quota(by)
    if not adds_schedule or most is None:
        yield Charge(paid=most is None)
        return
    assert isinstance(by, Principal)
    grant = await _grants(database).take(database, most, tenant=tenant, holder=by.quota_id)
    try:
        yield Charge(paid=True)
    except BaseException:
        grant.left += 1
        raise


@asynccontextmanager
async def charged_for(database: Database, schedules: int, *, tenant: int, by: str) -> AsyncIterator[str]:
    """Charge for several schedules at once; yields the principal to make the changes as, whose quota is then paid."""
    most = _quota(by)
    if most is None:
        yield by
        return
    assert isinstance(by, Principal)
    taken = 0
    try:
        for _ in range(schedules):
            await _grants(database).take(database, most, tenant=tenant, holder=by.quota_id)
            taken += 1
        yield Principal(by.name, by.token_id, grants=by.grants, queue_is_limited=by.queue_is_limited)
    except BaseException:
        _grants(database).give_back(taken, holder=by.quota_id)
        raise


def _quota(by: str) -> int | None:
    return by.schedule_quota if isinstance(by, Principal) else None


@dataclass(slots=True)
class _Grant:
    left: int
    until: float  # on the monotonic clock


class _Grants:
    """What the tokens were granted and have not used, as one process knows it."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._granted: dict[UUID, _Grant] = {}
        self._asking = asyncio.Lock()

    async def take(self, database: Database, most: int, *, tenant: int, holder: UUID) -> _Grant:
        grant = self._left(holder)
        if grant is None:
            async with self._asking:  # one grant serves the requests that wait for it
                grant = self._left(holder) or await self._ask(database, most, tenant=tenant, holder=holder)
        grant.left -= 1
        return grant

    def give_back(self, count: int, *, holder: UUID) -> None:
        """Return what was taken in vain; the latest grant holds it, earlier ones are used up."""
        if (grant := self._granted.get(holder)) is not None:
            grant.left += count

    def _left(self, holder: UUID) -> _Grant | None:
        grant = self._granted.get(holder)
        return grant if grant is not None and grant.left and grant.until > self._clock.monotonic() else None

    async def _ask(self, database: Database, most: int, *, tenant: int, holder: UUID) -> _Grant:
        now = self._clock.monotonic()
        async with _origin(database).transaction() as connection:
            await tokens.begin_grants(connection, tenant=tenant, holder=holder)
            found = await tokens.grant_schedules(connection, tenant=tenant, holder=holder, most=most)
        if not found.granted:
            at = f"{found.reset_at:%Y-%m-%dT%H:%M:%SZ}"
            hint = f"wait until {at}, or ask an administrator to raise the quota"
            message = f"the token's quota of {most:,} schedules per hour is used up until {at}"
            raise TooMany(
                message,
                code="quota_used_up",
                retry_after_s=found.left_s,
                problems=(Problem("/schedule", message, hint),),
            )
        if len(self._granted) >= MAX_CACHED_TOKENS:
            self._granted.clear()
        grant = self._granted[holder] = _Grant(found.granted, now + found.left_s)
        return grant


def _origin(database: Database) -> Database:
    """Grants are counted outside the transaction that needs one: other requests use the rest of them."""
    return database.origin if isinstance(database, JoinedDatabase) else database


_SHARED: WeakKeyDictionary[Database, _Grants] = WeakKeyDictionary()


def _grants(database: Database) -> _Grants:
    """The grants of a process: one of its databases has them."""
    database = database.root
    found = _SHARED.get(database)
    if found is None:
        found = _SHARED[database] = _Grants()
    return found
