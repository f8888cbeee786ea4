"""Schedule quotas: how many schedules a token may create per hour, against mistakes and abuse.

Grants are counted in the database, several at a time: the quota holds for all api processes together, and creating a
schedule rarely costs a query. A schedule that is refused for another reason is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Problem, TooMany
from mainspring.store import tokens
from mainspring.store.db import Database

MAX_CACHED_TOKENS = 10_000


@dataclass(slots=True)
class _Grant:
    left: int
    until: float  # on the monotonic clock


class Quotas:
    """Schedule quotas of all tokens, as one api process applies them."""

    def __init__(self, database: Database, per_hour: int, *, clock: Clock | None = None) -> None:
        """`per_hour` is for tokens without a quota of their own; 0: no limit."""
        self._database = database
        self._per_hour = per_hour
        self._clock = clock or SystemClock()
        self._granted: dict[UUID, _Grant] = {}
        self._asking = asyncio.Lock()

    @asynccontextmanager
    async def making(self, schedules: bool, *, tenant: int, token_id: UUID, own: int | None) -> AsyncIterator[None]:
        """Context of a request that may create a schedule; `own` is the token's quota, if it has one."""
        most = own if own is not None else self._per_hour or None
        if not schedules or most is None:
            yield
            return
        grant = await self._take(most, tenant=tenant, token_id=token_id)
        try:
            yield
        except BaseException:
            grant.left += 1
            raise

    async def _take(self, most: int, *, tenant: int, token_id: UUID) -> _Grant:
        grant = self._left(token_id)
        if grant is None:
            async with self._asking:  # one grant serves the requests that wait for it
                grant = self._left(token_id) or await self._ask(most, tenant=tenant, token_id=token_id)
        grant.left -= 1
        return grant

    def _left(self, token_id: UUID) -> _Grant | None:
        grant = self._granted.get(token_id)
        return grant if grant is not None and grant.left and grant.until > self._clock.monotonic() else None

    async def _ask(self, most: int, *, tenant: int, token_id: UUID) -> _Grant:
        now = self._clock.monotonic()
        async with self._database.transaction() as connection:
            await tokens.begin_grants(connection, tenant=tenant, token_id=token_id)
            found = await tokens.grant_schedules(connection, tenant=tenant, token_id=token_id, most=most)
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
        grant = self._granted[token_id] = _Grant(found.granted, now + found.left_s)
        return grant
