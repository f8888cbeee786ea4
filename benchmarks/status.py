"""Status reads with a backlog: rate, response times, hit ratio of the cache, and reads after own writes.

One job has 100,000 queued executions (STATUS_QUEUED) beside the history that seed.py makes. Measures reads of that job
at 1, 8 and 32 connections, then a mix: 50 jobs and their latest executions, with 5 % writes, each followed by a
read of what was written. Last, two api processes: a write through one, a read through the other. Reads come from a
process of their own: wrk if it is installed, for the mix read_load.py. SEED_EXECUTIONS, STATUS_SECONDS and PAGES_FOLDER
(a folder that keeps the filled database, shared with pages.py) make it shorter.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from harness import Machine, free_port, machine, publish, quantile
from pages import FOLDER, SETTINGS, fill
from seed_plan import EXECUTIONS

QUEUED = int(os.environ.get("STATUS_QUEUED", "100000"))
SECONDS = float(os.environ.get("STATUS_SECONDS", "10"))
WRITES_THEN_READS = 500
BUSY = "crm-00001"
UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
BACKLOG = """
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank,
                            fire_at, due_at, queued_at, line_id, created_by)
    SELECT execution_id(lpad(to_hex(t.ms), 12, '0'), j.job_id, 'backlog' || i), j.job_id, j.tenant_id, j.version,
           j.shard, j.priority, 'queued', 'manual', j.queue, claim_rank(t.ms, j.priority), a.at, a.at, a.at, j.line_id,
           'bench'
    FROM jobs j CROSS JOIN generate_series(1, $2::int) AS i
    CROSS JOIN LATERAL (SELECT floor(extract(epoch FROM db_now()) * 1000)::bigint - ($2 - i) / 10 AS ms) AS t
    CROSS JOIN LATERAL (SELECT timestamptz 'epoch' + t.ms * interval '1 millisecond' AS at) AS a
    WHERE j.name = $1 AND j.tenant_id = 1
