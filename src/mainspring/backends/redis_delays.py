"""Due instants of waiting executions in Redis: one sorted set for each shard and epoch, read ahead by the owner.

A set has one member for each execution, and one for the instant at which the read-ahead ends. A missing or empty set is
unknown, so a Redis that was started empty, or whose keys have expired, costs a read of the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from mainspring.backends.redis_link import RedisLink
from mainspring.ports import EngineLost, Upcoming
from mainspring.service import Service

ANSWER_S = 0.05
"""The scheduler waits no longer: a read of the database takes about a millisecond."""
KEPT_S = 600
NEVER_MS = 1 << 53
"""End of a read-ahead after which nothing waits. Scores are exact up to here."""

KEEP = """
for i, key in ipairs(KEYS) do
  redis.call('DEL', key)
  local number = 0
  for word in string.gmatch(ARGV[i + 1], '%S+') do
    redis.call('ZADD', key, word, number)
    number = number + 1
  end
  redis.call('EXPIRE', key, ARGV[1])
end
"""
"""KEYS: sets. ARGV: seconds until they expire, then for each set its instants in ms with the end as the last."""
TAKE = """
local due, next = 0, nil
for _, key in ipairs(KEYS) do
  due = due + redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[1])
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if not first[2] then return {} end
  local at = tonumber(first[2])
  if next == nil or at < next then next = at end
end
return {due, string.format('%.0f', next)}
"""
"""KEYS: sets. ARGV: now in ms. Returns how many instants were due and the next one; nothing if a set has none left."""


class RedisDelays(Service):
    """Implements ports.Delays on a Redis server (or Valkey)."""

    def __init__(self, url: str, *, prefix: str) -> None:
        self._link = RedisLink(url, option="--delays", role="delays", scripts=(KEEP, TAKE))
        self._prefix = f"{{{prefix}}}:delays:"

    @property
    def connected(self) -> bool:
        return self._link.connected

    def keep(self, ahead: Mapping[tuple[int, int], Sequence[int]], *, ends: Mapping[tuple[int, int], int]) -> None:
        instants = [" ".join(map(str, (*at, ends.get(owned, NEVER_MS)))) for owned, at in ahead.items()]
        if instants:
            self._link.run(KEEP, self._keys(ahead), KEPT_S, *instants)

    async def take(self, owned: Iterable[tuple[int, int]], now_ms: int) -> Upcoming | None:
        if not self._link.connected or not (keys := self._keys(owned)):
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._link.run(TAKE, keys, now_ms)
        except (EngineLost, TimeoutError):
            return None
        if not answer:
            return None
        next_ms = int(answer[1])
        return Upcoming(int(answer[0]), None if next_ms >= NEVER_MS else next_ms)

    def _keys(self, owned: Iterable[tuple[int, int]]) -> list[str]:
        return [f"{self._prefix}{shard}:{epoch}" for shard, epoch in owned]

    async def start(self) -> None:
        await self._link.start()

    async def ready(self) -> None:
        await self._link.ready()

    async def stop(self) -> None:
        await self._link.stop()
