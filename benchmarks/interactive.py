"""What a user who sends one request at a time sees, by the user's clock, with peers in the same run.

Every system runs as its users have it, on the same PostgreSQL; each is measured in turn, in rounds, and the median of
the rounds is published beside what the machine did then: a bare insert with its commit, and a fixed loop of Python.

    python benchmarks/interactive.py --only latency,drain --peers pgqueuer,graphile
    BENCH_QUICK=1 python benchmarks/interactive.py       # every row once, small: for checking, publishes nothing
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import Machine, loop_ms, machine, quantile
from load import generator
from peers import install, processes, report
from peers.catalog import PEERS
from peers.processes import Peer, connection, create_database, prepare, redis, until_empty, until_times
from peers.report import Samples
from peers.system import System

QUICK = bool(os.environ.get("BENCH_QUICK"))


def setting(name: str, full: int, quick: int) -> int:
    return int(os.environ.get(f"BENCH_{name}", str(quick if QUICK else full)))


ROUNDS = setting("ROUNDS", 5, 1)
LATENCY_N = setting("LATENCY_N", 1000, 200)
WARM_UP = setting("WARM_UP", 300, 50)
RATE = setting("RATE", 100, 100)
SINGLES_N = setting("SINGLES_N", 5000, 500)
BULK_N = setting("BULK_N", 50_000, 5000)
DRAIN_N = setting("DRAIN_N", 100_000, 5000)
QUEUED = setting("QUEUED", 100_000, 2000)
LOAD_S = setting("LOAD_S", 5, 1)
HERD = setting("HERD", 10_000, 300)
IN_FLIGHT = 8
BATCH = 1000
ENDPOINT = [1, 8, 32]
STATUS = [1, 8]
LEAST_DRAIN = 200
ROWS = ["latency", "submits", "endpoint", "bulk", "drain", "status", "cpu", "herd"]
PEER_ROWS = {"latency", "submits", "bulk", "drain"}
US = report.US


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


def spread(ms: list[float], cpu_s: dict[str, float]) -> dict[str, float]:
    each = {f"cpu_{role}": s / LATENCY_N * 1000 for role, s in cpu_s.items() if s}
    return {"p50": quantile(ms, 0.5), "p99": quantile(ms, 0.99), **each, "cpu_sum": sum(each.values())}


async def latency(run: Run) -> None:
    async def ours() -> dict[str, float]:
        return spread(*await run.system.latency(run.file(), LATENCY_N, WARM_UP, RATE))

    await run.measure("latency", US, ours)
    for peer in run.peers:

        async def theirs(peer: Peer = peer) -> dict[str, float]:
            file = run.file()
            async with peer.used_once() as client, peer.working("latency", file):
                used, client_s = await client.recording(file).paced(
                    LATENCY_N, WARM_UP, RATE, lambda: peer.used(run.target)
                )
                times = await until_times(file, LATENCY_N)
            return spread([(at - sent) * 1000 for sent, at in times], {**used, "client": client_s})

        await run.measure("latency", peer.definition.name, theirs)


async def submits(run: Run) -> None:
    async def ours() -> dict[str, float]:
        return {"per_s": await run.system.singles(SINGLES_N, IN_FLIGHT)}

    await run.measure("submits", US, ours)
    for peer in run.peers:

        async def theirs(peer: Peer = peer) -> dict[str, float]:
            async with peer.used_once() as client:
                return await client.ask("singles", SINGLES_N, IN_FLIGHT)

        await run.measure("submits", peer.definition.name, theirs)


async def endpoint(run: Run) -> None:
    for count in ENDPOINT:

        async def ours(count: int = count) -> dict[str, float]:
            found = await run.system.endpoint(count, LOAD_S)
            return {"per_s": found.per_s, "p50": found.p50_ms, "p99": found.p99_ms}

        await run.measure(f"endpoint {count}", US, ours)


async def bulk(run: Run) -> None:
    async def ours() -> dict[str, float]:
        return {"per_s": await run.system.bulk(BULK_N, BATCH)}

    await run.measure("bulk", US, ours)
    for peer in run.peers:
        if peer.definition.bulk:

            async def theirs(peer: Peer = peer) -> dict[str, float]:
                async with peer.used_once() as client:
                    return await client.ask("bulk", BULK_N, BATCH)

            await run.measure("bulk", peer.definition.name, theirs)


async def drain(run: Run) -> None:
    for row, job in (("drain", "noop"), ("functions", "nothing")):

        async def ours(job: str = job) -> dict[str, float]:
            return {"per_s": await run.system.drain(run.file(), job, DRAIN_N)}

        await run.measure(row, US, ours)
    for peer in run.peers:

        async def theirs(peer: Peer = peer) -> dict[str, float]:
            return {"per_s": await drained(run, peer)}

        await run.measure("drain", peer.definition.name, theirs)


async def drained(run: Run, peer: Peer) -> float:
    """Preload, start the workers; return jobs per second from the first function until no job is left."""
    n = min(DRAIN_N, max(LEAST_DRAIN, round(DRAIN_N * peer.definition.share)))
    file = run.file()
    async with peer.used_once() as client:
        await client.ask("bulk", n, BATCH)
        async with peer.working("drain", file):
            if peer.definition.on_redis:  # its queue is empty before the last job has ended: count functions
                times = await until_times(file, n)
                end = max(at for _, at in times)
            else:
                end = await until_empty(peer.dsn, peer.definition.left)
                times = processes.times_of(file)
    return n / (end - min(at for _, at in times))


async def status(run: Run) -> None:
    async def ours() -> dict[str, float]:
        found = await run.system.status(QUEUED, STATUS, LOAD_S)
        return {
            f"{metric}_{count}": value
            for count, seen in found.items()
            for metric, value in (("per_s", seen.per_s), ("p50", seen.p50_ms), ("p99", seen.p99_ms))
        }

    await run.measure("status", US, ours)


async def herd(run: Run) -> None:
    async def ours() -> dict[str, float]:
        return {"last_s": await run.system.herd(run.file(), HERD)}

    await run.measure("herd", US, ours)
    for store in ("postgresql", "memory"):

        async def theirs(store: str = store) -> dict[str, float]:
            command = await asyncio.to_thread(install.python_peer, "apscheduler")
            dsn = await create_database(run.target, f"apscheduler-{run.file().name}")
            env = {"BENCH_DSN": dsn.replace("postgresql://", "postgresql+psycopg2://", 1)}
            script = str(install.FOLDER / "apscheduler_peer.py")
            found = await processes.Client([*command, script], env).ask("herd", HERD, store)
            return {"last_s": found["last_s"]}

        await run.measure("herd", f"apscheduler, {store}", theirs)


PARTS = {
    "latency": latency,
    "submits": submits,
    "endpoint": endpoint,
    "bulk": bulk,
    "drain": drain,
    "status": status,
    "herd": herd,
}


async def measure_all(run: Run, names: list[str], redis_url: str, why_no_redis: str) -> None:
    for name in names:
        definition = PEERS[name]
        try:
            if definition.on_redis and not redis_url:
                raise install.NotInstalled(why_no_redis)
            run.peers.append(await prepare(definition, run.target, redis_url))
        except (install.NotInstalled, RuntimeError) as error:
            for row in PEER_ROWS & run.only:
                run.samples.fail(row, name, str(error))
            print(f"{name}: not measured: {error}", flush=True)
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", flush=True)
        for name, part in PARTS.items():
            if name in run.only:
                await part(run)


async def main(only: list[str], names: list[str]) -> None:
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    async with machine(used=True) as target:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-times-")))
            redis_url, why = "", ""
            rows = set(only) | ({"latency"} if "cpu" in only else set())  # CPU is measured with the latency
            used = names if rows & PEER_ROWS else []
            if any(PEERS[name].on_redis for name in used):
                try:
                    redis_url = stack.enter_context(redis())
                except install.NotInstalled as error:
                    why = str(error)
            run = Run(target, folder, rows, System(target))
            await measure_all(run, used, redis_url, why)
    counts = report.Counts(ROUNDS, LATENCY_N, RATE, SINGLES_N, IN_FLIGHT, BULK_N, BATCH, DRAIN_N, QUEUED, HERD)
    complete = not QUICK and set(only) == set(ROWS) and set(names) == set(PEERS)
    report.publish_all(
        run.samples, counts, used, postgresql=target.postgres.version, generator=generator(), written=complete
    )
    if any(name == US for _, name in run.samples.reasons):
        raise SystemExit(1)


def choice(text: str, known: list[str]) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in found if word not in known]
    if unknown or not found:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown) or 'nothing'}; choose from {', '.join(known)}")
    return found


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=lambda text: choice(text, ROWS), default=ROWS, metavar=",".join(ROWS))
    options.add_argument("--peers", type=lambda text: choice(text, list(PEERS)), default=list(PEERS), metavar="NAMES")
    given = options.parse_args()
    asyncio.run(main(given.only, given.peers))
