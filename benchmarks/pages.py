"""How fast pages and lists answer over 10,000,000 executions, what script a page asks for, which statements are slow.

A server on a database filled by seed.py is asked for every page of the route table and every list of the API, one after
the other, many times: the time until the first byte arrives. SEED_EXECUTIONS and PAGES_ROUNDS make it smaller.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any, cast

import asyncpg
import httpx2
from harness import Machine, machine, publish, quantile
from seed import EXECUTIONS, JOBS, Plan, seed
from starlette.routing import Route

from mainspring.api.app import endpoints
from mainspring.api.context import Context
from mainspring.web.app import routes

ROUNDS = int(os.environ.get("PAGES_ROUNDS", "30"))
BUDGET_MS = 150.0
SCRIPT_BUDGET = 60_000
SLOW_MS = 100.0
NOT_LISTS = ("/api/v1/doctor", "/api/v1/stream", "/ui/stream", "/static/{file}", "/login")
"""What is asked for on demand, what never ends, and what is no page."""
MORE = (
    "/executions?state=running", "/executions?state=queued", "/executions?state=waiting&state=blocked",
    "/executions?state=succeeded", "/executions?state=failed&state=timed_out&state=lost", "/executions?state=cancelled",
    "/executions?state=skipped", "/executions?state=lost", "/api/v1/executions?state=lost",
    "/api/v1/executions?limit=200", "/jobs?prefix=ml-", "/executions?job={job}&state=lost",
    "/executions?job={rare}&state=failed",
)  # fmt: skip
QUERIES = {
    "/jobs/{ref}/rollback": "?version=1",
    "/jobs/{ref}/schedule": "?expression=every+2h",
    "/failures/plan": "?job={job}",
    "/playground": "?expression=0+9+*+*+MON",
    "/new": "?expression=every+1h",
    "/search": "?q={job}",
}


@dataclass
class Answers:
    """What came back from one address."""

    status: int = 0
    bytes: int = 0
    script: int = 0
    first_ms: list[float] = field(default_factory=list)


async def addresses(target: Machine) -> list[str]:
    """Every page and every list, with something real in its place."""
    refs = await _refs(target)
    found = []
    for route in routes(cast(Context, None)):
        if isinstance(route, Route) and "GET" in (route.methods or ()) and route.path not in NOT_LISTS:
            path = route.path.replace("{ref}", refs.get(route.path.split("/")[1], "none"))
            found.append(path + QUERIES.get(route.path, ""))
    lists = [e.path for e in endpoints() if e.method == "GET" and e.answer is not None and "{" not in e.path]
    found += [path for path in lists if path not in NOT_LISTS]
    found += [f"/api/v1/jobs/{refs['jobs']}/{what}" for what in ("executions", "fires", "ledger", "why")]
    return [a.replace("{job}", refs["jobs"]).replace("{rare}", refs["rare"]) for a in (*found, *MORE)]


async def _refs(target: Machine) -> dict[str, str]:
    """The busiest job, a quiet one, and an execution, a failure, a workflow, a run, a worker and a queue."""
    queries = {
        "jobs": "SELECT name FROM jobs WHERE name LIKE 'crm-00001'",
        "rare": f"SELECT name FROM jobs WHERE name LIKE '%-{JOBS - 1:05d}'",
        "executions": "SELECT execution_id FROM history WHERE state = 'failed' AND tenant_id = 1 LIMIT 1",
        "failures": "SELECT dead_letter_id FROM dead_letters WHERE state = 'open' AND tenant_id = 1 LIMIT 1",
        "workflows": "SELECT name FROM jobs WHERE name LIKE 'flow-%' LIMIT 1",
        "runs": "SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 1",
    }
    async with target.database.connection() as connection:
        return {
            **{k: str(await connection.fetchval(query)) for k, query in queries.items()},
            "workers": "worker-01",
            "queues": "short",
        }


async def measure(target: Machine, places: list[str]) -> dict[str, Answers]:
    found = {place: Answers() for place in places}
    caller = {"authorization": f"Bearer {target.token}", "accept": "text/html,application/json"}
    async with httpx2.AsyncClient(base_url=target.url, headers=caller, timeout=120) as client:
        for n in range(ROUNDS + 1):
            for place, answers in found.items():
                begun = time.perf_counter()
                async with client.stream("GET", place) as response:
                    first_ms = (time.perf_counter() - begun) * 1000
                    body = await response.aread()
                if n:  # the first time is warming up
                    answers.first_ms.append(first_ms)
                elif "text/html" in response.headers.get("content-type", ""):
                    answers.script = await _script_bytes(client, body.decode())
                answers.status, answers.bytes = response.status_code, len(body)
    return found


async def _script_bytes(client: httpx2.AsyncClient, html: str) -> int:
    """What a page's scripts weigh on the way, compressed, with everything they import."""
    wanted, seen = re.findall(r'<script[^>]* src="([^"]+)"', html), dict[str, int]()
    while wanted:
        path = wanted.pop()
        if path not in seen:
            text = (await client.get(path)).content
            seen[path] = len(gzip.compress(text, 6))
            wanted += [f"/static/{name}" for name in re.findall(rb'from "\./([\w.]+)"'.decode(), text.decode())]
    return sum(seen.values())