"""


async def queue_backlog(target: Machine) -> int:
    """Fill the backlog up to QUEUED executions of the busy job; return how many it has."""
    count = "SELECT count(*) FROM executions e JOIN jobs j USING (job_id) WHERE j.name = $1 AND e.state = 'queued'"
    async with target.database.connection() as connection:
        missing = QUEUED - await connection.fetchval(count, BUSY)
        if missing > 0:
            await connection.execute(BACKLOG, BUSY, missing)
            await connection.execute("ANALYZE executions")
        return int(await connection.fetchval(count, BUSY))


async def output_of(*argv: str, given: bytes = b"") -> str:
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate(given)
    if process.returncode:
        sys.exit(f"{argv[0]} failed")
    return out.decode()


async def load(target: Machine, connections: int, jobs: list[str], **more: Any) -> dict[str, Any]:
    host, _, port = target.url.removeprefix("http://").rpartition(":")
    given = {"host": host, "port": int(port), "token": target.token, "connections": connections, "seconds": SECONDS}
    script = str(Path(__file__).parent / "read_load.py")
    given |= {"jobs": jobs, "executions": {}, "writes": 0.0, **more}
    return dict(json.loads(await output_of(sys.executable, script, given=json.dumps(given).encode())))


async def reads(target: Machine, connections: int) -> dict[str, Any]:
    """Read the busy job for SECONDS; per second, p50 and p99."""
    before = target.cpu_s()
    if shutil.which("wrk") is None:
        found = await load(target, connections, [BUSY])
    else:
        out = await output_of(
            "wrk", "-t1", f"-c{connections}", f"-d{SECONDS:.0f}", "--latency",
            "-H", f"Authorization: Bearer {target.token}", f"{target.url}/api/v1/jobs/{BUSY}",
        )  # fmt: skip
        times = {q: float(ms) * UNITS_MS[unit] for q, ms, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", out)}
        done, per_s = re.search(r"(\d+) requests in", out), re.search(r"Requests/sec:\s+([\d.]+)", out)
        assert done is not None and per_s is not None and "Non-2xx" not in out, out
        found = {"per_s": float(per_s[1]), "p50_ms": times["50"], "p99_ms": times["99"], "reads": int(done[1])}
    return found | {"cpu_us": (target.cpu_s()["api"] - before["api"]) / found["reads"] * 1e6}


async def cache_counts(http: httpx2.AsyncClient) -> dict[str, float]:
    lines = (await http.get("/metrics")).text.splitlines()
    found = {"hit": 0.0, "miss": 0.0}
    for line in lines:
        if match := re.match(r'mainspring_read_cache_requests_total\{.*result="(hit|miss)"\} (\S+)', line):
            found[match[1]] += float(match[2])
    return found


async def mix(target: Machine, http: httpx2.AsyncClient) -> dict[str, Any]:
    """50 jobs, their recent executions and 5 % writes from 8 connections."""
    async with target.database.connection() as connection:
        names = [
            r["name"]
            for r in await connection.fetch("SELECT name FROM jobs WHERE name LIKE 'ml-%' ORDER BY 1 LIMIT 50")
        ]
    executions = {
        name: [e["execution_id"] for e in (await http.get(f"/api/v1/jobs/{name}")).json()["last"][:3]] for name in names
    }
    before = await cache_counts(http)
    found = await load(target, 8, names, executions=executions, writes=0.05)
    after = await cache_counts(http)
    hit, miss = after["hit"] - before["hit"], after["miss"] - before["miss"]
    return found | {"hit_ratio": hit / (hit + miss)}


async def two_processes(target: Machine, http: httpx2.AsyncClient) -> dict[str, Any]:
    """Write through one api process and read through another: with the header at once, without it until it shows."""
    port = free_port()
    target.spawn(
        "second api", "serve", "--roles", "api", "--port", str(port),
        MAINSPRING_DATABASE_URL=target.postgres.dsn, MAINSPRING_RATE_LIMIT="0",
    )  # fmt: skip
    path, stale, without_ms = f"/api/v1/jobs/{BUSY}", 0, list[float]()
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=http.headers, timeout=60) as other:
        while True:
            try:
                await other.get(path)
                break
            except httpx2.TransportError:
                await asyncio.sleep(0.1)
        for n in range(WRITES_THEN_READS):
            await other.get(path)
            text = f"write {n}"
            written = (await http.patch(path, json={"description": text})).headers["mainspring-written"]
            begun = time.perf_counter()
            if n % 2:
                shown = await other.get(path, headers={"Mainspring-Seen-After": written})
                stale += shown.json()["spec"]["description"] != text
            else:
                while (await other.get(path)).json()["spec"]["description"] != text:
                    pass
                without_ms.append((time.perf_counter() - begun) * 1000)
    target.stop("second api")
    return {
        "stale": stale, "others_p50_ms": quantile(without_ms, 0.5), "others_max_ms": max(without_ms),
    }  # fmt: skip


async def main() -> None:
    kept = Path(FOLDER) if FOLDER else None
    async with machine(kept, SETTINGS) as target:
        await fill(target, kept)
        queued = await queue_backlog(target)
        target.serve("api")
        await target.until_ready()
        caller = {"authorization": f"Bearer {target.token}"}
        async with httpx2.AsyncClient(base_url=target.url, headers=caller, timeout=60) as http:
            await reads(target, 8)
            found = {n: await reads(target, n) for n in (1, 8, 32)}
            mixed = await mix(target, http)
            both = await two_processes(target, http)
    report(queued, found, mixed, both)


def report(queued: int, found: dict[int, dict[str, Any]], mixed: dict[str, Any], both: dict[str, Any]) -> None:
    lines = [
        f"- one api process; {queued:,} queued executions of the job that is read, {EXECUTIONS:,} final executions",
        "",
        "| `GET /api/v1/jobs/{ref}`, connections | per second | p50 ms | p99 ms | CPU of the api, µs each |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {n} | {f['per_s']:,.0f} | {f['p50_ms']:.2f} | {f['p99_ms']:.2f} | {f['cpu_us']:.0f} |"
            for n, f in found.items()
        ),
        "",
        f"- mix of 50 jobs and their 3 latest executions, {mixed['writes']:,} writes among {mixed['reads']:,} reads, 8"
        f" connections: {mixed['per_s']:,.0f} reads/s, p50 {mixed['p50_ms']:.2f} ms, p99 {mixed['p99_ms']:.2f} ms, hit"
        f" ratio {mixed['hit_ratio']:.1%}; reads that did not show the write before them: {mixed['stale']}, errors:"
        f" {mixed['errors']}",
        f"- two api processes, a write through one and a read through the other: with `Mainspring-Seen-After`"
        f" {both['stale']} of {WRITES_THEN_READS // 2} stale; without it visible after p50"
        f" {both['others_p50_ms']:.1f} ms, at most {both['others_max_ms']:.0f} ms",
    ]
    figures: dict[str, Any] = {"benchmark": "status", "queued": queued, "executions": EXECUTIONS}
    for n, each in found.items():
        figures |= {f"{k}_{n}": round(v, 2) for k, v in each.items()}
    figures |= {f"mixed_{k}": round(v, 3) for k, v in mixed.items()} | {k: round(v, 1) for k, v in both.items()}
    publish("status", lines, figures)


if __name__ == "__main__":
    asyncio.run(main())
