"""Many schedules: how late the last function of a herd begins, and how much memory 100,000 schedules need."""

from __future__ import annotations

import asyncio
import time

from peers import install, processes
from peers.processes import Peer, create_database, until_times
from peers.report import US
from peers.run import Run

LEAD_S = 5.0  # how long before the instant everything must have been submitted
BATCH = 1000
LARGEST = {"memory": 100_000, "postgresql": 10_000}
"""Of APScheduler: it creates jobs one by one; on PostgreSQL 100,000 take many minutes."""


async def herd(run: Run, counts: list[int]) -> None:
    for count in counts:
        row = f"herd {count}"

        async def ours(count: int = count) -> dict[str, float]:
            return {"last_s": await run.system.herd(run.file(), count)}

        await run.measure(row, US, ours)
        for peer in run.peers:
            if peer.definition.later:

                async def theirs(peer: Peer = peer, count: int = count) -> dict[str, float]:
                    return {"last_s": await due_at_once(run, peer, count)}

                await run.measure(row, peer.definition.name, theirs)
        for store, largest in LARGEST.items():
            if count > largest:
                run.samples.fail(row, f"apscheduler, {store}", f"left out: at most {largest:,} schedules")
                continue

            async def others(store: str = store, count: int = count) -> dict[str, float]:
                found = await (await apscheduler(run, store)).ask("herd", count, store)
                return {"last_s": found["last_s"]}

            await run.measure(row, f"apscheduler, {store}", others)


async def due_at_once(run: Run, peer: Peer, count: int) -> float:
    """Submit jobs of a queue for one instant; return how long after it the last function began."""
    file = run.file()
    async with peer.used_once() as client:
        begun = time.monotonic()
        sample = min(count, BATCH)
        await client.ask("later", sample, sample, int(time.time()) + 86_400)
        needed_s = 2 * (time.monotonic() - begun) * count / sample
        async with peer.working("drain", file):
            due = int(time.time() + LEAD_S + needed_s)
            await client.ask("later", count, BATCH, due)
            if time.time() > due - 1:
                raise TimeoutError("submitting took too long")
            return max(at for _, at in await until_times(file, count)) - due


async def apscheduler(run: Run, store: str) -> processes.Client:
    command = await asyncio.to_thread(install.python_peer, "apscheduler")
    env = {}
    if store == "postgresql":
        dsn = await create_database(run.target, f"apscheduler-{run.file().name}")
        env["BENCH_DSN"] = dsn.replace("postgresql://", "postgresql+psycopg2://", 1)
    return processes.Client([*command, str(install.FOLDER / "apscheduler_peer.py")], env)


async def memory(run: Run, count: int) -> None:
    """Resident memory that distinct recurring schedules add to the process that decides them."""

    async def ours() -> dict[str, float]:
        return {"mb": await run.system.memory(count)}

    await run.measure("memory", US, ours)

    async def theirs() -> dict[str, float]:
        return {"mb": (await (await apscheduler(run, "memory")).ask("memory", count, "memory"))["mb"]}

    await run.measure("memory", "apscheduler, memory", theirs)
