"""The shared cache on Redis. Times are those of the Redis server, so the clocks of api processes do not matter.

An entry has the time at which its read began and the digests of its labels. A change writes the time of the change
under the digest of each label. A lookup ignores an entry that is older than the guarantee, or than a change of one of
its labels. Commands of one process are executed in order, so a process never finds what it has changed before. After
a change that could not be sent, a process uses no entries for some seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable, Iterable
from contextlib import suppress

from mainspring import __version__
from mainspring.backends.redis_link import RedisLink
from mainspring.clock import Clock, SystemClock
from mainspring.ports import EngineLost, Found
from mainspring.service import Service

CHANGE_KEPT_MS = 3_000
"""Longer than an entry lives."""
MOST_LABELS = 500
"""Entries with more labels are not shared."""

_NOW = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] "
LOOK_UP = (
    _NOW
    + """
local found = redis.call('GET', KEYS[1])
if not found then return {string.format('%.0f', now)} end
local stop = string.find(found, '\\n', 1, true)
local began, labels = nil, {}
for word in string.gmatch(string.sub(found, 1, stop - 1), '%S+') do
  if began == nil then began = tonumber(word) else labels[#labels + 1] = ARGV[2] .. word end
end
local age = now - began
if age < 0 or age > tonumber(ARGV[1]) then return {string.format('%.0f', now)} end
for _, changed in ipairs(redis.call('MGET', unpack(labels))) do
  if changed and tonumber(changed) >= began then return {string.format('%.0f', now)} end
end
return {string.format('%.0f', now), string.format('%.0f', age), string.sub(found, stop + 1)}
"""
)
"""KEYS: entry. ARGV: oldest age in µs, prefix of labels. Returns the time; for a valid entry also its age and value."""
KEEP = (
    _NOW
    + """
local left = tonumber(ARGV[1]) + tonumber(ARGV[2]) - now
if left < 1000 or left > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[3] .. '\\n' .. ARGV[4], 'PX', math.floor(left / 1000))
return 1
"""
)
"""KEYS: entry. ARGV: when its read began, oldest age in µs, labels, value."""
CHANGE = (
    _NOW
    + """
for _, key in ipairs(KEYS) do redis.call('SET', key, string.format('%.0f', now), 'PX', ARGV[1]) end
"""
)
"""KEYS: labels. ARGV: how long to keep the change."""


class RedisCache(Service):
    """Implements ports.Cache on a Redis server (or Valkey)."""

    def __init__(self, url: str, *, prefix: str, clock: Clock | None = None) -> None:
        self._link = RedisLink(url, option="--cache", role="cache", scripts=(LOOK_UP, KEEP, CHANGE))
        # Processes of different versions may encode responses differently.
        self._entries, self._labels = f"{{{prefix}}}:read:{__version__}:", f"{{{prefix}}}:changed:"
        self._clock = clock or SystemClock()
        self._distrusted_until = 0.0

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def look(self, key: Hashable, *, oldest_s: float) -> Found | None:
        if not self._link.connected:
            return None
        try:
            answer = await asyncio.shield(
                self._link.run(LOOK_UP, [self._entries + _digest(key)], int(oldest_s * 1e6), self._labels)
            )
        except EngineLost:
            return None
        if len(answer) == 1 or self._clock.monotonic() < self._distrusted_until:
            return Found(int(answer[0]))
        return Found(int(answer[0]), int(answer[1]) / 1e6, bytes(answer[2]))

    def keep(self, key: Hashable, value: bytes, labels: Iterable[Hashable], *, began: int, oldest_s: float) -> None:
        digests = {_digest(label) for label in labels}
        if digests and len(digests) <= MOST_LABELS:
            words = " ".join(digests)
            self._link.run(KEEP, [self._entries + _digest(key)], began, int(oldest_s * 1e6), words, value)

    def changed(self, labels: Iterable[Hashable]) -> None:
        if not self._link.connected:
            self._distrust()
            return
        keys = list({self._labels + _digest(label) for label in labels})
        for start in range(0, len(keys), MOST_LABELS):
            sent = self._link.run(CHANGE, keys[start : start + MOST_LABELS], CHANGE_KEPT_MS)
            sent.add_done_callback(self._distrust_after_failure)

    def clear(self) -> None:
        self._distrust()

    async def start(self) -> None:
        await self._link.start()

    async def ready(self) -> None:
        await self._link.ready()

    async def stop(self) -> None:
        with suppress(EngineLost):
            await self._link.call("PING")  # after the changes that were called before
        await self._link.stop()

    def _distrust_after_failure(self, sent: asyncio.Future[object]) -> None:
        if sent.cancelled() or sent.exception() is not None:
            self._distrust()

    def _distrust(self) -> None:
        """Ignore entries until all that are there now have expired: Redis may not know of a change."""
        self._distrusted_until = self._clock.monotonic() + CHANGE_KEPT_MS / 1000


def _digest(name: Hashable) -> str:
    return hashlib.blake2b(repr(name).encode(), digest_size=16).hexdigest()
