"""Optional engines beside the PostgreSQL default: wake-up latency, takeover time, and submissions to 1, 2, 4 processes.

Kafka's rates come from `engines_kafka.py`, delayed executions from `engines_delays.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import engines_kafka
import uvloop
from engines_delays import Promoted, promotion_cost
from harness import ROOT, Machine, free_port, machine, publish, quantile

from mainspring import ports
from mainspring.backends.engines import open_bus
from mainspring.client import AsyncClient
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database

sys.path.insert(0, str(ROOT))
from tests.support.engine_servers import EngineServer, EtcdServer, RedisServer, ZooKeeperServer

WAKE_UPS = int(os.environ.get("BENCH_WAKE_UPS", "2000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
ROUND_S = float(os.environ.get("BENCH_S", "5"))
CLIENTS = 16
LEASE_S = 5.0
API_PROCESSES = (1, 2, 4)
TAKEOVER_S = 60.0


@asynccontextmanager
async def running(server: EngineServer) -> AsyncIterator[EngineServer]:
    server.folder.mkdir(parents=True, exist_ok=True)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


async def wake_ups_ms(target: Machine, url: str | None) -> list[float]:
    """From `publish` in one process's bus to the subscriber of another's, one after another."""
    heard, wanted = asyncio.Event(), ""

    def hear(payload: str) -> None:
        if payload == wanted:  # not a repetition of the hint before
            heard.set()

    async with AsyncExitStack() as stack:
        buses = []
        for name in ("here", "there"):
            database = await stack.enter_async_context(Database(target.postgres.dsn, size=1))
            bus = open_bus(url, PostgresBus(database), prefix="mainspring-bench")
            bus.subscribe(ports.QUEUED, (lambda _: None) if name == "here" else hear, on_gap=_nothing)
            await bus.start()
            stack.push_async_callback(bus.stop)
            buses.append(bus)
        for bus in buses:
            await bus.ready()
        took = []
        for number in range(WAKE_UPS):
            heard.clear()
            wanted = str(number)
            began = time.perf_counter()
            buses[0].publish(ports.QUEUED, wanted)
            async with asyncio.timeout(10):
                await heard.wait()
            took.append((time.perf_counter() - began) * 1000)
        return took


def _nothing() -> None:
    pass


async def takeovers_s(target: Machine, coordinator: str | None, end: signal.Signals) -> list[float]:
    """From SIGKILL or SIGSTOP of one of two schedulers until its peer owns every shard."""
    options = [] if coordinator is None else ["--coordinator", coordinator]
    found = []
    for _ in range(ROUNDS):
        role = f"scheduler {coordinator}"
        started = [
            target.spawn(
                *[role, "serve", "--roles", "scheduler", "--shard-lease", f"{LEASE_S:g}", *options],
                MAINSPRING_DATABASE_URL=target.postgres.dsn,
            )
            for _ in range(2)
        ]
        await _owners(target, 2)
        await asyncio.sleep(2)  # registered with the engine, and past the first beats
        began = time.perf_counter()
        started[0].send_signal(end)
        await _owners(target, 1)
        found.append(time.perf_counter() - began)
        started[0].send_signal(signal.SIGCONT)
        started[0].kill()
        target.stop(role)
    return found


async def _owners(target: Machine, number: int) -> None:
    """Wait until so many schedulers own all shards."""
    limit = time.perf_counter() + TAKEOVER_S
    wanted = "SELECT count(DISTINCT owner) = $1 AND count(owner) = 64 FROM shards"
    while True:
        async with target.database.connection() as connection:
            if await connection.fetchval(wanted, number):
                return
        if time.perf_counter() > limit:
            raise RuntimeError(f"the shards did not come to {number} schedulers")
        await asyncio.sleep(0.02)


async def submissions_per_s(target: Machine, processes: int, options: Sequence[str]) -> float:
    """Single submissions by concurrent clients, spread over api processes."""
    role = f"api {processes}"
    urls = []
    for _ in range(processes):
        port = free_port()
        urls.append(f"http://127.0.0.1:{port}")
        target.spawn(
            *[role, "serve", "--roles", "api", "--port", str(port), *options],
            MAINSPRING_DATABASE_URL=target.postgres.dsn,
            MAINSPRING_RATE_LIMIT="0",
        )
    done = 0
    try:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(AsyncClient(url, target.token)) for url in urls]
            for client in clients:
                await _responds(client)
            began = time.perf_counter()

            async def submit(client: AsyncClient) -> None:
                nonlocal done
                while time.perf_counter() - began < ROUND_S:
                    await client.trigger("bench")
                    done += 1

            await asyncio.gather(*(submit(clients[n % processes]) for n in range(CLIENTS)))
            return done / (time.perf_counter() - began)
    finally:
        target.stop(role)


async def _responds(client: AsyncClient) -> None:
    for _ in range(600):
        try:
            await client.jobs(limit=1)
            return
        except Exception:  # not listening yet
            await asyncio.sleep(0.05)
    raise RuntimeError("an api process did not start")


async def main() -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-engines-")))
        redis = await stack.enter_async_context(running(RedisServer(folder / "redis")))
        etcd = await stack.enter_async_context(running(EtcdServer(folder / "etcd")))
        zookeeper = await stack.enter_async_context(running(ZooKeeperServer(folder / "zookeeper")))
        target = await stack.enter_async_context(machine(used=True))
        wakes = {"PostgreSQL": await wake_ups_ms(target, None), "Redis": await wake_ups_ms(target, redis.url)}
        coordinators = {"PostgreSQL": None, "etcd": etcd.url, "ZooKeeper": zookeeper.url}
        takeovers = {
            (name, end): await takeovers_s(target, url, end)
            for name, url in coordinators.items()
            for end in (signal.SIGKILL, signal.SIGSTOP)
        }
        delays = {"PostgreSQL": await promotion_cost(target, None), "Redis": await promotion_cost(target, redis.url)}
        target.serve("api", "scheduler")
        await target.until_ready()
        async with target.client() as client:
            await client.create_job({"name": "bench", "task": {"kind": "noop"}, "queue": "bench"})
        target.stop("api+scheduler")
        rates: dict[tuple[int, str], list[float]] = {}
        for _ in range(ROUNDS):
            for processes in API_PROCESSES:
                for name, options in (("NOTIFY", []), ("Redis", ["--bus", redis.url])):
                    rates.setdefault((processes, name), []).append(await submissions_per_s(target, processes, options))
    report(wakes, takeovers, delays, rates, await engines_kafka.settle_rate())


def report(
    wakes: dict[str, list[float]],
    takeovers: dict[tuple[str, signal.Signals], list[float]],
    delays: dict[str, Promoted],
    rates: dict[tuple[int, str], list[float]],
    more: dict[str, Any],
) -> None:
    lines = [
        f"- wake-ups: {WAKE_UPS:,} hints one after another, from the bus of one process to that of another",
        "- takeover: one of two schedulers is killed (SIGKILL) or frozen (SIGSTOP) until its peer owns all shards;"
        f" lease {LEASE_S:g} s, {ROUNDS} rounds",
        "- delayed: executions of many shards that are due one after another; PostgreSQL's CPU for each promotion",
        f"- submissions: {CLIENTS} clients on the same machine, single requests, {ROUNDS} interleaved rounds of"
        f" {ROUND_S:g} s",
        "",
        "| wake-up | p50, ms | p99, ms |",
        "|---|---|---|",
        *(f"| {name} | {median(ms):.2f} | {quantile(ms, 0.99):.2f} |" for name, ms in wakes.items()),
        "",
        "| takeover | of a scheduler that is | median, s | longest, s |",
        "|---|---|---|---|",
        *(
            f"| {name} | {'killed' if end == signal.SIGKILL else 'frozen'} | {median(found):.2f} | {max(found):.2f} |"
            for (name, end), found in takeovers.items()
        ),
        "",
        "| delayed executions | CPU of PostgreSQL each, µs | reads of what waits | late p50, p99, ms |",
        "|---|---|---|---|",
        *(
            f"| {name} | {one.postgresql_us:.0f} | {one.reads:,} | {one.late_p50_ms:.1f}, {one.late_p99_ms:.1f} |"
            for name, one in delays.items()
        ),
        "",
        "| api processes | hints | submissions per second, median (lowest-highest) |",
        "|---|---|---|",
        *(
            f"| {processes} | {name} | {median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f}) |"
            for (processes, name), found in rates.items()
        ),
        "",
        f"| {more['results']:,} executions in one process | through Kafka, per second | PostgreSQL alone, per second |",
        "|---|---|---|",
        *(
            f"| {what} | {more[f'kafka_{what}_per_s']:,} | {more[f'direct_{what}_per_s']:,} |"
            for what in ("settle", "dispatch")
        ),
    ]
    figures = {
        **{
            f"{name.lower()}_{'' if end == signal.SIGKILL else 'frozen_'}takeover_s": round(max(found), 2)
            for (name, end), found in takeovers.items()
        },
        "redis_wakeup_p99_ms": round(quantile(wakes["Redis"], 0.99), 2),
        "postgresql_wakeup_p99_ms": round(quantile(wakes["PostgreSQL"], 0.99), 2),
        "redis_promotion_us": delays["Redis"].postgresql_us,
        "postgresql_promotion_us": delays["PostgreSQL"].postgresql_us,
        **more,
    }
    publish("engines", lines, figures, written="BENCH_NOT_WRITTEN" not in os.environ)


if __name__ == "__main__":
    uvloop.run(main())
