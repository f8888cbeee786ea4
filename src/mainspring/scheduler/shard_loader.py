"""Loads the schedules of newly owned shards, beside the tick loop, so that owned shards keep firing meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from mainspring.store import schedules
from mainspring.store.db import Database
from mainspring.store.schedules import ShardSchedule
from mainspring.store.shards import Shard

PORTION_ROWS = 10_000
MAX_PORTIONS = 3
"""Loaded portions that may wait for the tick loop: a million schedules at once would double the memory."""


@dataclass(frozen=True, slots=True)
class LoadedShards:
    """Shards with their schedules, ready for the wheel. The rows were read after `changes`."""

    shards: dict[int, Shard]
    rows: list[ShardSchedule]


class ShardLoader:
    """`renew` keeps the leases during a long load; `ready` wakes the tick loop, which takes the portions."""

    def __init__(self, database: Database, *, renew: Callable[[], Awaitable[None]], ready: Callable[[], None]) -> None:
        self.loaded: list[LoadedShards] = []
        self.ticking = False  # whether a tick loop takes the portions
        self._database = database
        self._renew = renew
        self._ready = ready
        self._epochs: dict[int, int] = {}  # of shards that are not on the wheel yet
        self._taken = asyncio.Event()

    def __bool__(self) -> bool:
        """Whether any shard is being loaded, or waits for the tick loop."""
        return bool(self._epochs)

    def is_loading(self, shard: Shard) -> bool:
        return self._epochs.get(shard.shard, -1) >= shard.epoch

    async def load(self, new: list[Shard]) -> None:
        if not new:
            return
        missing = {s.shard: s for s in new}
        self._epochs |= {s.shard: s.epoch for s in new}
        rows: list[ShardSchedule] = []
        try:
            async with self._database.connection() as connection:
                async for portion in schedules.shard_schedules(connection, shards=sorted(missing)):
                    rows += portion
                    if len(rows) >= PORTION_ROWS:
                        rows = await self._pass_on(missing, rows)
        except BaseException:
            for shard in missing:
                self._epochs.pop(shard, None)
            raise
        self.loaded.append(LoadedShards(missing, rows))

    async def _pass_on(self, missing: dict[int, Shard], rows: list[ShardSchedule]) -> list[ShardSchedule]:
        """Pass on the shards whose rows are complete, and return the rows of the next one."""
        last = rows[-1].shard  # rows come in the order of shards
        complete = {s: missing.pop(s) for s in [s for s in missing if s < last]}
        if complete:
            self.loaded.append(LoadedShards(complete, [row for row in rows if row.shard < last]))
            self._ready()
        await self._renew()
        while self.ticking and len(self.loaded) > MAX_PORTIONS:
            self._taken.clear()
            await self._taken.wait()
        return [row for row in rows if row.shard >= last]

    def take(self) -> LoadedShards:
        self._taken.set()
        return self.loaded.pop(0)

    def finish(self, shards: Mapping[int, Shard]) -> None:
        """Forget shards that are on the wheel, or failed to get there: then the next beat finds them again."""
        for shard, seen in shards.items():
            if self._epochs.get(shard) == seen.epoch:
                del self._epochs[shard]
