"""One request rate for all api processes: budgets in Redis, by the clock of the Redis server.

Each key has the instant at which its budget is full again (GCRA), as in the limits of a process.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.backends.redis_link import RedisLink
from mainspring.ports import Budget, EngineLost, RateTaken
from mainspring.service import Service

TAKE = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local result = {}
for i, key in ipairs(KEYS) do
  local gap, ahead = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  -- At most `ahead`: after a step of the server's clock, a full budget is used, and refills.
  local clear_at = math.min(math.max(tonumber(redis.call('GET', key) or '0'), now), now + ahead)
  local wait = clear_at + gap - now - ahead
  if wait > 1 then
    result[#result + 1] = {string.format('%.0f', wait), string.format('%.0f', clear_at - now)}
    return result
  end
  clear_at = clear_at + gap
  redis.call('SET', key, string.format('%.3f', clear_at), 'PX', math.ceil((clear_at - now) / 1000) + 1000)
  result[#result + 1] = {'0', string.format('%.0f', clear_at - now)}
end
return result
"""
"""KEYS: budgets, in the order in which a request takes from them. ARGV: for each its gap and its depth in µs. Returns
for each the wait and what is used, up to the first that has nothing left."""


class RedisRates(Service):
    """Implements ports.RateLimit on a Redis server (or Valkey)."""

    def __init__(self, url: str, *, prefix: str) -> None:
        self._link = RedisLink(url, option="--rate-limiter", role="rate_limit", scripts=(TAKE,))
        self._prefix = f"{{{prefix}}}:rate:"

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def take(self, budgets: Sequence[Budget]) -> list[RateTaken] | None:
        if not self._link.connected:
            return None
        arguments = [f"{number * 1e6:.3f}" for budget in budgets for number in (budget.gap_s, budget.ahead_s)]
        try:
            taken = await self._link.run(TAKE, [self._prefix + budget.key for budget in budgets], *arguments)
        except EngineLost:
            return None
        return [RateTaken(int(wait) / 1e6, int(used) / 1e6) for wait, used in taken]

    async def start(self) -> None:
        await self._link.start()

    async def ready(self) -> None:
        await self._link.ready()

    async def stop(self) -> None:
        await self._link.stop()
