"""One run of the benchmark: the systems and what was measured of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import Machine, loop_ms, quantile
from peers.processes import Peer, connection
from peers.report import US, Samples
from peers.system import System


@dataclass
class Run:
    """One run of the benchmark: the systems and what was measured of them."""

    target: Machine
    folder: Path
    only: set[str]
    system: System
    peers: list[Peer] = field(default_factory=list)
    samples: Samples = field(default_factory=Samples)
    files: int = 0

    def file(self) -> Path:
        """Return a new file to which functions append."""
        self.files += 1
        return self.folder / f"times-{self.files}"

    async def measure(self, row: str, name: str, work: Callable[[], Awaitable[dict[str, float]]]) -> None:
        """Measure one system. If that fails, the reason is published; a peer that never worked is not tried again."""
        if name != US and self.samples.never_worked(row, name):
            return
        self.samples.add_noise(row, name, await noise(self.target))
        begun = time.monotonic()
        try:
            found = await work()
        except Exception as error:
            self.samples.fail(row, name, f"{type(error).__name__}: {error}")
            found = {}
        self.samples.add(row, name, found)
        shown = " · ".join(f"{metric} {value:,.2f}" for metric, value in found.items())
        print(f"{row} {name}: {shown or self.samples.failed(row, name)} ({time.monotonic() - begun:.0f} s)", flush=True)


async def noise(target: Machine) -> tuple[float, float, float]:
    """Return p50 and p99 milliseconds of a bare insert with its commit, and those of a fixed loop of Python."""
    took = []
    async with connection(target.postgres.dsn) as database:
        await database.execute("CREATE TEMP TABLE warm_up (at timestamptz)")
        await database.execute("CREATE TABLE IF NOT EXISTS bench_commits (at timestamptz)")
        for _ in range(120):
            begun = time.perf_counter()
            await database.execute("INSERT INTO bench_commits VALUES (clock_timestamp())")
            took.append((time.perf_counter() - begun) * 1000)
        await database.execute("DROP TABLE bench_commits")
    return quantile(took[20:], 0.5), quantile(took[20:], 0.99), loop_ms()
