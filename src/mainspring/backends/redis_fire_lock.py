"""Locks of instants in Redis: `SET NX EX`, with the epoch of the shard as value, so that a successor takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mainspring.backends.redis_link import RedisLink
from mainspring.ports import DueInstant, EngineLost
from mainspring.service import Service

ANSWER_S = 0.05
"""Fires wait no longer for the lock: the shard row decides without it."""
HELD_S = 30
MOST_AT_ONCE = 500

LOCK = """
local refused = {}
for i, key in ipairs(KEYS) do
  local epoch = ARGV[i + 1]
  if not redis.call('SET', key, epoch, 'NX', 'EX', ARGV[1]) then
    local held = tonumber(redis.call('GET', key)) or 0
    if held > tonumber(epoch) then
      refused[#refused + 1] = i
    elseif held < tonumber(epoch) then
      redis.call('SET', key, epoch, 'EX', ARGV[1])
    end
  end
end
return refused
"""
"""KEYS: instants. ARGV: seconds until locks expire, then the epoch of each. Returns which a later epoch holds."""


class RedisFireLock(Service):
    """Implements ports.FireLock on a Redis server (or Valkey)."""

    def __init__(self, url: str, *, prefix: str) -> None:
        self._link = RedisLink(url, option="--fire-lock", role="fire_lock", scripts=(LOCK,))
        self._prefix = f"{{{prefix}}}:fire:"

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def refused(self, fires: Sequence[DueInstant]) -> set[int]:
        if not self._link.connected:
            return set()
        parts = [fires[start : start + MOST_AT_ONCE] for start in range(0, len(fires), MOST_AT_ONCE)]
        try:
            async with asyncio.timeout(ANSWER_S):
                answers = await asyncio.gather(*(self._lock(part) for part in parts))
        except (EngineLost, TimeoutError):
            return set()
        return {part[place - 1].shard for part, places in zip(parts, answers, strict=True) for place in places}

    async def _lock(self, fires: Sequence[DueInstant]) -> list[int]:
        keys = [f"{self._prefix}{fire.shard}:{fire.schedule_id}:{fire.fire_ms}" for fire in fires]
        answer: list[int] = await self._link.run(LOCK, keys, HELD_S, *[fire.epoch for fire in fires])
        return answer

    async def start(self) -> None:
        await self._link.start()

    async def ready(self) -> None:
        await self._link.ready()

    async def stop(self) -> None:
        await self._link.stop()
