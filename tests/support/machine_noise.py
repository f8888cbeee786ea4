"""How late the machine itself is while a test measures lateness: other tests share its cores and its disk."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import asyncpg

PROBE_S = 0.1


class MachineNoise:
    """Delays of a timer followed by a bare commit, by the clock of the database in seconds of the epoch."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []

    def add(self, at_s: float, delay_s: float) -> None:
        self._found.append((at_s, delay_s))

    def worst_between(self, start_s: float, end_s: float) -> float:
        """Return the longest delay; a probe that is late covers the time before it."""
        return max((d for at, d in self._found if at - d <= end_s and at >= start_s), default=0.0)


@contextlib.asynccontextmanager
async def measured_noise(url: str) -> AsyncIterator[MachineNoise]:
    """Probe ten times a second until the block ends."""
    noise, over = MachineNoise(), asyncio.Event()
    connection = await asyncpg.connect(url)

    async def probe() -> None:
        await connection.execute("CREATE TEMP TABLE probes (at timestamptz)")
        while not over.is_set():
            begun = time.perf_counter()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), PROBE_S)
            at = await connection.fetchval(
                "INSERT INTO probes VALUES (clock_timestamp()) RETURNING extract(epoch FROM at)::float8"
            )
            noise.add(at, max(0.0, time.perf_counter() - begun - PROBE_S))

    probing = asyncio.create_task(probe())
    try:
        yield noise
    finally:
        over.set()
        await probing
        await connection.close()
