"""What a user who sends one request at a time sees, by the user's clock, with peers in the same run.

Every system runs as its users have it, on the same PostgreSQL; each is measured in turn, in rounds, and the median of
the rounds is published beside what the machine did then: a bare insert with its commit, and a fixed loop of Python.

    python benchmarks/interactive.py --only latency,drain --peers pgqueuer,graphile
    python benchmarks/interactive.py --quick             # every row once, small: for checking, publishes nothing
    python benchmarks/interactive.py --rounds 5 --minutes 90
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from harness import machine, quantile
from load import generator
from peers import install, processes, report, schedules, workflows
from peers.catalog import PEERS
from peers.processes import Peer, prepare, redis, until_empty, until_times
from peers.report import US
from peers.run import Run
from peers.system import System

QUICK = bool(os.environ.get("BENCH_QUICK")) or "--quick" in sys.argv


def setting(name: str, full: int, quick: int) -> int:
    return int(os.environ.get(f"BENCH_{name}", str(quick if QUICK else full)))


ROUNDS = setting("ROUNDS", 3, 1)
LATENCY_N = setting("LATENCY_N", 1000, 200)
WARM_UP = setting("WARM_UP", 300, 50)
RATE = setting("RATE", 100, 100)
SINGLES_N = setting("SINGLES_N", 5000, 500)
BULK_N = setting("BULK_N", 50_000, 5000)
DRAIN_N = setting("DRAIN_N", 100_000, 5000)
QUEUED = setting("QUEUED", 100_000, 2000)
LOAD_S = setting("LOAD_S", 5, 1)
HERDS = [count for count in (1000, 10_000, 100_000) if count <= setting("HERD", 100_000, 1000)]
FLOWS_N = setting("FLOWS_N", 10, 2)
MEMORY_N = setting("MEMORY_N", 100_000, 5000)
ONCE = {"herd", "flows", "memory"}
"""Rows of the first round only: their figures vary little, and a herd takes minutes."""
MINUTES = setting("MINUTES", 40, 10)
IN_FLIGHT = 8
BATCH = 1000
ENDPOINT = [1, 8, 32]
STATUS = [1, 8]
LEAST_DRAIN = 200
ROWS = ["latency", "submits", "endpoint", "bulk", "drain", "status", "cpu", "herd", "flows", "memory"]
PEER_ROWS = {"latency", "submits", "bulk", "drain", "herd", "flows"}


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


async def herds(run: Run) -> None:
    await schedules.herd(run, HERDS)


async def flows(run: Run) -> None:
    await workflows.flows(run, FLOWS_N)


async def memory(run: Run) -> None:
    await schedules.memory(run, MEMORY_N)


PARTS = {
    "latency": latency,
    "submits": submits,
    "endpoint": endpoint,
    "bulk": bulk,
    "drain": drain,
    "status": status,
    "herd": herds,
    "flows": flows,
    "memory": memory,
}


async def measure_all(
    run: Run, names: list[str], redis_url: str, why_no_redis: str, *, rounds: int, minutes: int
) -> int:
    """Measure each row in turn, round after round while there is time; return the number of rounds."""
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
    end, longest = time.monotonic() + minutes * 60, 0.0
    for number in range(rounds):
        begun = time.monotonic()
        if begun + longest > end:
            print(f"{number} rounds in {minutes} minutes; the next one would exceed them", flush=True)
            return number
        print(f"round {number + 1} of {rounds}", flush=True)
        for name, part in PARTS.items():
            if name in run.only and (not number or name not in ONCE):
                await part(run)
        longest = max(longest, time.monotonic() - begun)
    return rounds


async def main(only: list[str], names: list[str], rounds: int, minutes: int) -> None:
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
            done = await measure_all(run, used, redis_url, why, rounds=rounds, minutes=minutes)
    counts = report.Counts(
        rounds=done,
        latency=LATENCY_N,
        rate=RATE,
        singles=SINGLES_N,
        in_flight=IN_FLIGHT,
        bulk=BULK_N,
        batch=BATCH,
        drain=DRAIN_N,
        queued=QUEUED,
        herds=tuple(HERDS),
        memory=MEMORY_N,
        flows=workflows.FLOWS,
    )
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
    options.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    options.add_argument("--minutes", type=int, default=MINUTES, metavar="N", help="begin no round that would exceed")
    options.add_argument("--quick", action="store_true", help="every row once, small; publishes nothing")
    given = options.parse_args()
    asyncio.run(main(given.only, given.peers, given.rounds, given.minutes))