async def slow_statements(dsn: str) -> list[tuple[float, float, int, str]]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(
        "SELECT max_exec_time AS worst, mean_exec_time AS mean, calls, query FROM pg_stat_statements"
        " WHERE max_exec_time > $1 AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " ORDER BY max_exec_time DESC LIMIT 20",
        SLOW_MS,
    )
    await connection.close()
    return [(r["worst"], r["mean"], r["calls"], " ".join(r["query"].split())[:160]) for r in rows]


async def _forget_statements(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    await connection.execute("SELECT pg_stat_statements_reset()")
    await connection.close()


async def main() -> None:
    async with machine() as target:
        begun = time.monotonic()
        await seed(target.database, Plan())
        seeded_s = time.monotonic() - begun
        superuser = target.postgres.superuser_dsn()
        await _forget_statements(superuser)
        target.serve("api")
        await target.until_ready()
        found = await measure(target, await addresses(target))
        slow = await slow_statements(superuser)
    report(found, slow, seeded_s)


def report(found: dict[str, Answers], slow: list[tuple[float, float, int, str]], seeded_s: float) -> None:
    rows = sorted(
        ((quantile(a.first_ms, 0.95), quantile(a.first_ms, 0.5), place, a) for place, a in found.items()), reverse=True
    )
    every = [ms for a in found.values() for ms in a.first_ms]
    over = [place for p95, _, place, _ in rows if p95 > BUDGET_MS]
    broken = [f"{place} ({a.status})" for _, _, place, a in rows if a.status >= 400]
    heaviest = max(a.script for a in found.values())
    lines = [
        f"{EXECUTIONS:,} executions of {JOBS:,} jobs, filled in {seeded_s:.0f} s; {len(found)} pages and lists,"
        f" {ROUNDS} times each, one after the other.",
        "",
        f"First byte over all: p50 {quantile(every, 0.5):.0f} ms, p95 {quantile(every, 0.95):.0f} ms,"
        f" p99 {quantile(every, 0.99):.0f} ms (budget {BUDGET_MS:.0f} ms)."
        f" Over the budget: {', '.join(over) or 'none'}. Not answered: {', '.join(broken) or 'none'}."
        f" Most script on a page, compressed: {heaviest / 1000:.1f} KB (budget {SCRIPT_BUDGET / 1000:.0f} KB).",
        "",
        "| address | p50 ms | p95 ms | KB |",
        "|---|---:|---:|---:|",
        *(f"| `{_short(place)}` | {p50:.0f} | {p95:.0f} | {a.bytes / 1000:.0f} |" for p95, p50, place, a in rows[:25]),
        "",
        f"Statements that took more than {SLOW_MS:.0f} ms once: {len(slow) or 'none'}.",
        *(
            f"- worst {worst:.0f} ms, mean {mean:.1f} ms, {calls} calls: `{query}`"
            for worst, mean, calls, query in slow
        ),
    ]
    figures: dict[str, Any] = {
        "benchmark": "pages", "executions": EXECUTIONS, "jobs": JOBS, "seeded_s": round(seeded_s),
        "first_byte_p50_ms": round(quantile(every, 0.5), 1), "first_byte_p95_ms": round(quantile(every, 0.95), 1),
        "worst_p95_ms": round(rows[0][0], 1), "over_budget": over, "broken": broken,
        "script_bytes": heaviest, "slow_statements": len(slow),
    }  # fmt: skip
    publish("pages", lines, figures)


def _short(place: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", place)


if __name__ == "__main__":
    asyncio.run(main())
