"""A fleet of ten thousand workers on one api process: simulated sessions that poll, beat and execute, over real HTTP.

Each simulated worker is two connections, as a real one has: a long poll that is renewed, and a heartbeat every quarter
of a lease. Several processes share them, so that the client is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from harness import Machine, machine, publish, quantile

from mainspring import wire
from mainspring.codec import encode
from mainspring.domain.job import JobSpec, NoopTask

WORKERS = int(os.environ.get("BENCH_FLEET", "10000"))
SECONDS = float(os.environ.get("BENCH_FLEET_S", "60"))
PROCESSES = 2
EXECUTIONS = 20_000


class Connection:
    """HTTP/1.1 as plain as it can be: one request at a time on a connection that is kept."""

    def __init__(self, url: str, token: str) -> None:
        self._at = urlsplit(url)
        self._head = (
            f"HTTP/1.1\r\nHost: {self._at.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nMainspring-Protocol: {wire.PROTOCOL}\r\nContent-Length: "
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: wire.Request) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._at.hostname, self._at.port, limit=2**24)
        reader, writer = self._streams
        data = encode(body)
        writer.write(f"POST /api/v1/worker/{path} {self._head}{len(data)}\r\n\r\n".encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split(" ", 2)[1])
        length = int(head.lower().partition("content-length:")[2].split("\r\n", 1)[0])
        answer = await reader.readexactly(length)
        if status >= 300:
            raise RuntimeError(f"{path}: {status} {answer[:200]!r}")
        return answer


class Simulated:
    def __init__(self, url: str, token: str, number: int) -> None:
        self._work, self._heart = Connection(url, token), Connection(url, token)
        self._number = number
        self.running: set[str] = set()
        self.done = 0
        self.latencies: list[float] = []

    async def live(self, until: float) -> None:
        register = wire.Register(
            name=f"sim-{self._number}", host="sim", version="0", slots=4, queues=["short"], kinds=["noop"]
        )
        found = json.loads(await self._work.post("sessions", register))
        session = found["session_id"]
        beating = asyncio.create_task(self._beat(session, found["heartbeat_s"], until))
        while time.time() < until:
            wait_s = min(20.0, max(0.1, until - time.time()))
            polled = json.loads(await self._work.post("poll", wire.Poll(session_id=session, free=4, wait_s=wait_s)))
            if polled["executions"]:
                results = [
                    wire.Result(execution_id=e[0], attempt=e[1], outcome="succeeded", duration_ms=0)
                    for e in polled["executions"]
                ]
                await self._work.post("results", wire.Results(session_id=session, results=results))
                self.done += len(results)
        await beating

    async def _beat(self, session: str, every_s: float, until: float) -> None:
        await asyncio.sleep(random.uniform(0, every_s))
        while time.time() < until:
            begun = time.perf_counter()
            await self._heart.post("heartbeat", wire.Heartbeat(session_id=session, running=[]))
            self.latencies.append(time.perf_counter() - begun)
            await asyncio.sleep(every_s)


async def simulate(url: str, token: str, first: int, count: int, until: float) -> None:
    fleet = [Simulated(url, token, first + n) for n in range(count)]
    gate = asyncio.Semaphore(200)

    async def begin(worker: Simulated, wait: float) -> None:
        await asyncio.sleep(wait)
        async with gate:
            pass
        await worker.live(until)

    # They come up over some seconds, as a fleet does.
    ended = await asyncio.gather(
        *[begin(worker, n / count * 15) for n, worker in enumerate(fleet)], return_exceptions=True
    )
    failed = [e for e in ended if e is not None]
    beats = [s for worker in fleet for s in worker.latencies]
    print(
        json.dumps({
            "failed": len(failed), "why": repr(failed[0]) if failed else "", "done": sum(w.done for w in fleet),
            "beats": len(beats), "p50": quantile(beats, 0.5), "p99": quantile(beats, 0.99),
        })
    )  # fmt: skip


def start_fleet(target: Machine, first: int, count: int, until: float) -> subprocess.Popen[bytes]:
    argv = [sys.executable, __file__, target.url, target.worker_token, str(first), str(count), str(until)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


def rss_mb(target: Machine, role: str) -> float:
    pages = int(Path(f"/proc/{target.processes[role][0].pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def main() -> None:
    async with machine() as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        async with target.client() as client:
            await client.create_job(JobSpec(name="noop", task=NoopTask()))
        before_mb = rss_mb(target, "api")
        until = time.time() + 25 + SECONDS
        share = WORKERS // PROCESSES
        fleets = [start_fleet(target, n * share, share, until) for n in range(PROCESSES)]
        await asyncio.sleep(25)  # all registered
        async with target.database.connection() as connection:
            live = await connection.fetchval("SELECT count(*) FROM sessions WHERE ended_at IS NULL")
            used, begun = target.cpu_s(), time.perf_counter()
            async with target.client() as client:
                for _ in range(EXECUTIONS // 1000):
                    await client.submit([wire.BatchItem(job="noop")] * 1000)
            await asyncio.sleep(SECONDS - 10 - (time.perf_counter() - begun))
            took = time.perf_counter() - begun
            cpu = {role: (s - used.get(role, 0.0)) / took for role, s in target.cpu_s().items()}
            memory = rss_mb(target, "api")
            lost = await connection.fetchval("SELECT count(*) FROM sessions WHERE state = 'lost'")
            left = await connection.fetchval("SELECT count(*) FROM executions")
        told = [json.loads(fleet.communicate()[0]) for fleet in fleets]
    p99 = max(t["p99"] for t in told) * 1000
    shares = " · ".join(f"{role} {100 * s:.0f} %" for role, s in sorted(cpu.items()))
    failed = sum(t["failed"] for t in told)
    publish(
        "fleet",
        [
            f"- {WORKERS:,} simulated workers of 4 slots, one api process, {EXECUTIONS:,} executions among them",
            "",
            "| | measured | goal |",
            "|---|---|---|",
            f"| sessions alive | {live:,} | {WORKERS:,} |",
            f"| sessions lost, workers failed | {lost}, {failed} | 0, 0 |",
            f"| executions done, left | {sum(t['done'] for t in told):,}, {left} | {EXECUTIONS:,}, 0 |",
            f"| heartbeats answered, p99 ms | {sum(t['beats'] for t in told):,}, {p99:.0f} | lease 20 s |",
            f"| memory of the api process, MB (before) | {memory:.0f} ({before_mb:.0f}) | |",
            f"| CPU, of one core | {shares} | |",
        ],
        {
            "workers": live, "lost": lost, "failed": failed, "beat_p99_ms": round(p99), "api_rss_mb": round(memory),
            "api_cpu": round(cpu.get("api", 0.0), 2), "postgresql_cpu": round(cpu["postgresql"], 2),
        },
    )  # fmt: skip
    for t in told:
        if t["why"]:
            print(t["why"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        url, token, first, count, until = sys.argv[1:]
        asyncio.run(simulate(url, token, int(first), int(count), float(until)))
    else:
        asyncio.run(main())
