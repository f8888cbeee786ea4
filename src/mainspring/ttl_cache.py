"""A cache with expiring entries; concurrent readers of a key share one load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from mainspring.clock import Clock, SystemClock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Loads a value at most once per `ttl_s` and key; drops all entries beyond `most` keys."""

    def __init__(self, ttl_s: Callable[[], float], *, most: int = 512, clock: Clock | None = None) -> None:
        self._ttl_s = ttl_s
        self._most = most
        self._clock = clock or SystemClock()
        self._entries: dict[K, tuple[float, V]] = {}
        self._locks: dict[K, asyncio.Lock] = {}

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the cached value or the result of `load`; at most one caller per key loads at a time."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            entry = self._entries.get(key)
            if entry is not None and self._clock.monotonic() - entry[0] < self._ttl_s():
                return entry[1]
            if len(self._entries) >= self._most:
                self._entries.clear()
                # Locks in use stay: a second load of their keys must still wait for the first.
                self._locks = {k: lock for k, lock in self._locks.items() if lock.locked()}
            value = await load()
            self._entries[key] = (self._clock.monotonic(), value)
            return value
