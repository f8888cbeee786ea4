"""Turns of requests with the same idempotency key in one api process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

CONCURRENT_KEYED = 4
"""Requests with a key that hold a database connection at once, so that others find one in the pool."""


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class KeyedTurns:
    """Lets one request of a key proceed at a time: the others wait here, and not on database connections."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, _Turn] = {}
        self._few = asyncio.Semaphore(CONCURRENT_KEYED)

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock, self._few:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]
